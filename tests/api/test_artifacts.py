"""`/v1/artifacts`: what tools left behind, its content in stretches, and whose it is."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from milepost.providers.wire_names import taken_name
from tests.api.asking import events
from tests.api.making import made, refusal
from tests.api.serving import KeyedService, serving, serving_tenants, settings_for
from tests.stubs.directed_model import directed_model

CLERK = "agent:clerk"
TOOLS = '''
from milepost import emit_artifact, tool

@tool
def leave(chars: int = 10, filename: str = "a b.csv") -> str:
    """Leave a file."""
    content = ("0123456789" * (chars // 10 + 1))[:chars]
    emit_artifact(content=content, filename=filename, role="table")
    return "left"

@tool
def link() -> str:
    """Leave a link."""
    emit_artifact("https://example.com/a.pdf", size=7)
    return "linked"
'''


@dataclass(frozen=True, slots=True)
class Desk:
    """A service whose tools leave things behind."""

    keyed: KeyedService
    folder: Path

    async def left(self, *lines: str) -> list[dict[str, Any]]:
        """Have the calls made; return what they left behind."""
        body = {"agent": "clerk", "input": "\n".join(lines)}
        run = await made(self.keyed.acme, "/v1/runs?wait=20", body)
        assert run["status"] == "completed", run
        listed = await self.keyed.acme.get(f"/v1/runs/{run['id']}/artifacts")
        found: list[dict[str, Any]] = listed.json()["data"]
        return found

    async def content(self, artifact: dict[str, Any], **headers: str) -> httpx2.Response:
        """Fetch the content."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.keyed.acme.get(f"/v1/artifacts/{artifact['id']}/content", headers=named)


@pytest.fixture
async def desk(database_url: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """Such a service, on each database."""
    (tmp_path / "leaving.py").write_text(TOOLS)
    async with directed_model() as model:
        settings = settings_for(
            database_url,
            tools=str(tmp_path / "leaving.py"),
            artifacts_dir=str(tmp_path / "artifacts"),
            OPENAI_BASE_URL=model.base_url,
        )
        async with serving_tenants(settings) as keyed:
            agent = {"name": "clerk", "model": "openai/m", "tools": ["leave", "link"]}
            await made(keyed.acme, "/v1/agents", agent)
            yield Desk(keyed, tmp_path / "artifacts")


async def test_what_a_run_left_behind_is_listed_shown_and_in_its_log(desk: Desk) -> None:
    first, second = await desk.left('call leave {"chars": 10}', "call link {}")
    first, second = sorted((first, second), key=lambda each: each["call_id"])

    shown = await desk.keyed.acme.get(f"/v1/artifacts/{first['id']}")
    log = await events(desk.keyed.acme, first["run_id"])
    assert shown.json() == first
    assert (first["filename"], first["mime_type"], first["size"]) == ("a b.csv", "text/csv", 10)
    assert first["sha256"] == hashlib.sha256(b"0123456789").hexdigest()
    assert (second["url"], second["size"]) == ("https://example.com/a.pdf", 7)
    told = [each["data"]["artifact_id"] for each in log if each["type"] == "artifact.created"]
    assert set(told) == {first["id"], second["id"]}


@pytest.mark.parametrize("chars", [10, 600_000])
async def test_a_content_comes_whole_with_its_hash_and_is_saved_by_browsers(
    desk: Desk, chars: int
) -> None:
    [artifact] = await desk.left(f'call leave {{"chars": {chars}}}')

    answer = await desk.content(artifact)

    assert answer.status_code == 200
    assert hashlib.sha256(answer.content).hexdigest() == artifact["sha256"]
    assert answer.headers["etag"] == f'"{artifact["sha256"]}"'
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-length"] == str(chars)
    assert answer.headers["content-disposition"] == 'attachment; filename="a b.csv"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert desk.folder.exists() == (chars > 262_144)


@pytest.mark.parametrize(
    ("asked", "status", "content", "told"),
    [
        ("bytes=0-3", 206, "0123", "bytes 0-3/10"),
        ("bytes=8-", 206, "89", "bytes 8-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=5-99", 206, "56789", "bytes 5-9/10"),
        ("bytes=0-", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=-99", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=3-2", 200, "0123456789", None),
        ("bytes=-", 200, "0123456789", None),
        ("bytes=0-1,4-5", 200, "0123456789", None),
        ("pages=1-2", 200, "0123456789", None),
    ],
)
async def test_one_range_is_served_and_what_is_none_is_not_there(
    desk: Desk, asked: str, status: int, content: str, told: str | None
) -> None:
    [artifact] = await desk.left("call leave {}")

    answer = await desk.content(artifact, range=asked)

    assert (answer.status_code, answer.text) == (status, content)
    assert answer.headers.get("content-range") == told


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=10-12", "bytes=-0"])
async def test_a_range_without_a_byte_is_refused_with_the_size(desk: Desk, asked: str) -> None:
    [artifact] = await desk.left("call leave {}")

    answer = await desk.content(artifact, range=asked)

    assert refusal(answer) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */10"


async def test_a_range_of_a_large_content_ends_where_it_should(desk: Desk) -> None:
    [artifact] = await desk.left('call leave {"chars": 600000}')

    answer = await desk.content(artifact, range="bytes=5-599994")

    assert len(answer.content) == 599_990
    assert (answer.text[:3], answer.text[-3:]) == ("567", "234")


async def test_a_content_that_the_caller_has_is_not_sent_again(desk: Desk) -> None:
    [artifact] = await desk.left("call leave {}")
    tag = f'"{artifact["sha256"]}"'

    known = await desk.content(artifact, if_none_match=f'"other", W/{tag}')
    any_one = await desk.content(artifact, if_none_match="*")
    changed = await desk.content(artifact, if_none_match='"other"')
    other = await desk.content(artifact, range="bytes=0-1", if_range='"other"')
    same = await desk.content(artifact, range="bytes=0-1", if_range=tag)

    for answer in (known, any_one):
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert [each.status_code for each in (changed, other, same)] == [200, 200, 206]


@pytest.mark.parametrize(
    ("filename", "disposition"),
    [
        ("../../etc/passwd", 'attachment; filename="passwd"'),
        ("..", 'attachment; filename="artifact"'),
        (
            'Maß "x".csv',
            "attachment; filename=\"Ma_ _x_.csv\"; filename*=UTF-8''Ma%C3%9F%20%22x%22.csv",
        ),
    ],
)
async def test_a_filename_is_no_path_and_no_header(
    desk: Desk, filename: str, disposition: str
) -> None:
    escaped = filename.replace('"', '\\"')
    [artifact] = await desk.left(f'call leave {{"filename": "{escaped}"}}')

    answer = await desk.content(artifact)

    assert answer.headers["content-disposition"] == disposition


async def test_the_content_of_a_link_is_elsewhere(desk: Desk) -> None:
    [artifact] = await desk.left("call link {}")

    assert refusal(await desk.content(artifact)) == (404, "content_elsewhere")


async def test_an_empty_content_has_no_range(desk: Desk) -> None:
    [artifact] = await desk.left('call leave {"chars": 0}')

    whole = await desk.content(artifact)

    assert (whole.status_code, whole.content) == (200, b"")
    assert refusal(await desk.content(artifact, range="bytes=0-0"))[0] == 416


async def test_what_another_tenant_left_behind_is_not_there(desk: Desk) -> None:
    [artifact] = await desk.left("call leave {}")
    paths = (
        f"/v1/runs/{artifact['run_id']}/artifacts",
        f"/v1/artifacts/{artifact['id']}",
        f"/v1/artifacts/{artifact['id']}/content",
    )

    answers = [refusal(await desk.keyed.globex.get(path)) for path in paths]

    assert answers == [
        (404, "run_not_found"), (404, "artifact_not_found"), (404, "artifact_not_found"),
    ]  # fmt: skip


async def test_artifacts_go_with_their_session(desk: Desk) -> None:
    [artifact] = await desk.left('call leave {"chars": 600000}')

    gone = await desk.keyed.acme.delete(f"/v1/sessions/{artifact['session_id']}")

    assert gone.status_code == 204
    assert refusal(await desk.content(artifact)) == (404, "artifact_not_found")
    assert [each for each in desk.folder.rglob("*") if each.is_file()] == []


async def test_artifacts_of_a_run_below_go_with_the_session_that_had_it_made(desk: Desk) -> None:
    client = desk.keyed.acme
    await made(client, "/v1/agents", {"name": "lead", "model": "openai/m", "tools": [CLERK]})
    task = orjson.dumps({"input": 'call leave {"chars": 600000}'}).decode()
    body = {"agent": "lead", "input": f"call {taken_name(CLERK)} {task}"}
    run = await made(client, "/v1/runs?wait=20", body)
    [child] = (await client.get(f"/v1/runs?parent_run_id={run['id']}")).json()["data"]
    files = [each for each in desk.folder.rglob("*") if each.is_file()]

    gone = await client.delete(f"/v1/sessions/{run['session_id']}")

    assert (len(files), gone.status_code) == (1, 204)
    assert refusal(await client.get(f"/v1/sessions/{child['session_id']}"))[0] == 404
    assert [each for each in desk.folder.rglob("*") if each.is_file()] == []


async def test_who_drives_no_runs_needs_no_folder_for_what_they_leave(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    """It may be mounted there for reading alone."""
    (tmp_path / "file").touch()
    place = str(tmp_path / "file" / "artifacts")

    settings = settings_for(sqlite_database_url, slots=0, artifacts_dir=place)
    async with serving(settings) as service, service.client() as client:
        assert (await client.get("/v1/runs")).status_code == 200
