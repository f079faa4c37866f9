"""What a tool says while it runs: by whom it is heard, when, and how much of it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from milepost.tools import Invoker, LiveProgress, ToolContext, tool, tool_of
from milepost.tools.results import RESULT_CHARS_MAX
from milepost.tools.streaming import CUT

TIMEOUT_S = 10


class Screen:
    """Shows what it is told."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.opened = 0
        self.closed = 0
        self.written = asyncio.Event()

    def write(self, piece: str) -> None:
        """Show a piece."""
        self.pieces.append(piece)
        self.written.set()

    def close(self) -> None:
        """Show no more."""
        self.closed += 1

    def open(self) -> "Screen":
        """Return this, having counted."""
        self.opened += 1
        return self

    async def shows(self, text: str) -> None:
        """Wait until it shows exactly this."""
        async with asyncio.timeout(TIMEOUT_S):
            while "".join(self.pieces) != text:
                self.written.clear()
                await self.written.wait()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def heard_by(screen: Screen, context: ToolContext) -> tuple[ToolContext, LiveProgress]:
    """Return the context of a call whose words are shown."""
    live = LiveProgress(screen.open)
    return replace(context, progress=live), live


async def test_the_pieces_of_a_generator_in_a_thread_are_shown_while_it_runs(
    invoker: Invoker, context: ToolContext, screen: Screen
) -> None:
    go_on = threading.Event()

    @tool
    def count() -> Iterator[object]:
        """Count."""
        yield "one "
        yield 2
        assert go_on.wait(TIMEOUT_S)
        yield " three"

    context, _ = heard_by(screen, context)
    call = asyncio.create_task(invoker.invoke(tool_of(count), {}, context))
    await screen.shows("one 2")
    go_on.set()

    assert await call == "one 2 three"
    await screen.shows("one 2 three")


async def test_so_are_those_of_an_asynchronous_generator(
    invoker: Invoker, context: ToolContext, screen: Screen
) -> None:
    go_on = asyncio.Event()

    @tool
    async def count() -> AsyncIterator[str]:
        """Count."""
        yield "one "
        await go_on.wait()
        yield "two"

    context, _ = heard_by(screen, context)
    call = asyncio.create_task(invoker.invoke(tool_of(count), {}, context))
    await screen.shows("one ")
    go_on.set()

    assert await call == "one two"
    assert screen.pieces == ["one ", "two"]


async def test_so_are_those_of_a_generator_on_the_loop(
    invoker: Invoker, context: ToolContext, screen: Screen
) -> None:
    seen: list[int] = []

    @tool(blocking=False)
    def count() -> Iterator[str]:
        """Count."""
        for word in ("one ", "two ", "three"):
            seen.append(turns)
            yield word

    turns = 0

    async def turn() -> None:
        nonlocal turns
        while len(seen) < 3:
            turns += 1
            await asyncio.sleep(0)

    context, _ = heard_by(screen, context)
    result, _ = await asyncio.gather(invoker.invoke(tool_of(count), {}, context), turn())

    assert result == "one two three"
    assert screen.pieces == ["one ", "two ", "three"]
    assert len(set(seen)) == 3, "the loop stood still between the pieces"


async def test_any_tool_reports_from_whatever_thread(
    invoker: Invoker, context: ToolContext, screen: Screen
) -> None:
    @tool(streaming=True)
    def work(context: ToolContext) -> str:
        """Work."""
        context.progress("10 %, ")
        other = threading.Thread(target=context.progress, args=("20 %",))
        other.start()
        other.join()
        return "done"

    @tool
    async def work_on_the_loop(context: ToolContext) -> str:
        """Work."""
        context.progress(", 30 %")
        return "done"

    context, _ = heard_by(screen, context)

    assert await invoker.invoke(tool_of(work), {}, context) == "done"
    await screen.shows("10 %, 20 %")
    assert await invoker.invoke(tool_of(work_on_the_loop), {}, context) == "done"
    await screen.shows("10 %, 20 %, 30 %")


async def test_a_tool_that_talks_without_end_is_cut_and_hands_over_in_few_turns(
    invoker: Invoker, context: ToolContext, screen: Screen
) -> None:
    @tool
    def chatter() -> Iterator[str]:
        """Talk."""
        for _ in range(2 * RESULT_CHARS_MAX):
            yield "x"

    context, live = heard_by(screen, context)
    await invoker.invoke(tool_of(chatter), {}, context)
    live.close()

    shown = "".join(screen.pieces)
    assert shown == "x" * RESULT_CHARS_MAX + CUT
    assert len(screen.pieces) < RESULT_CHARS_MAX / 10


async def test_a_tool_that_says_nothing_opens_nothing(screen: Screen) -> None:
    live = LiveProgress(screen.open)
    live("")
    live.close()

    assert (screen.opened, screen.closed) == (0, 0)


async def test_what_is_said_behind_the_end_is_heard_by_nobody(screen: Screen) -> None:
    live = LiveProgress(screen.open)

    live("in time")
    live.close()
    live("too late")
    await asyncio.to_thread(live, "much too late")
    await asyncio.sleep(0)

    assert (screen.pieces, screen.closed) == (["in time"], 1)


def test_a_thread_that_talks_behind_its_loops_end_does_no_harm(screen: Screen) -> None:
    async def make() -> LiveProgress:
        return LiveProgress(screen.open)

    live = asyncio.run(make())
    live_in_thread: Callable[..., Any] = live
    other = threading.Thread(target=live_in_thread, args=("hello",))
    other.start()
    other.join(TIMEOUT_S)

    assert screen.pieces == []


async def test_text_that_cannot_be_sent_is_mended(screen: Screen) -> None:
    LiveProgress(screen.open)("a\x00b\ud800c")

    assert screen.pieces == ["a\ufffdb\ufffdc"]


async def test_what_it_says_outside_of_a_run_is_heard_by_nobody(context: ToolContext) -> None:
    context.progress("hello")
    context.remember("hello")

    assert context.progress is not context.remember
