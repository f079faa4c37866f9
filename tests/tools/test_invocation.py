"""Running a tool, whatever it does."""

import asyncio
import contextvars
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from milepost.core.errors import FencedError, ToolError, ToolValidationError
from milepost.tools import Invoker, ToolContext, ToolThreads, tool, tool_of
from milepost.tools.raised import ERROR_CHARS_MAX


@dataclass
class Point:
    """A place."""

    x: int


async def failure_of(invoker: Invoker, function: Any, context: ToolContext) -> ToolError:
    """Return the error that `function`, made a tool, ends in."""
    with pytest.raises(ToolError) as failure:
        await invoker.invoke(tool_of(tool(description="Fail.")(function)), {}, context, timeout_s=5)
    return failure.value


async def test_an_async_tool_runs_on_the_loop(invoker: Invoker, context: ToolContext) -> None:
    @tool
    async def where() -> bool:
        """Tell the thread."""
        return threading.current_thread() is threading.main_thread()

    assert await invoker.invoke(tool_of(where), {}, context) is True


async def test_a_sync_tool_runs_in_a_thread_with_the_callers_context_variables(
    invoker: Invoker, context: ToolContext
) -> None:
    language = contextvars.ContextVar("language", default="en")
    language.set("no")

    @tool
    def where() -> list[str]:
        """Tell the thread."""
        return [threading.current_thread().name, language.get()]

    assert await invoker.invoke(tool_of(where), {}, context) == ["milepost-tool", "no"]


async def test_the_function_gets_values_of_the_annotated_types(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    def move(at: Point, by: int = 1) -> Point:
        """Move."""
        return Point(at.x + by)

    assert await invoker.invoke(tool_of(move), {"at": {"x": "4"}}, context) == {"x": 5}


async def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    invoker: Invoker, context: ToolContext
) -> None:
    ran = []

    @tool
    async def move(by: int) -> None:
        """Move."""
        ran.append(by)

    with pytest.raises(ToolValidationError, match="must be an integer"):
        await invoker.invoke(tool_of(move), {"by": "far"}, context)

    assert ran == []


async def test_a_tool_that_changes_its_arguments_changes_nobody_elses(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    async def extend(items: list[Any]) -> list[Any]:
        """Extend."""
        items[0].append(2)
        return items

    arguments: dict[str, Any] = {"items": [[1]]}

    assert await invoker.invoke(tool_of(extend), arguments, context) == [[1, 2]]
    assert arguments == {"items": [[1]]}


async def test_generators_are_joined(invoker: Invoker, context: ToolContext) -> None:
    @tool
    def count() -> Iterator[Any]:
        """Count."""
        yield from ("one ", 2)

    @tool
    async def stream() -> AsyncIterator[str]:
        """Count."""
        yield "one "
        yield "two"

    assert await invoker.invoke(tool_of(count), {}, context) == "one 2"
    assert await invoker.invoke(tool_of(stream), {}, context) == "one two"


async def test_a_sync_function_that_returns_an_awaitable_is_awaited(
    invoker: Invoker, context: ToolContext
) -> None:
    async def later() -> str:
        return "later"

    @tool
    def soon() -> Awaitable[str]:
        """Promise."""
        return later()

    assert await invoker.invoke(tool_of(soon), {}, context) == "later"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(1),
        StopAsyncIteration(),
        asyncio.CancelledError(),
        TimeoutError("theirs"),
        RecursionError("deep"),
        BaseExceptionGroup("many", [SystemExit(1)]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["async", "sync", "generator", "stream"])
async def test_whatever_a_tool_raises_is_its_failure_alone(
    invoker: Invoker, context: ToolContext, error: BaseException, kind: str
) -> None:
    def in_thread() -> None:
        raise error

    async def on_loop() -> None:
        raise error

    def generator() -> Iterator[str]:
        yield "1"
        raise error

    async def stream() -> AsyncIterator[str]:
        yield "1"
        raise error

    functions = {"sync": in_thread, "async": on_loop, "generator": generator, "stream": stream}
    failure = await failure_of(invoker, functions[kind], context)

    assert failure.code == "tool_failed"
    assert failure.__cause__ is error or failure.__cause__.__cause__ is error  # type: ignore[union-attr]
    assert "failed: " in str(failure)


async def test_a_failure_tells_the_model_what_was_raised(
    invoker: Invoker, context: ToolContext
) -> None:
    def divide() -> None:
        raise ZeroDivisionError("division by zero")

    failure = await failure_of(invoker, divide, context)

    assert str(failure) == "divide failed: ZeroDivisionError: division by zero"


async def test_a_tool_error_is_told_in_its_own_words(
    invoker: Invoker, context: ToolContext
) -> None:
    async def book() -> None:
        raise ToolError("the hotel is full", retryable=True)

    failure = await failure_of(invoker, book, context)

    assert str(failure) == "book failed: the hotel is full"
    assert (failure.code, failure.retryable) == ("tool_failed", True)


async def test_whether_a_tool_may_be_called_again_is_told_as_yes_or_no(
    invoker: Invoker, context: ToolContext
) -> None:
    async def book() -> None:
        may_pass: Any = re.search("full", "the hotel is full")
        raise ToolError("the hotel is full", retryable=may_pass)

    failure = await failure_of(invoker, book, context)

    assert failure.retryable is True


async def test_an_error_of_any_size_and_shape_can_be_told(
    invoker: Invoker, context: ToolContext
) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async def mute() -> None:
        raise MuteError

    async def loud() -> None:
        raise ValueError("\x00\ud800" + "x" * 10**6)

    assert str(await failure_of(invoker, mute, context)) == "mute failed: MuteError"
    assert len(str(await failure_of(invoker, loud, context))) < ERROR_CHARS_MAX + 50
    assert "\x00" not in str(await failure_of(invoker, loud, context))


async def test_a_result_without_json_form_is_a_failure(
    invoker: Invoker, context: ToolContext
) -> None:
    async def thing() -> object:
        return object()

    failure = await failure_of(invoker, thing, context)

    assert "thing failed: it returned what cannot be sent as JSON" in str(failure)


async def test_an_async_tool_that_runs_out_of_time_is_cancelled(
    invoker: Invoker, context: ToolContext
) -> None:
    cancelled = asyncio.Event()

    @tool(timeout_s=0.01)
    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ToolError, match=r"hang timed out after 0\.01 s and was cancelled") as late:
        await invoker.invoke(tool_of(hang), {}, context, timeout_s=60)

    assert late.value.code == "tool_timeout"
    assert cancelled.is_set()


async def test_a_tool_without_a_timeout_of_its_own_has_the_callers(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    with pytest.raises(ToolError, match="timed out"):
        await invoker.invoke(tool_of(hang), {}, context, timeout_s=0.01)


async def test_a_sync_tool_that_runs_out_of_time_is_said_to_run_on(
    invoker: Invoker, context: ToolContext
) -> None:
    release, ended = threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        """Hang."""
        release.wait(10)
        ended.set()

    with pytest.raises(ToolError, match="whose thread cannot be stopped") as late:
        await invoker.invoke(tool_of(hang), {}, context, timeout_s=0.2)
    release.set()

    assert (late.value.code, late.value.retryable) == ("tool_timeout", False)
    assert ended.wait(10)


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_generator_that_never_ends_is_closed_when_its_time_is_up(
    threads: ToolThreads, context: ToolContext, blocking: bool
) -> None:
    closed = threading.Event()

    @tool(blocking=blocking)
    def count() -> Iterator[str]:
        """Count without end."""
        try:
            while True:
                yield "one more "
        finally:
            closed.set()

    with pytest.raises(ToolError, match="timed out"):
        await Invoker(threads).invoke(tool_of(count), {}, context, timeout_s=0.05)

    assert await asyncio.to_thread(closed.wait, 10)


async def test_an_async_generator_that_never_waits_holds_up_nobody_and_is_closed(
    invoker: Invoker, context: ToolContext
) -> None:
    closed = asyncio.Event()

    @tool
    async def count() -> AsyncIterator[str]:
        """Count without end."""
        try:
            while True:
                yield "one more "
        finally:
            closed.set()

    with pytest.raises(ToolError, match="timed out"):
        await invoker.invoke(tool_of(count), {}, context, timeout_s=0.05)

    assert closed.is_set()


async def test_a_sync_tool_that_found_no_thread_in_time_has_not_begun(
    context: ToolContext,
) -> None:
    release, ran = threading.Event(), []
    threads = ToolThreads(threads_max=1)
    invoker = Invoker(threads)

    @tool
    def hang() -> None:
        """Hang."""
        release.wait(10)

    @tool
    def act() -> None:
        """Act."""
        ran.append("act")

    hanging = asyncio.create_task(invoker.invoke(tool_of(hang), {}, context))
    await asyncio.sleep(0)
    with pytest.raises(ToolError, match="before it began: all threads") as late:
        await invoker.invoke(tool_of(act), {}, context, timeout_s=0.01)
    release.set()
    await hanging

    assert late.value.retryable
    assert ran == []
    assert await invoker.invoke(tool_of(act), {}, context) is None
    assert ran == ["act"]
    threads.close()


async def test_a_tool_that_swallows_its_timeout_is_late_all_the_same(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    async def stubborn() -> str:
        """Go on."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done anyway"
        return "never"

    with pytest.raises(ToolError, match="timed out"):
        await invoker.invoke(tool_of(stubborn), {}, context, timeout_s=0.01)


class Deaf:
    """A tool that goes on whatever it is told, until it is released."""

    def __init__(self) -> None:
        self.started, self.release, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.cancellations = 0

    async def __call__(self) -> str:
        """Go on."""
        self.started.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except BaseException:
                self.cancellations += 1
        self.ended.set()
        raise ValueError("nobody is told")


async def test_a_tool_that_will_not_be_cancelled_is_left_behind(
    threads: ToolThreads, context: ToolContext
) -> None:
    deaf, left = Deaf(), []
    invoker = Invoker(
        threads, on_left=lambda *told: left.append(told), stop_waits_s=(0.01, 0.01, 0.01)
    )

    failure = invoker.invoke(tool_of(tool(name="deaf", description="Go on.")(deaf)), {}, context,
                             timeout_s=0.01)  # fmt: skip
    with pytest.raises(ToolError, match="would not be cancelled: it may still be running") as late:
        await failure
    cancellations = deaf.cancellations
    deaf.release.set()
    await deaf.ended.wait()

    assert late.value.code == "tool_timeout"
    assert cancellations == 3
    assert left == [("deaf", 1)]


async def test_a_caller_that_is_cancelled_does_not_wait_for_a_tool_that_goes_on(
    threads: ToolThreads, context: ToolContext
) -> None:
    deaf = Deaf()
    invoker = Invoker(threads, stop_waits_s=(0.01, 0.01))
    called = tool_of(tool(name="deaf", description="Go on.")(deaf))

    task = asyncio.create_task(invoker.invoke(called, {}, context))
    await deaf.started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not deaf.ended.is_set()
    deaf.release.set()
    await deaf.ended.wait()


async def test_a_tool_that_cancels_itself_has_failed_and_stops_nobody_else(
    invoker: Invoker, context: ToolContext
) -> None:
    def cancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def at_once() -> None:
        cancel()

    async def while_it_waits() -> None:
        cancel()
        await asyncio.Event().wait()

    for function in (at_once, while_it_waits):
        failure = await failure_of(invoker, function, context)

        assert failure.code == "tool_failed"
        assert str(failure) == f"{function.__name__} failed: it cancelled itself"


async def test_an_async_tool_whose_start_is_refused_is_not_called(
    threads: ToolThreads, context: ToolContext
) -> None:
    """The lease may lapse while what the tool needs is being made."""
    lapsed, ran = False, []

    def may_start() -> None:
        if lapsed:
            raise FencedError("too late")

    async def connect() -> str:
        nonlocal lapsed
        lapsed = True
        return "db"

    @tool(inject={"db": connect})
    async def act(db: str) -> None:
        """Act."""
        ran.append(db)

    with pytest.raises(FencedError, match="too late"):
        await Invoker(threads, may_start=may_start).invoke(tool_of(act), {}, context)

    assert ran == []


async def test_a_sync_tool_whose_start_is_refused_when_its_turn_comes_is_not_called(
    context: ToolContext,
) -> None:
    threads, lapsed, ran = ToolThreads(threads_max=1), threading.Event(), []
    began, release = threading.Event(), threading.Event()

    def may_start() -> None:
        if lapsed.is_set():
            raise FencedError("too late")

    @tool
    def act(number: int) -> None:
        """Act."""
        began.set()
        release.wait(10)
        ran.append(number)

    invoker = Invoker(threads, may_start=may_start)
    first, second = (
        asyncio.create_task(invoker.invoke(tool_of(act), {"number": number}, context))
        for number in (1, 2)
    )
    await asyncio.to_thread(began.wait, 10)
    lapsed.set()
    release.set()

    await first
    with pytest.raises(FencedError, match="too late"):
        await second
    assert ran == [1]
    threads.close()


async def test_what_a_tool_itself_says_of_a_fence_is_its_failure(
    invoker: Invoker, context: ToolContext
) -> None:
    async def lie() -> None:
        raise FencedError("somebody else has the run")

    failure = await failure_of(invoker, lie, context)

    assert failure.code == "tool_failed"


async def test_a_sync_tools_result_is_made_json_in_its_thread(
    invoker: Invoker, context: ToolContext
) -> None:
    def names() -> Iterator[str]:
        yield threading.current_thread().name

    @tool
    def rows() -> dict[str, Any]:
        """Return what is read only as it is looked at."""
        return {"rows": names()}

    assert await invoker.invoke(tool_of(rows), {}, context) == {"rows": ["milepost-tool"]}


@pytest.mark.parametrize("swallows", [False, True])
async def test_cancelling_the_caller_cancels_the_tool(
    invoker: Invoker, context: ToolContext, swallows: bool
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            if not swallows:
                raise

    task = asyncio.create_task(invoker.invoke(tool_of(hang), {}, context, timeout_s=60))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


async def test_cancelling_the_caller_leaves_a_thread_behind(
    invoker: Invoker, context: ToolContext
) -> None:
    started, release = threading.Event(), threading.Event()

    @tool
    def hang() -> None:
        """Hang."""
        started.set()
        release.wait(10)

    task = asyncio.create_task(invoker.invoke(tool_of(hang), {}, context))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()


async def test_tools_run_side_by_side(invoker: Invoker, context: ToolContext) -> None:
    meeting = threading.Barrier(2, timeout=10)

    @tool
    def meet() -> int:
        """Wait for the other one."""
        return meeting.wait()

    results = await asyncio.gather(
        *(invoker.invoke(tool_of(meet), {}, context, timeout_s=10) for _ in range(2))
    )

    assert sorted(str(result) for result in results) == ["0", "1"]
