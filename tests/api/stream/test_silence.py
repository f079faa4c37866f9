"""Never silence, and one end: heartbeats, names of frames, and where a stream ends."""

import asyncio
from contextlib import aclosing

from milepost.api.stream import (
    HEARTBEAT,
    Selection,
)
from milepost.core.events import (
    RunWaiting,
    StepCompleted,
    StepStarted,
)
from milepost.store.records import Change
from tests.api.stream.reading import (
    TIMEOUT_S,
    Reading,
    played,
    tail_of,
    whole,
)
from tests.live.client import Sent, parsed
from tests.runtime.writing import Run


async def test_the_stream_ends_with_the_run(run: Run) -> None:
    async with Reading(tail_of(run)) as reading:
        await reading.seen(2)
        await run.end()
        client = await reading.ended()

    assert client.types[-1] == "run.completed"


async def test_a_client_may_leave_where_the_run_waits(run: Run) -> None:
    await run.write(RunWaiting("approval", ("apr_1",)), change=Change("waiting"))

    sent = await whole(run, selection=Selection(until_waiting=True))

    assert sent[-1].event == "run.waiting"


async def test_a_run_that_waits_is_not_over(run: Run) -> None:
    await run.write(RunWaiting("approval", ("apr_1",)), change=Change("waiting"))
    tail = tail_of(run)
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        assert parsed(await anext(pieces))[-1].event == "run.waiting"
        assert await anext(pieces) == HEARTBEAT


async def test_a_heartbeat_is_a_comment_with_one_line_end(run: Run) -> None:
    tail = tail_of(run)
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        await anext(pieces)
        beats = [await anext(pieces) for _ in range(3)]

    assert beats == [b": hb\n"] * 3


async def test_a_heartbeat_comes_while_only_unwanted_text_is_written(run: Run) -> None:
    tail = tail_of(run, selection=Selection(deltas=False))
    tail.heartbeat_s = 0.01
    text = await run.start()

    async def writing() -> None:
        while True:
            run.say(text, "word ")
            await asyncio.sleep(0)

    async with aclosing(tail.pieces()) as pieces:
        await anext(pieces)
        task = asyncio.create_task(writing())
        assert await asyncio.wait_for(anext(pieces), TIMEOUT_S) == HEARTBEAT
        task.cancel()


async def test_retry_stands_inside_the_first_frame_that_has_data_and_nowhere_else(
    run: Run,
) -> None:
    tail = tail_of(run, "2")
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        assert await anext(pieces) == HEARTBEAT
        frames: list[Sent] = []
        for event in (StepStarted(1), StepCompleted(1)):
            await run.write(event)
            while (piece := await anext(pieces)) == HEARTBEAT:
                pass
            frames += parsed(piece)

    assert [frame.retry for frame in frames] == ["1500", None]


async def test_every_frame_names_its_event(run: Run) -> None:
    await played(run)

    sent = await whole(run)

    assert all(each.event == each.body["type"] for each in sent)
    assert {each.body["run_id"] for each in sent} == {run.id}
