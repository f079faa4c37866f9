"""`/v1/tools`: what agents may be given."""

from pathlib import Path

import httpx2
import pytest

from tests.api.serving import KeyedService, serving, settings_for
from tests.telemetry.spoken import spoken

CLICK = """
[[client_tools]]
name = "click"
description = "Click."
parameters = { type = "object" }
"""


SHOP = '''
from collections.abc import Iterator

from milepost import tool


@tool(effect="read", cacheable=True)
def follow(number: int) -> Iterator[str]:
    """Follow a parcel."""
    yield "packed, "
    yield "sent"
'''


async def test_tools_are_listed_by_name_with_all_that_is_told_of_them(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/v1/tools")

    body = answer.json()
    assert [tool["name"] for tool in body["data"]] == [
        "add", "current_time", "multiply", "send_email",
    ]  # fmt: skip
    assert body["has_more"] is False
    mail = body["data"][3]
    assert mail["requires_approval"] is True
    assert mail["effect"] == "once"
    assert set(mail["parameters"]["properties"]) == {"to", "subject", "body"}


async def test_the_list_of_tools_comes_in_pages(client: httpx2.AsyncClient) -> None:
    first = (await client.get("/v1/tools?limit=3")).json()

    rest = (await client.get(f"/v1/tools?limit=3&after={first['next_cursor']}")).json()

    assert (first["has_more"], first["next_cursor"]) == (True, "multiply")
    assert [tool["name"] for tool in rest["data"]] == ["send_email"]
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)


async def test_the_list_of_tools_comes_backwards_too(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools?order=desc&after=multiply")

    assert [tool["name"] for tool in answer.json()["data"]] == ["current_time", "add"]


async def test_a_tool_is_found_by_its_name(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools/add")

    assert answer.json()["description"] == "Add two numbers."


async def test_a_tool_of_any_name_is_found_by_it(keyed: KeyedService) -> None:
    names = ("permissions", "call", "statistics")
    tools = [
        {"name": name, "description": "X.", "parameters": {"type": "object"}} for name in names
    ]
    source = {"kind": "client", "name": "screen", "tools": tools}
    await keyed.acme.post("/v1/tool_sources", json=source)

    found = [(await keyed.acme.get(f"/v1/tools/{name}")).json() for name in names]

    assert tuple(tool["name"] for tool in found) == names


async def test_a_tool_that_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/tools/launch_rocket")

    assert (answer.status_code, answer.json()["code"]) == (404, "tool_not_found")


async def test_statistics_tell_how_the_latest_calls_of_a_tool_went(
    keyed: KeyedService,
) -> None:
    acme, body = keyed.acme, {"arguments": {"a": 20, "b": 22}}
    for _ in range(3):
        await acme.post("/v1/tools/add/call", json=body)
    await acme.post("/v1/tools/current_time/call", json={"arguments": {"timezone": "Mars"}})
    await acme.put("/v1/tool_permissions", json={"permissions": {"add": []}})
    denied = await acme.post("/v1/tools/add/call", json=body)

    add = (await acme.get("/v1/tools/add?statistics=true")).json()["statistics"]
    listed = (await acme.get("/v1/tools?statistics=true")).json()["data"]
    theirs = (await keyed.globex.get("/v1/tools/add?statistics=true")).json()["statistics"]

    assert denied.json()["status"] == "denied"
    assert (add["calls"], add["failures"], add["denied"]) == (3, 0, 1)
    assert 0 <= add["p50_ms"] <= add["p95_ms"]
    assert (add["result_chars_mean"], add["result_tokens_mean"]) == (2, 1)
    assert (add["success_rate"], add["failures_by_code"]) == (1.0, {})
    assert add["parameters"] == {"a": 3, "b": 3}
    clock = next(tool for tool in listed if tool["name"] == "current_time")["statistics"]
    assert (clock["calls"], clock["failures"], clock["result_chars_mean"]) == (1, 1, None)
    assert (clock["success_rate"], clock["failures_by_code"]) == (0.0, {"tool_failed": 1})
    assert (theirs["calls"], theirs["denied"], theirs["p50_ms"]) == (0, 0, None)
    assert theirs["success_rate"] is None


async def test_statistics_tell_what_was_mended_what_was_cached_and_what_was_shown(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    settings = settings_for(sqlite_database_url, tools=str(tmp_path / "shop.py"))
    async with serving(settings) as service, service.client() as client:
        for number in ("7", 7):
            body = {"arguments": {"number": number}}
            answer = await client.post("/v1/tools/follow/call", json=body)
            assert answer.json()["status"] == "completed", answer.text
        shown = (await client.get("/v1/tools/follow?statistics=true")).json()["statistics"]
        [group] = (await client.get("/v1/usage?tool=follow&agent=direct:follow")).json()["data"]

    counted = {"coerced": 1, "cached": 1, "chunks": 2}
    assert counted.items() <= shown.items()
    assert {**counted, "tool_calls": 2, "success_rate": 1.0}.items() <= group.items()
    assert 0 <= group["p50_ms"] <= group["p95_ms"]


async def test_statistics_are_told_only_to_who_asks(client: httpx2.AsyncClient) -> None:
    assert "statistics" not in (await client.get("/v1/tools/add")).json()
    wrong = await client.get("/v1/tools?statistics=yes")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_query")


async def test_who_reloads_tools_is_told_which_of_them_are_read_at_the_start_alone(
    sqlite_database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tools.toml").write_text(CLICK)
    tools = str(tmp_path / "tools.toml")

    for reload_tools in (False, True):
        settings = settings_for(sqlite_database_url, tools=tools, reload_tools=reload_tools)
        async with serving(settings):
            pass

    [warning] = spoken(caplog, "tools")
    assert warning["level"] == "warning"
    assert (warning["watched"], warning["unwatched"]) == ([], [tools])
