"""Streams of a run that is erased meanwhile."""

import asyncio
from contextlib import aclosing

from starlette.types import Message

from milepost.api.stream import (
    HEARTBEAT,
    Streams,
    TailResponse,
)
from milepost.store import sessions
from tests.api.stream.elsewhere import Far
from tests.api.stream.reading import (
    TIMEOUT_S,
    long_results,
    tail_of,
)
from tests.api.stream.wire import SCOPE, Wire, responding
from tests.live.client import parsed
from tests.runtime.writing import Run
from tests.store.making import TENANT


async def erased(run: Run) -> None:
    """Erase the run, which is over, with its session."""
    await run.store.write(sessions.delete(TENANT, run.journal.claim.session_id))


async def test_a_stream_of_a_run_that_is_erased_says_so_and_ends(run: Run) -> None:
    await run.end()
    await erased(run)
    wire = Wire()

    await asyncio.wait_for(responding(TailResponse(tail_of(run), Streams()), wire), TIMEOUT_S)

    [last] = parsed(wire.body)
    assert (last.event, last.data["code"]) == ("error", "run_not_found")
    assert wire.done


async def test_so_does_one_that_was_behind_when_its_run_was_erased(run: Run) -> None:
    await long_results(run, 10)
    await run.end()
    wire, first = Wire(), asyncio.Event()

    async def send(message: Message) -> None:
        await wire.send(message)
        if message.get("body") and not first.is_set():
            first.set()
            await erased(run)

    response = TailResponse(tail_of(run), Streams())
    await asyncio.wait_for(response(SCOPE, wire.receive, send), TIMEOUT_S)

    *sent, last = parsed(wire.body)
    assert (last.event, last.data["code"]) == ("error", "run_not_found")
    assert 0 < len(sent) < run.head


async def test_so_does_one_that_heard_nothing_of_its_run_s_end_elsewhere(far: Far) -> None:
    far.run.hub.link = None
    wire = Wire()
    response = responding(TailResponse(far.tail(), Streams()), wire)
    await wire.until(b"run.started")
    await far.run.end()
    await erased(far.run)

    far.here.doubt(far.run.id)
    await asyncio.wait_for(response, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert (last.event, last.data["code"]) == ("error", "run_not_found")


async def test_a_run_that_is_there_and_says_nothing_is_waited_for(run: Run) -> None:
    tail = tail_of(run, "2")
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        assert [await anext(pieces) for _ in range(2)] == [HEARTBEAT] * 2
