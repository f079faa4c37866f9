"""A session's stream: run after run, from any place in any of them, as long as anybody listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
from sqlalchemy import delete

from milepost.api.session_cursors import parse_session_cursor
from milepost.api.session_stream import SessionTail, Start
from milepost.api.stream import HEARTBEAT, Selection
from milepost.core.errors import NotFoundError
from milepost.live.hub import Hub, session_bell
from milepost.store import log, schema, session_order, sessions
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.api.stream.elsewhere import Relay
from tests.api.stream.reading import ALL, TEXT, TIMEOUT_S, played
from tests.live.client import Sent, parsed
from tests.live.session_client import SessionClient
from tests.runtime.writing import Run, claimed
from tests.store.making import TENANT


async def tail_of(
    run: Run, position: str = "", selection: Selection = ALL, *, idle: bool = True
) -> SessionTail:
    """Return a tail of the run's session, in the run's process, from a position on."""
    start = await start_at(run.store, session_of(run), position)
    place = (TENANT, session_of(run))
    return SessionTail(run.store, run.hub, place, start, selection, until_idle=idle)


def session_of(run: Run) -> str:
    return run.journal.claim.session_id


async def start_at(store: Store, session_id: str, position: str) -> Start:
    cursor = parse_session_cursor(position)
    if cursor.run_id is None:
        return Start()
    spot = await store.read(session_order.spot(TENANT, session_id, cursor.run_id))
    assert spot is not None
    head = await store.read(log.head(TENANT, spot.run_id))
    return Start(spot, cursor.within, spot.turn is not None and cursor.within.seq == head)


async def behind(run: Run) -> Run:
    """Return another run of the same session, which has just been claimed."""
    return await claimed(run.store, run.hub, session_id=session_of(run), session_is_new=False)


async def whole(tail: SessionTail) -> bytes:
    """Return all that a stream sends to its end."""
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(tail.pieces()) as pieces:
            return b"".join([piece async for piece in pieces])


@asynccontextmanager
async def reading(tail: SessionTail) -> AsyncIterator[SessionClient]:
    """Let a client read while the test goes on."""
    client = SessionClient()
    task = asyncio.create_task(client.read(tail.pieces()))
    try:
        yield client
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def two(run: Run) -> tuple[Run, Run]:
    """Two runs of a session that have been played to their ends."""
    await played(run)
    second = await behind(run)
    await played(second)
    return run, second


def durable(sent: list[Sent]) -> list[dict[str, object]]:
    return [each.body for each in sent if each.seq is not None]


async def test_runs_come_one_after_the_other_and_then_the_stream_ends(
    two: tuple[Run, Run],
) -> None:
    client = SessionClient()

    client.feed(await whole(await tail_of(two[0])))

    assert list(client.runs) == [run.id for run in two]
    assert client.types[-2:] == ["run.completed", "stream.idle"]
    assert [len(each.seqs) for each in client.runs.values()] == [run.head for run in two]
    assert all(each.texts["msg_3"] == TEXT for each in client.runs.values())


async def test_from_each_frame_on_come_exactly_the_frames_behind_it(two: tuple[Run, Run]) -> None:
    everything = parsed(await whole(await tail_of(two[0])))

    for index, sent in enumerate(everything):
        if sent.id is None:
            continue
        rest = await whole(await tail_of(two[0], sent.id))
        following = everything[index + 1]
        first = Sent(following.event, following.id, following.body, "1500")
        assert parsed(rest) == [first, *everything[index + 2 :]]


async def test_a_text_goes_on_in_its_middle(two: tuple[Run, Run]) -> None:
    (started,) = [
        each.id
        for each in parsed(await whole(await tail_of(two[0])))
        if each.event == "message.started"
        and each.body["run_id"] == two[1].id
        and each.data["message_id"] == "msg_3"
    ]

    for offset in range(len(TEXT)):
        sent = parsed(await whole(await tail_of(two[0], f"{started}~msg_3:{offset}")))
        (delta,) = [each for each in sent if each.event == "message.delta"]
        assert (delta.data["offset"], delta.data["text"]) == (offset, TEXT[offset:])
        assert delta.id == f"{started}~msg_3:{len(TEXT)}"


async def test_a_client_sees_a_run_that_comes_while_it_waits(run: Run) -> None:
    await played(run)
    async with reading(await tail_of(run, idle=False)) as client:
        await client.until(lambda client: "run.completed" in client.types)
        second = await behind(run)
        run.hub.ring(session_bell(session_of(run)))
        with run.hub.hold(second.id):  # As its driver does, whether or not anybody listens yet.
            text = await second.start()
            second.say(text, "Hel", "lo")
            await client.until(lambda c: c.runs.get(second.id) is not None)
            await client.until(lambda c: c.runs[second.id].texts.get("msg_1") == "Hello")
            await second.complete("Hello")
            await second.end()
            await client.until(lambda client: client.types.count("run.completed") == 2)

    assert list(client.runs) == [run.id, second.id]


async def test_a_client_in_another_process_sees_live_text_of_the_next_run(run: Run) -> None:
    here = Hub()
    run.hub.link = Relay(here)
    await played(run)
    start, place = Start(), (TENANT, session_of(run))
    tail = SessionTail(run.store, here, place, start, ALL)
    async with reading(tail) as client:
        await client.until(lambda client: "run.completed" in client.types)
        second = await behind(run)
        run.hub.ring(session_bell(session_of(run)))
        text = await second.start()
        await client.until(lambda c: second.id in c.runs and len(c.runs[second.id].seqs) == 3)
        second.say(text, "Hi")
        await client.until(lambda c: c.runs[second.id].texts.get("msg_1") == "Hi")


async def test_a_run_under_way_is_joined_in_its_middle(two: tuple[Run, Run]) -> None:
    third = await behind(two[0])
    with third.hub.hold(third.id):
        text = await third.start()
        third.say(text, "Hello")

        tail = await tail_of(two[0], f"{third.id}.3~msg_1:2")
        async with asyncio.timeout(TIMEOUT_S), aclosing(tail.pieces()) as pieces:
            (delta,) = parsed(b"".join([await anext(pieces) for _ in range(2)]))

    assert delta.id == f"{third.id}.3~msg_1:5"
    assert delta.data == {"message_id": "msg_1", "offset": 2, "text": "llo"}


async def test_only_wanted_types_are_sent(two: tuple[Run, Run]) -> None:
    selection = Selection(types=("run.*",), deltas=False)

    sent = parsed(await whole(await tail_of(two[0], selection=selection)))

    of_a_run = [each.event for each in sent[:-1] if each.body["run_id"] == two[0].id]
    assert of_a_run == ["run.queued", "run.started", "run.completed"]
    assert [each.event for each in sent] == [*of_a_run, *of_a_run, "stream.idle"]


async def test_without_deltas_only_logs_are_sent(two: tuple[Run, Run]) -> None:
    everything = parsed(await whole(await tail_of(two[0])))

    sent = parsed(await whole(await tail_of(two[0], selection=Selection(deltas=False))))

    assert [each.body for each in sent[:-1]] == durable(everything)


async def test_a_session_without_runs_is_idle(store: Store, hub: Hub) -> None:
    new = sessions.NewSession("ses_1", TENANT, None, None, "{}", 1)
    await store.write(sessions.create(new))
    tail = SessionTail(store, hub, (TENANT, "ses_1"), Start(), ALL, until_idle=True)

    (idle,) = parsed(await whole(tail))
    assert idle.body == {"type": "stream.idle", "session_id": "ses_1", "data": {}}
    assert tail.ended


async def test_somebody_who_waits_for_a_run_hears_heartbeats(two: tuple[Run, Run]) -> None:
    tail = await tail_of(two[0], f"{two[1].id}.{two[1].head}", idle=False)
    tail.heartbeat_s = 0.001

    async with asyncio.timeout(TIMEOUT_S), aclosing(tail.pieces()) as pieces:
        beats = [await anext(pieces) for _ in range(4)]

    assert beats == [b"retry: 1500\n", HEARTBEAT, HEARTBEAT, HEARTBEAT]


async def test_somebody_who_waits_for_an_event_hears_heartbeats(run: Run) -> None:
    tail = await tail_of(run, f"{run.id}.2", idle=False)
    tail.heartbeat_s = 0.001

    async with asyncio.timeout(TIMEOUT_S), aclosing(tail.pieces()) as pieces:
        beats = [await anext(pieces) for _ in range(3)]

    assert beats == [b"retry: 1500\n", HEARTBEAT, HEARTBEAT]


@pytest.mark.parametrize("under_way", [True, False])
async def test_a_closed_stream_ends_with_its_last_word(run: Run, *, under_way: bool) -> None:
    if not under_way:
        await run.end()
    tail = await tail_of(run, idle=False)
    async with asyncio.timeout(TIMEOUT_S), aclosing(tail.pieces()) as pieces:
        await anext(pieces)
        await anext(pieces)
        tail.close(tail.notice("stream.reconnect", {"after_ms": 5}))
        left = b"".join([piece async for piece in pieces])

    (farewell,) = [each for each in parsed(left) if each.event == "stream.reconnect"]
    assert farewell.body["session_id"] == session_of(run)
    assert tail.seq == f"{run.id}.{run.head}"


async def test_an_erased_session_ends_its_streams(two: tuple[Run, Run]) -> None:
    tail = await tail_of(two[0], idle=False)
    async with asyncio.timeout(TIMEOUT_S), aclosing(tail.pieces()) as pieces:
        while tail.seq != f"{two[1].id}.{two[1].head}":
            await anext(pieces)
        await two[0].store.write(sessions.delete(TENANT, session_of(two[0])))
        two[0].hub.ring(session_bell(session_of(two[0])))

        with pytest.raises(NotFoundError) as caught:
            await anext(pieces)

    assert caught.value.code == "session_not_found"


def erased(run_id: str) -> Work[None]:
    """Remove a run's log, as is done when it is kept no longer than its run."""
    yield Statement(delete(schema.events).where(schema.events.c.run_id == run_id))()


async def test_a_run_whose_log_is_gone_is_passed_over(two: tuple[Run, Run]) -> None:
    await two[0].store.write(erased(two[0].id))
    client = SessionClient()

    client.feed(await whole(await tail_of(two[0])))

    assert list(client.runs) == [two[1].id]
