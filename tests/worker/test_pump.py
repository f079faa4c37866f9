"""The pump: what batches get of the queue, and what wakes it."""

import asyncio
from typing import Any

import orjson
import pytest
from sqlalchemy import update

from milepost.core.codec import decode, encode
from milepost.core.errors import OverloadedError
from milepost.core.events import InputMessage, RunQueued, RunWaiting
from milepost.live.frames import Frame
from milepost.live.hub import BATCHES_BELL, QUEUE_BELL, batch_bell
from milepost.store import batch_turns, batches, queue, runs, schema
from milepost.store.batch_turns import Item
from milepost.store.batches import BatchRow
from milepost.store.records import Change, Claim, Entry, Page, RunFilter
from milepost.store.runs import RunRow
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from milepost.worker import pump as pump_module
from milepost.worker.pump import BEGIN_MAX, Pump, run_of
from tests.runtime.workshop import TIMEOUT_S, Workshop
from tests.store.conftest import serving
from tests.store.making import TENANT, a_finish, a_run, a_worker, an_append, claims
from tests.store.making_batches import a_batch, chunk
from tests.worker.running import running


@pytest.fixture
def pump(shop: Workshop) -> Pump:
    return Pump(shop.ports, queue_max=1_000)


async def kept(shop: Workshop, total: int, **changes: Any) -> BatchRow:
    new = a_batch(total, **changes)
    return await shop.store.write(batches.create(new, [chunk(0, total)]))


async def made(shop: Workshop) -> list[RunRow]:
    page = Page(1_000, ascending=True)
    return await shop.store.read(runs.search(TENANT, RunFilter(), page))


async def row_of(shop: Workshop, row: BatchRow) -> BatchRow:
    return await shop.store.read(batches.find(row.tenant, row.id))


async def park(shop: Workshop, claim: Claim) -> None:
    """Let a run wait for a person."""
    parked = Entry("run.waiting", 1, encode(RunWaiting("approval", ())).decode())
    change = Change("waiting", waiting_for="{}")
    await shop.store.append(an_append(claim, parked, change=change))


async def test_items_become_runs_and_who_waits_is_told(shop: Workshop, pump: Pump) -> None:
    row = await kept(shop, 3)

    with shop.hub.bell(QUEUE_BELL) as queued, shop.hub.bell(batch_bell(row.id)) as changed:
        assert await pump.tend()
        assert queued.is_set()
        assert changed.is_set()

    assert [run.status for run in await made(shop)] == ["queued", "queued"]


async def test_where_nothing_changes_nobody_is_told(shop: Workshop, pump: Pump) -> None:
    row = await kept(shop, 3)
    await pump.tend()

    with shop.hub.bell(QUEUE_BELL) as queued, shop.hub.bell(batch_bell(row.id)) as changed:
        assert await pump.tend()
        assert not queued.is_set()
        assert not changed.is_set()


async def test_a_batch_begins_however_many_older_ones_only_wait_for_people(
    shop: Workshop, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_turns, "LOOK_MAX", 2)
    older = [await kept(shop, 1, concurrency=1) for _ in range(4)]
    await pump.tend()
    for claim in await claims(shop.store, await a_worker(shop.store)):
        await park(shop, claim)
    await pump.tend()
    late = await kept(shop, 1, concurrency=1)

    assert await pump.tend()

    assert [(await row_of(shop, row)).counted.waiting for row in older] == [1, 1, 1, 1]
    assert (await row_of(shop, late)).started == 1


async def test_without_an_open_batch_there_is_nothing_to_tend(shop: Workshop, pump: Pump) -> None:
    assert not await pump.tend()


async def test_more_runs_than_a_transaction_holds_begin_together(
    shop: Workshop, pump: Pump
) -> None:
    total = BEGIN_MAX * 2 + 5
    await kept(shop, total, concurrency=total)

    await pump.tend()

    assert len(await made(shop)) == total


async def test_batches_leave_room_in_the_queue_for_single_runs(shop: Workshop) -> None:
    async with serving(Store(shop.store.engine, queue_max=8)) as store:
        pump = Pump(shop.ports, queue_max=8)
        for _ in range(3):
            await kept(shop, 50, concurrency=50)

        await pump.tend()

        assert len(await made(shop)) == 4
        for _ in range(4):
            await store.create(a_run())
        with pytest.raises(OverloadedError):
            await store.create(a_run())


async def test_a_batch_that_begins_in_many_transactions_takes_no_more_of_the_queue_than_its_share(
    shop: Workshop,
) -> None:
    share = BEGIN_MAX + 5
    await kept(shop, 3 * BEGIN_MAX, concurrency=3 * BEGIN_MAX)

    await Pump(shop.ports, queue_max=2 * share).tend()

    assert len(await made(shop)) == share


async def test_a_batch_goes_on_even_where_the_queue_is_short(shop: Workshop) -> None:
    pump = Pump(shop.ports, queue_max=1)
    row = await kept(shop, 2, concurrency=2)

    for _ in range(2):
        await pump.tend()
        for claim in await claims(shop.store, await a_worker(shop.store)):
            await shop.store.append(a_finish(claim))
    await pump.tend()

    assert (await row_of(shop, row)).status == "completed"


async def test_single_runs_are_claimed_before_those_of_a_batch(shop: Workshop, pump: Pump) -> None:
    await kept(shop, 4, concurrency=4, lane=-10)
    await pump.tend()
    single = await shop.queue()

    [claim] = await claims(shop.store, await a_worker(shop.store), 1)

    assert claim.run_id == single.id


async def test_runs_of_a_batch_are_claimed_however_many_single_ones_there_are(
    shop: Workshop, pump: Pump
) -> None:
    await kept(shop, 1, lane=-10)
    await pump.tend()
    [batched] = await made(shop)
    await shop.queue()
    worker = await a_worker(shop.store)

    [claim] = await shop.store.write(queue.claim(worker, 1, "append", 1, fair=True))

    assert claim.run_id == batched.id


async def test_pumps_of_many_processes_begin_each_item_once(shop: Workshop) -> None:
    row = await kept(shop, 30, concurrency=7)
    pumps = [Pump(shop.ports, queue_max=1_000) for _ in range(4)]
    most = 0

    while (await row_of(shop, row)).is_open:
        await asyncio.gather(*(pump.tend() for pump in pumps))
        under_way = [run for run in await made(shop) if run.status in {"queued", "running"}]
        most = max(most, len(under_way))
        for claim in (await claims(shop.store, await a_worker(shop.store)))[:3]:
            await shop.store.append(a_finish(claim))
        await shop.store.write(queue.dismiss_others("nobody"))
        await shop.store.write(queue.sweep())

    assert most == 7
    assert len(await made(shop)) == 30


async def test_a_batch_that_cannot_have_its_turn_holds_no_other_up(
    shop: Workshop, pump: Pump
) -> None:
    broken = await kept(shop, 1, queued_event="nonsense")
    sound = [await kept(shop, 1) for _ in range(3)]

    assert await pump.tend()

    assert [(await row_of(shop, row)).started for row in (broken, *sound)] == [0, 1, 1, 1]


async def test_the_pump_outlives_what_goes_wrong(shop: Workshop) -> None:
    await kept(shop, 1, queued_event="nonsense")
    pump = Pump(shop.ports, queue_max=1_000, poll_s=0.01)
    async with running(pump):
        row = await kept(shop, 1)
        with shop.hub.bell(batch_bell(row.id)) as changed:
            await changed.wait()

    assert (await row_of(shop, row)).started == 1


async def test_the_end_of_a_run_makes_room_at_once(shop: Workshop) -> None:
    row = await kept(shop, 2, concurrency=1)
    # Found by the bell, or not within this test.
    async with running(Pump(shop.ports, queue_max=1_000, poll_s=1_000)):
        with shop.hub.bell(batch_bell(row.id)) as changed:
            shop.hub.ring(BATCHES_BELL)
            await changed.wait()
            changed.clear()
            [claim] = await claims(shop.store, await a_worker(shop.store))
            await shop.store.append(a_finish(claim))
            shop.hub.publish(claim.run_id, [Frame(claim.run_id, 3, "run.completed", 1, b"{}")])
            await changed.wait()

    assert (await row_of(shop, row)).started == 2


async def test_what_no_bell_told_is_found_all_the_same(shop: Workshop) -> None:
    row = await kept(shop, 2, concurrency=1)
    async with running(Pump(shop.ports, queue_max=1_000, poll_s=0.01)):
        with shop.hub.bell(batch_bell(row.id)) as changed:
            while not (taken := await claims(shop.store, await a_worker(shop.store))):
                await changed.wait()
            changed.clear()
            await shop.store.append(a_finish(taken[0]))
            await changed.wait()

    assert (await row_of(shop, row)).counted.completed == 1


async def test_runs_of_a_cancelled_batch_are_ended_or_told_to_stop(
    shop: Workshop, pump: Pump
) -> None:
    row = await kept(shop, 3, concurrency=3)
    await pump.tend()
    worker = await a_worker(shop.store)
    waiting, working = await claims(shop.store, worker, 2)
    await park(shop, waiting)
    await shop.store.write(batches.cancel(TENANT, row.id, by="ann", reason="enough", now_ms=1))

    for _ in range(2):  # A second turn tells nobody again.
        await pump.tend()

    letters = await shop.inbox(working.run_id)
    by_id = {run.id: run.status for run in await made(shop)}
    assert sorted(by_id.values()) == ["cancelled", "cancelled", "running"]
    assert by_id[working.run_id] == "running"
    assert [orjson.loads(letter.data) for letter in letters] == [{"by": "ann", "reason": "enough"}]


async def test_a_run_that_cannot_be_stopped_hides_none_of_its_batch(
    shop: Workshop, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump_module, "STOP_MAX", 1)
    row = await kept(shop, 2, concurrency=1)
    await pump.tend()
    (stuck,) = await claims(shop.store, await a_worker(shop.store))
    await park(shop, stuck)
    await shop.store.write(unreadable(stuck.run_id))
    await pump.tend()
    await shop.store.write(batches.cancel(TENANT, row.id, by="ann", reason=None, now_ms=1))

    async with asyncio.timeout(TIMEOUT_S):
        while "cancelled" not in {run.status for run in await made(shop)}:
            await pump.tend()

    assert (await shop.row(stuck.run_id)).status == "waiting"


def unreadable(run_id: str) -> Work[None]:
    """Spoil the run's log: it can be neither driven nor ended."""
    log = schema.events.c
    yield Statement(update(schema.events).where(log.run_id == run_id).values(data="not JSON"))()


async def test_a_run_has_what_the_batch_and_the_item_say(shop: Workshop) -> None:
    said = (InputMessage("user", "hello"),)
    event = RunQueued("clerk", "agt_1", 1, "", (), user="ann")
    row = await kept(
        shop,
        1,
        user="ann",
        lane=-3,
        deadline_after_ms=5_000,
        metadata='{"team":"a"}',
        scopes='["runs:write"]',
        trace_parent="00-1-2-01",
        queued_event=encode(event).decode(),
    )
    item = Item(0, orjson.dumps(said).decode(), None)

    run = run_of(row, item, ("run_1", "ses_1"), 1_000)
    labelled = run_of(row, Item(0, item.input, '{"row":"1"}'), ("run_2", "ses_2"), 1_000)

    assert decode(run.queued.type, run.queued.data) == RunQueued(
        "clerk", "agt_1", 1, "ses_1", said, user="ann", deadline_ms=6_000
    )
    assert (run.user, run.lane, run.deadline_ms, run.session_is_new) == ("ann", -3, 6_000, True)
    assert (run.metadata, labelled.metadata) == ('{"team":"a"}', '{"row":"1"}')
    assert (run.scopes, run.trace_parent) == ('["runs:write"]', "00-1-2-01")
