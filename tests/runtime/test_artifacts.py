"""What a run's tools leave behind: told of before their results, in the same append."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.core.agents import Limits
from milepost.core.errors import ProviderError
from milepost.core.events import ArtifactCreated, ToolCallCompleted, ToolCallFailed
from milepost.core.guardrails import Guardrails, PythonRail
from milepost.guardrails import Subject, rail
from milepost.providers.scripted import Scripted, calling, saying
from milepost.runtime.artifacts import IN_DATABASE_BYTES_MAX, Shelf
from milepost.store import artifacts
from milepost.store.artifacts import ArtifactRow
from milepost.store.blobs import DirectoryBlobs
from milepost.store.records import Page
from milepost.tools import ToolContext, emit_artifact, tool
from tests.runtime.workshop import TENANT, TIMEOUT_S, Held, Turns, Workshop, in_background, of

DEADLINE_MS = 60_000
PAGE = Page(limit=100, ascending=True)
LEAVE = calling(("leave", {}))


@tool
def leave(chars: int = 5) -> str:
    """Leave a note."""
    emit_artifact(content="x" * chars, filename="note.txt", role="note")
    return "left"


@tool
def leave_and_fail() -> str:
    """Leave a note, and fail."""
    emit_artifact("https://example.com/log.txt")
    raise RuntimeError("no")


@tool(timeout_s=0.05)
async def leave_and_hang(context: ToolContext) -> None:
    """Leave a note, and never return."""
    context.emit_artifact(content="partial")
    await asyncio.Event().wait()


async def rows(shop: Workshop, run_id: str) -> list[ArtifactRow]:
    """Return what the run has left behind."""
    return await shop.store.read(artifacts.of_run(TENANT, run_id, PAGE))


async def test_an_artifact_is_told_of_right_before_the_result_and_written_with_it(
    shop: Workshop,
) -> None:
    run_id = await shop.driven([LEAVE, saying("Done.")], leave)

    [created] = of(await shop.log(run_id), ArtifactCreated)
    written = await shop.written(run_id)
    at = [kind for _, kind in written].index("artifact.created")
    assert written[at + 1] == (written[at][0], "tool_call.completed")
    [row] = await rows(shop, run_id)
    assert (row.id, row.call_id, row.filename) == (created.artifact_id, "call_1_0", "note.txt")
    assert (row.size, row.sha256, row.role) == (5, created.sha256, "note")
    assert await shop.ports.shelf.read(TENANT, row, 0, 10) == b"xxxxx"


@pytest.mark.parametrize("function", [leave_and_fail, leave_and_hang])
async def test_a_call_that_failed_keeps_what_it_left_before(
    shop: Workshop, function: Callable[..., object]
) -> None:
    asked = calling((function.__name__, {}))

    run_id = await shop.driven([asked, saying("Oh.")], function)

    kinds = await shop.types(run_id)
    assert kinds.index("artifact.created") + 1 == kinds.index("tool_call.failed")
    assert len(await rows(shop, run_id)) == 1


async def test_calls_at_once_leave_each_their_own(shop: Workshop) -> None:
    calls = calling(*(("leave", {"chars": chars}) for chars in (1, 2, 3)))

    run_id = await shop.driven([calls, saying("Done.")], leave)

    assert {(row.call_id, row.size) for row in await rows(shop, run_id)} == {
        ("call_1_0", 1), ("call_1_1", 2), ("call_1_2", 3),
    }  # fmt: skip


async def test_a_large_content_lies_beside_the_database(shop: Workshop) -> None:
    chars = IN_DATABASE_BYTES_MAX + 1
    run_id = await shop.driven([calling(("leave", {"chars": chars})), saying("Done.")], leave)

    [row] = await rows(shop, run_id)
    [file] = (each for each in (shop.path.parent / "artifacts").rglob("*") if each.is_file())
    assert file.name == row.sha256
    assert await shop.store.read(artifacts.content(TENANT, row, 0, 1)) is None
    assert await shop.ports.shelf.read(TENANT, row, chars - 1, 10) == b"x"


async def test_a_call_whose_artifact_cannot_be_kept_fails_and_says_that_the_tool_ran(
    shop: Workshop, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file, where a folder is needed")
    chars = IN_DATABASE_BYTES_MAX + 1
    shop.ports = replace(shop.ports, shelf=Shelf(shop.store, DirectoryBlobs(tmp_path / "taken")))

    run_id = await shop.driven([calling(("leave", {"chars": chars})), saying("Oh.")], leave)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert failed.error.code == "artifact_not_kept"
    assert "leave ran" in failed.error.message
    assert await rows(shop, run_id) == []


async def test_a_call_whose_artifact_finds_no_thread_fails_and_says_that_the_tool_ran(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no drive, with which all that is under way beside it would go."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("asyncio"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    chars = IN_DATABASE_BYTES_MAX + 1

    run_id = await shop.driven([calling(("leave", {"chars": chars})), saying("Oh.")], leave)

    [failed] = of(await shop.log(run_id), ToolCallFailed)
    assert failed.error.code == "artifact_not_kept"
    assert "can't start new thread" in failed.error.message


async def cancelled(shop: Workshop) -> str:
    model = Held()
    run = await shop.queue()
    claim = await shop.claim()
    driven = await shop.driving(
        claim, shop.agent(leave), shop.means(Turns(playing(), model), leave)
    )
    async with in_background(driven):
        await asyncio.wait_for(model.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)
    return run.id


async def failed(shop: Workshop) -> str:
    gone = ProviderError("no such model", code="provider_bad_request")
    return await shop.driven([LEAVE, gone], leave)


async def out_of_steps(shop: Workshop) -> str:
    agent = shop.agent(leave, limits=Limits(max_steps=1))
    return await shop.driven([LEAVE], leave, agent=agent)


async def cancelled_in_a_call(shop: Workshop) -> str:
    return await stopped_in_a_call(shop, shop.cancel)


async def too_late_in_a_call(shop: Workshop) -> str:
    async def wait_too_long(run_id: str) -> None:
        shop.clock.ahead_ms = DEADLINE_MS
        shop.ring(run_id)

    return await stopped_in_a_call(shop, wait_too_long)


async def stopped_in_a_call(shop: Workshop, stop: Callable[[str], Awaitable[object]]) -> str:
    left = asyncio.Event()

    @tool
    async def leave_and_wait() -> None:
        """Leave a note, and never return."""
        emit_artifact(content="partial", filename="note.txt")
        left.set()
        await asyncio.Event().wait()

    run = await shop.queue(deadline_ms=shop.clock() + DEADLINE_MS)
    means = shop.means([calling(("leave_and_wait", {}))], leave_and_wait)
    driven = await shop.driving(await shop.claim(), shop.agent(leave_and_wait), means)
    async with in_background(driven):
        await asyncio.wait_for(left.wait(), TIMEOUT_S)
        await stop(run.id)
    return run.id


async def cancelled_as_its_rails_look(shop: Workshop) -> str:
    looking = asyncio.Event()

    @rail(name="slow")
    async def slow(_: Subject) -> None:
        looking.set()
        await asyncio.Event().wait()

    guardrails = Guardrails(tool_results=(PythonRail(name="slow"),))
    run = await shop.queue()
    means = shop.means([LEAVE], leave, rails={"slow": slow})
    agent = shop.agent(leave, guardrails=guardrails)
    driven = await shop.driving(await shop.claim(), agent, means)
    async with in_background(driven):
        await asyncio.wait_for(looking.wait(), TIMEOUT_S)
        await shop.cancel(run.id)
    return run.id


def playing() -> Scripted:
    return Scripted([LEAVE])


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (cancelled, "cancelled"),
        (cancelled_in_a_call, "cancelled"),
        (cancelled_as_its_rails_look, "cancelled"),
        (failed, "failed"),
        (too_late_in_a_call, "expired"),
        (out_of_steps, "incomplete"),
    ],
)
async def test_artifacts_are_there_however_the_run_ends(
    shop: Workshop, end: Callable[[Workshop], Awaitable[str]], status: str
) -> None:
    run_id = await end(shop)

    assert (await shop.row(run_id)).status == status
    [row] = await rows(shop, run_id)
    assert row.filename == "note.txt"


async def test_a_result_without_artifacts_is_written_as_ever(shop: Workshop) -> None:
    @tool
    def plain() -> str:
        """Return."""
        return "plain"

    run_id = await shop.driven([calling(("plain", {})), saying("Done.")], plain)

    assert of(await shop.log(run_id), ToolCallCompleted)
    assert "artifact.created" not in await shop.types(run_id)
