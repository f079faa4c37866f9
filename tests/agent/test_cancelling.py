"""Runs that are stopped by whoever waits for them, and what is in hand then."""

import asyncio
import threading

import pytest

from milepost import RecordingObserver, tool
from milepost.agent import observations as seen
from milepost.core.model import ModelRequest
from milepost.providers.scripted import calling, saying
from tests.agent.making import agent, function_agent


async def test_who_cancels_the_wait_cancels_the_run_and_its_tools() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    recorded = RecordingObserver()
    asked = agent(calling(("hang", {})), tools=[hang], observers=[recorded])
    run = asyncio.create_task(asked.arun("Go."))
    await started.wait()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert stopped.is_set()
    [end] = recorded.of(seen.RunEnd)
    assert end.status == "cancelled"
    assert asked.usage.model_calls == 1


async def test_a_timeout_around_a_run_is_a_timeout() -> None:
    async def hang(_: ModelRequest) -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await function_agent(hang).arun("Go.")


async def test_a_run_that_is_cancelled_twice_is_cut_off() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Will not stop."""
        started.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "stopped"

    recorded = RecordingObserver()
    asked = agent(calling(("stubborn", {})), tools=[stubborn], observers=[recorded])
    run = asyncio.create_task(asked.arun("Go."))
    await started.wait()
    run.cancel()
    await asyncio.sleep(0)

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    go.set()

    assert recorded.of(seen.RunEnd)[0].status == "cancelled"


def test_a_sync_tool_that_cannot_be_stopped_is_left_behind() -> None:
    go = threading.Event()

    @tool(timeout_s=0.05)
    def stuck() -> str:
        """Stand still."""
        go.wait(30)
        return "late"

    result = agent(calling(("stuck", {})), saying("Oh."), tools=[stuck]).run("Go.")
    go.set()

    assert "0.05" in (result.tool_calls[0].error or "")
