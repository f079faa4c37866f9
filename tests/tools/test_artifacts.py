"""Artifacts as tools leave them: what is computed, what is refused, and whose call they are of."""

import asyncio
import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from milepost import Artifact, ToolContext, emit_artifact, tool, tool_of
from milepost.core.errors import ToolError
from milepost.tools import Invoker, ToolThreads
from milepost.tools import artifacts as module
from milepost.tools.artifacts import ARTIFACTS_MAX, collecting


def test_an_artifact_by_its_url_is_as_the_tool_says() -> None:
    artifact = emit_artifact(
        "https://example.com/report.csv",
        filename="report.csv",
        sha256="a" * 64,
        size=12,
        role="report",
        retention="90 days",
    )

    assert artifact == Artifact(
        id=artifact.id,
        url="https://example.com/report.csv",
        mime_type="text/csv",
        filename="report.csv",
        sha256="a" * 64,
        size=12,
        role="report",
        retention="90 days",
    )
    assert artifact.id.startswith("art_")


@pytest.mark.parametrize("form", ["bytes", "text", "path"])
def test_of_a_content_hash_and_size_are_computed(form: str, tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("naïve")
    content: Any = {"bytes": "naïve".encode(), "text": "naïve", "path": path}[form]

    with collecting() as emissions:
        artifact = emit_artifact(content=content)

    assert artifact.sha256 == hashlib.sha256("naïve".encode()).hexdigest()
    assert artifact.size == 6
    assert emissions.close() == ((artifact, "naïve".encode()),)


@pytest.mark.parametrize(
    ("given", "mime_type"),
    [
        ({"content": "a,b", "filename": "table.csv"}, "text/csv"),
        ({"content": "hello"}, "text/plain"),
        ({"content": b"\x00"}, "application/octet-stream"),
        ({"content": b"{}", "mime_type": "application/json"}, "application/json"),
        ({"url": "https://example.com/a/logo.png?v=2"}, "image/png"),
    ],
)
def test_a_media_type_is_guessed_unless_it_is_said(given: dict[str, Any], mime_type: str) -> None:
    assert emit_artifact(**given).mime_type == mime_type


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "either a url or a content"),
        ({"url": "https://a", "content": "b"}, "either a url or a content"),
        ({"url": "javascript:alert(1)"}, "is no URL; write scheme://"),
        ({"url": "https://a\r\nb"}, "is no URL"),
        ({"content": "x", "size": 2}, "has 1 bytes, not 2"),
        ({"content": "x", "sha256": "0" * 64}, "leave it out"),
        ({"url": "https://a", "sha256": "zz"}, "64 hex digits"),
        ({"url": "https://a", "size": -1}, "no size of an artifact"),
        ({"url": "https://a", "size": 1e6}, "1000000.0 is no size of an artifact"),
        ({"url": "https://a", "size": True}, "no size of an artifact"),
        ({"content": "x", "mime_type": "text/html\r\nx: y"}, "no MIME type"),
        ({"content": "x", "mime_type": "text/schön"}, "no MIME type"),
        ({"content": "x", "filename": ""}, "1 to 200 characters"),
        ({"content": Path("nowhere/to/be/found")}, "cannot be read"),
    ],
)
def test_what_can_be_no_artifact_is_a_tool_error_with_the_remedy(
    given: dict[str, Any], told: str
) -> None:
    with pytest.raises(ToolError, match=told):
        emit_artifact(**given)


def test_outside_a_run_the_artifact_is_returned_and_kept_nowhere() -> None:
    artifact = emit_artifact(content="hello")

    assert artifact.size == 5
    with collecting() as emissions:
        pass
    assert emissions.close() == ()


def test_a_call_leaves_so_many_artifacts_and_no_more() -> None:
    with collecting():
        for _ in range(ARTIFACTS_MAX):
            emit_artifact(content="x")

        with pytest.raises(ToolError, match="put them into an archive"):
            emit_artifact(content="x")


def test_contents_are_bounded_each_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTENT_BYTES_MAX", 10)
    monkeypatch.setattr(module, "CONTENTS_BYTES_MAX", 15)

    with collecting():
        emit_artifact(content="x" * 10)
        with pytest.raises(ToolError, match="emit its URL"):
            emit_artifact(content="x" * 11)
        with pytest.raises(ToolError, match="15 bytes in all"):
            emit_artifact(content="x" * 10)


# --- Each call its own ---


@tool
async def leave_async(name: str) -> str:
    """Leave one."""
    emit_artifact(content=name)
    await asyncio.sleep(0)
    emit_artifact(content=name)
    return name


@tool
def leave_in_thread(name: str) -> str:
    """Leave one."""
    emit_artifact(content=name)
    emit_artifact(content=name)
    return name


@tool
def leave_in_pieces(name: str) -> Any:
    """Leave some."""
    for _ in range(2):
        emit_artifact(content=name)
        yield name


@tool(blocking=False)
def leave_at_once(name: str) -> str:
    """Leave one."""
    return leave_in_thread(name)


@tool
def leave_from_own_thread(name: str, context: ToolContext) -> str:
    """Leave some from a thread that knows nothing of the call but its context."""
    for _ in range(2):
        thread = threading.Thread(target=lambda: context.emit_artifact(content=name))
        thread.start()
        thread.join()
    return name


PATHS = (leave_async, leave_in_thread, leave_in_pieces, leave_at_once, leave_from_own_thread)


async def left_by(function: Any, name: str, threads: ToolThreads) -> list[bytes | None]:
    """Call the tool and return the contents that it left behind."""
    with collecting() as emissions:
        context = ToolContext(
            "run", "ses", "acme", None, "call", 1, "key", emit_artifact=emissions.emit
        )
        await Invoker(threads).invoke(tool_of(function), {"name": name}, context)
    return [content for _, content in emissions.close()]


@pytest.mark.parametrize("function", PATHS)
async def test_artifacts_are_left_in_every_path_of_execution(function: Any) -> None:
    threads = ToolThreads(2)

    assert await left_by(function, "ann", threads) == [b"ann", b"ann"]

    threads.close()


async def test_calls_at_once_never_mix_what_they_leave() -> None:
    threads = ToolThreads(4)
    names = [f"call {number}" for number in range(20)]

    left = await asyncio.gather(
        *(left_by(PATHS[index % len(PATHS)], name, threads) for index, name in enumerate(names))
    )

    assert left == [[name.encode()] * 2 for name in names]
    threads.close()


def test_what_comes_after_the_end_of_a_call_is_not_its_own() -> None:
    with collecting() as emissions:
        emit_artifact(content="in time")
        [(_, kept)] = emissions.close()
        emit_artifact(content="too late")

    assert kept == b"in time"
    assert len(emissions.close()) == 1
