"""Where runs are done: loops of the caller's and of our own, and what stays open in between."""

import asyncio
import contextlib
import gc
import os
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from milepost import Agent, tool
from milepost.agent.loop_thread import LoopThread, run_here
from milepost.agent.per_loop import PerLoop
from milepost.providers.scripted import calling, saying
from tests.agent.making import add, adding, agent, echo, function_agent, process_id
from tests.forks import in_a_fork


class Door:
    """Counts how often it is opened and closed."""

    def __init__(self) -> None:
        self.told: list[str] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        self.told.append("open")
        await asyncio.sleep(0)
        yield "open"
        self.told.append("closed")


async def test_one_thing_is_shared_by_all_who_hold_it_and_closed_by_the_last() -> None:
    door = Door()
    places = PerLoop(door.opened)

    async def hold() -> None:
        async with places.held() as thing:
            assert thing == "open"
            await asyncio.sleep(0)

    await asyncio.gather(hold(), hold(), hold())
    await hold()

    assert door.told == ["open", "closed"] * 2


async def test_one_that_cannot_be_opened_is_tried_again_by_the_next() -> None:
    tries = 0

    @asynccontextmanager
    async def opened() -> AsyncIterator[int]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise OSError("away")
        yield tries

    places = PerLoop(opened)
    with pytest.raises(OSError, match="away"):
        async with places.held():
            pass

    async with places.held() as thing:
        assert thing == 2


def test_each_loop_has_its_own() -> None:
    door = Door()
    places = PerLoop(door.opened)

    async def hold() -> None:
        async with places.held():
            pass

    asyncio.run(hold())
    asyncio.run(hold())

    assert door.told == ["open", "closed"] * 2


def test_an_agent_that_is_kept_open_serves_waiting_callers_on_one_loop() -> None:
    loops: set[int] = set()

    async def note(request: object) -> str:
        loops.add(id(asyncio.get_running_loop()))
        return "noted"

    with function_agent(note) as asked:
        asked.run("one")
        asked.run("two")
        assert len(asked.batch(["three"])) == 1
        with pytest.raises(RuntimeError, match="kept open already"), asked:
            pass

    assert len(loops) == 1
    assert asked.run("four").content == "noted"


async def test_an_async_tool_may_wait_for_another_agent_though_it_holds_its_loop_up() -> None:
    inner = function_agent(echo)

    @tool
    async def delegate() -> str:
        """Wait for another agent, without awaiting it."""
        return inner.run("Hi.").content

    asked = agent(calling(("delegate", {})), saying("Done."), tools=[delegate])

    [call] = (await asked.arun("Go.")).tool_calls

    assert call.result == "1: Hi."


def test_work_that_would_wait_for_its_own_loop_is_refused() -> None:
    @tool
    async def delegate() -> str:
        """Wait for the agent on the very loop that it runs on."""
        return asked.run("Hi.").content

    asked = agent(calling(("delegate", {})), saying("Done."), tools=[delegate])

    with asked:
        [call] = asked.run("Go.").tool_calls

    assert "await arun() instead of run()" in (call.error or "")


def test_waiting_may_be_interrupted_and_ends_the_work() -> None:
    ended = threading.Event()
    thread = LoopThread()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def soon() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_here(soon())
    asyncio.run_coroutine_threadsafe(work(), thread._loop)
    thread.close()

    assert ended.wait(5)


def test_an_agent_that_is_gone_leaves_no_idle_threads() -> None:
    @tool
    def plain() -> str:
        """Run in a thread."""
        return "done"

    before = {each for each in threading.enumerate() if each.name == "milepost-tool"}
    asked = agent(calling(("plain", {})), saying("Done."), tools=[plain])
    asked.run("Go.")
    own = {each for each in threading.enumerate() if each.name == "milepost-tool"} - before
    place = weakref.ref(asked._runner.workplace)

    del asked
    gc.collect()

    assert place() is None
    for each in own:
        each.join(5)
    assert [each for each in own if each.is_alive()] == []


@pytest.mark.parametrize("kept", [False, True])
def test_an_agent_serves_in_a_fork_as_well(kept: bool) -> None:
    @tool
    def plain() -> str:
        """Run in a thread."""
        return "done"

    asked = agent(*[calling(("plain", {})), saying("Done.")] * 2, tools=[plain])

    with asked if kept else contextlib.nullcontext():
        asked.run("Go.")
        said = in_a_fork(lambda: asked.run("Go.").content)

    assert said == asked.run("Go.").content == "Done."


async def test_an_agent_may_be_kept_open_several_times_over() -> None:
    async with adding() as asked, asked:
        assert (await asked.arun("Go.")).content == "It is 42."


def test_an_agent_is_plain_to_look_at() -> None:
    asked = Agent("demo/milepost-demo", tools=[add])

    assert repr(asked).startswith("Agent(model='demo/milepost-demo'")


async def test_an_isolated_tool_runs_in_a_process_that_ends_with_the_run() -> None:
    asked = agent(calling(("process_id", {})), saying("Done."), tools=[process_id])

    [call] = (await asked.arun("Go.")).tool_calls

    assert isinstance(call.result, int), call
    assert call.result != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(call.result, 0)
