"""Batches in the store: each item becomes one run, so many at a time, whoever gives them a turn."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import pytest

from milepost.core.codec import usage_shown
from milepost.core.errors import ConflictError, NotFoundError, OverloadedError
from milepost.core.usage import Usage
from milepost.store import batch_turns, batches, runs, schema
from milepost.store.batch_turns import Standing, Turn
from milepost.store.batches import BatchFilter, BatchRow
from milepost.store.records import Change, Page, RunFilter
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_park,
    a_worker,
    claims,
)
from tests.store.making_batches import a_batch, an_offer, chunk, said

PAGE = Page(100, ascending=True)


async def kept(store: Store, total: int, **changes: Any) -> BatchRow:
    """Keep a batch of so many items."""
    return await store.write(batches.create(a_batch(total, **changes), [chunk(0, total)]))


async def turned(store: Store, row: BatchRow, most: int = 10) -> Turn:
    turn = await store.write(batch_turns.turn(TENANT, row.id, an_offer(most)))
    assert turn is not None
    return turn


async def run_of(store: Store, row: BatchRow, place: int) -> str:
    found = await store.read(batches.results(TENANT, row.id, PAGE))
    run_id = found[place].run_id
    assert run_id is not None
    return run_id


async def let_end(
    store: Store, status: str = "completed", *, most: int = 10, **changes: Any
) -> int:
    """Let a worker end what is queued; return how many runs that were."""
    taken = await claims(store, await a_worker(store), most)
    for claim in taken:
        await store.append(a_finish(claim, status, **changes))
    return len(taken)


async def standings(store: Store) -> list[Standing]:
    found, _ = await store.read(batch_turns.look(100))
    return found


async def test_a_batch_is_found_as_it_was_kept(store: Store) -> None:
    made = a_batch(2, user="ann", metadata='{"team":"a"}', deadline_after_ms=5_000, lane=-10)

    row = await store.write(batches.create(made, [chunk(0, 2)]))

    assert (row.status, row.total, row.started, row.pending, row.seq) == ("running", 2, 0, 2, 1)
    assert (row.user, row.metadata, row.lane) == ("ann", '{"team":"a"}', -10)
    assert row == await store.read(batches.find(TENANT, row.id))
    with pytest.raises(NotFoundError):
        await store.read(batches.find("globex", row.id))


async def test_items_may_come_in_several_pieces(store: Store) -> None:
    made = a_batch(5)

    await store.write(batches.create(made, [chunk(0, 3), chunk(3, 2)]))

    found = await store.read(batches.results(TENANT, made.id, PAGE))
    assert [(each.place, each.custom_id) for each in found] == [(n, f"c{n}") for n in range(5)]
    assert {(each.status, each.run_id) for each in found} == {("pending", None)}


async def test_a_turn_begins_as_many_runs_as_may_be_under_way_in_their_order(store: Store) -> None:
    row = await kept(store, 5)

    first, second = await turned(store, row), await turned(store, row)

    assert (first.begun, first.row.started, first.changed) == (2, 2, True)
    assert (second.begun, second.row.seq, second.changed) == (0, first.row.seq, False)
    made = await store.read(runs.search(TENANT, RunFilter(), PAGE))
    assert [orjson.loads(run.metadata)["i"] for run in made] == [said(0), said(1)]
    assert {run.status for run in made} == {"queued"}


async def test_an_item_has_the_one_run_whose_turn_came_first(store: Store) -> None:
    row = await kept(store, 4, concurrency=4)

    turns = await asyncio.gather(
        *(store.write(batch_turns.turn(TENANT, row.id, an_offer(2))) for _ in range(4))
    )

    found = await store.read(batches.results(TENANT, row.id, PAGE))
    made = await store.read(runs.search(TENANT, RunFilter(), PAGE))
    assert sum(turn.begun for turn in turns if turn) == 4
    assert sorted(str(each.run_id) for each in found) == sorted(run.id for run in made)
    assert len(made) == 4


async def test_a_turn_that_breaks_off_leaves_nothing(store: Store) -> None:
    row = await kept(store, 4)

    def broken() -> Work[None]:
        yield from batch_turns.turn(TENANT, row.id, an_offer())
        raise ConflictError("the power is gone")

    with pytest.raises(ConflictError):
        await store.write(broken())

    assert await store.read(runs.search(TENANT, RunFilter(), PAGE)) == []
    assert (await store.read(batches.find(TENANT, row.id))).started == 0
    assert (await turned(store, row)).begun == 2


async def test_what_ends_makes_room_for_the_next(store: Store) -> None:
    row = await kept(store, 5)
    await turned(store, row)
    await let_end(store, "failed", most=1)

    turn = await turned(store, row)

    assert (turn.begun, turn.row.counted.failed, turn.row.counted.queued) == (1, 1, 2)


async def test_a_batch_is_completed_with_its_last_item_and_has_no_turn_after_that(
    store: Store,
) -> None:
    row = await kept(store, 3, concurrency=10)
    await turned(store, row)
    await let_end(store)

    last = await turned(store, row)
    again = await store.write(batch_turns.turn(TENANT, row.id, an_offer()))

    assert (last.row.status, last.row.ended_ms, last.row.counted.done) == ("completed", NOW_MS, 3)
    assert again is None
    assert await standings(store) == []


async def test_no_run_begins_before_the_end_of_the_one_whose_place_it_takes(store: Store) -> None:
    row = await kept(store, 2, concurrency=1)
    await turned(store, row)
    seen: list[str] = []

    def clock() -> int:
        seen.append("clock")
        return NOW_MS

    def watched() -> Work[Turn | None]:
        turn = batch_turns.turn(TENANT, row.id, replace(an_offer(), clock=clock))
        answer = None
        while True:
            try:
                asked = turn.send(answer)
            except StopIteration as finished:
                return finished.value  # type: ignore[no-any-return]  # a generator's own
            seen.append("statement")
            answer = yield asked

    await let_end(store)
    await store.write(watched())

    assert seen[:3] == ["statement", "statement", "clock"]


async def test_a_run_that_waits_for_a_person_holds_no_other_up(store: Store) -> None:
    row = await kept(store, 5)
    await turned(store, row)
    for claim in await claims(store, await a_worker(store)):
        await store.append(a_park(claim))

    turn = await turned(store, row)

    assert (turn.begun, turn.row.counted.waiting, turn.row.counted.queued) == (2, 2, 2)


async def test_so_many_runs_of_a_batch_may_wait_and_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_turns, "WAITING_MAX", 3)
    row = await kept(store, 9)
    begun = 0
    for _ in range(4):
        begun += (await turned(store, row)).begun
        for claim in await claims(store, await a_worker(store)):
            await store.append(a_park(claim))

    assert begun == 3


async def test_usage_is_summed_over_what_has_ended(store: Store) -> None:
    row = await kept(store, 2)
    await turned(store, row)
    used = orjson.dumps({"usage": usage_shown(Usage(input_tokens=3, cost_nanos=7))}).decode()
    await let_end(store, change=Change("completed", outcome=used, ended_ms=NOW_MS))

    turn = await turned(store, row)

    assert turn.row.used == Usage(input_tokens=6, cost_nanos=14)


async def test_results_come_in_the_order_of_the_items_whatever_ended_first(store: Store) -> None:
    row = await kept(store, 4, concurrency=4)
    await turned(store, row)
    taken = {claim.run_id: claim for claim in await claims(store, await a_worker(store))}
    await store.append(a_finish(taken[await run_of(store, row, 3)], "completed"))
    await store.append(a_finish(taken[await run_of(store, row, 2)], "failed"))

    everything = await store.read(batches.results(TENANT, row.id, PAGE))
    done = await store.read(batches.results(TENANT, row.id, PAGE, done=True))
    second = await store.read(batches.results(TENANT, row.id, replace(PAGE, limit=1, after="0")))

    assert [each.status for each in everything] == ["running", "running", "failed", "completed"]
    assert [(each.place, each.status) for each in done] == [(2, "failed"), (3, "completed")]
    assert [each.place for each in second] == [1, 2]
    assert await store.read(batches.results("globex", row.id, PAGE)) == []


async def test_an_item_hands_its_input_over_to_its_run(store: Store) -> None:
    row = await kept(store, 3)
    await turned(store, row)

    def inputs() -> Work[list[str | None]]:
        found = yield batch_turns._NEXT(tenant=TENANT, batch_id=row.id, after=0, through=3)
        return [columns[1] for columns in found]

    assert await store.read(inputs()) == [None, None, said(2)]


async def test_a_cancelled_batch_begins_nothing_more_and_ends_with_what_was_under_way(
    store: Store,
) -> None:
    row = await kept(store, 5)
    turn = await turned(store, row)

    cancelled = await store.write(
        batches.cancel(TENANT, row.id, by="ann", reason="enough", now_ms=NOW_MS + 1)
    )
    stopping = await turned(store, row)
    await let_end(store, "cancelled")
    ended = await turned(store, row)

    assert (cancelled.status, cancelled.counted.cancelled) == ("cancelling", 3)
    assert (cancelled.seq, cancelled.pending) == (turn.row.seq + 1, 0)
    assert (stopping.begun, len(stopping.untold)) == (0, 2)
    assert (ended.row.status, ended.row.counted.cancelled) == ("cancelled", 5)
    assert (ended.row.cancelled_by, ended.row.cancel_reason) == ("ann", "enough")
    found = await store.read(batches.results(TENANT, row.id, PAGE, done=True))
    assert [each.status for each in found] == ["cancelled"] * 5


async def test_a_batch_that_ends_and_one_that_is_cancelled_leave_others_as_they_are(
    store: Store,
) -> None:
    ended, cancelled, other = [await kept(store, 2, concurrency=1) for _ in range(3)]
    await turned(store, ended)
    await let_end(store)
    await turned(store, other)
    before = await store.read(batches.find(TENANT, other.id))

    await turned(store, ended)
    await store.write(batches.cancel(TENANT, cancelled.id, by="ann", reason=None, now_ms=NOW_MS))

    assert await store.read(batches.find(TENANT, other.id)) == before
    found = await store.read(batches.results(TENANT, other.id, PAGE))
    assert [each.status for each in found] == ["queued", "pending"]
    assert not (await turned(store, other)).changed


async def test_cancelling_twice_changes_nothing_and_neither_does_cancelling_what_is_over(
    store: Store,
) -> None:
    row = await kept(store, 1)
    await turned(store, row)
    once = await store.write(batches.cancel(TENANT, row.id, by="a", reason=None, now_ms=1))

    twice = await store.write(batches.cancel(TENANT, row.id, by="b", reason=None, now_ms=2))
    await let_end(store)
    over = (await turned(store, row)).row
    late = await store.write(batches.cancel(TENANT, row.id, by="c", reason=None, now_ms=3))

    assert (twice, late) == (once, over)
    assert over.status == "cancelled"


async def test_a_run_that_was_told_to_stop_is_not_told_again(store: Store) -> None:
    row = await kept(store, 2)
    await turned(store, row)
    await store.write(batches.cancel(TENANT, row.id, by="a", reason=None, now_ms=1))
    first, second = (await turned(store, row)).untold
    await store.write(runs.deliver(TENANT, first, runs.Letter("cancel", "{}", "cancel", 1, 10)))

    assert (await turned(store, row)).untold == (second,)


async def test_only_what_has_changed_needs_a_turn(store: Store) -> None:
    row = await kept(store, 3)
    [new] = await standings(store)
    await turned(store, row)
    [full] = await standings(store)
    await let_end(store, most=1)
    [stale] = await standings(store)

    assert new.needs_a_turn(room=1)
    assert not new.needs_a_turn(room=0)
    assert not full.needs_a_turn(room=1)
    assert stale.needs_a_turn(room=0)


async def test_a_look_tells_how_long_the_queue_is_up_to_a_limit(store: Store) -> None:
    row = await kept(store, 3, concurrency=3)
    await turned(store, row)

    _, whole = await store.read(batch_turns.look(100))
    _, bounded = await store.read(batch_turns.look(2))

    assert (whole, bounded) == (3, 2)


async def test_an_item_whose_run_was_erased_is_over(store: Store) -> None:
    row = await kept(store, 1)
    await turned(store, row)
    run_id = await run_of(store, row, 0)

    def erase() -> Work[None]:
        yield Statement(schema.runs.delete().where(schema.runs.c.id == run_id))()

    await store.write(erase())
    turn = await turned(store, row)

    assert (turn.row.status, turn.row.counted.failed) == ("completed", 1)


async def test_a_batch_is_erased_with_its_items_and_without_its_runs(store: Store) -> None:
    row, other = await kept(store, 1), await kept(store, 1)
    await turned(store, row)
    with pytest.raises(ConflictError, match="wait for its end"):
        await store.write(batches.delete(TENANT, row.id))
    await let_end(store)
    await turned(store, row)

    await store.write(batches.delete(TENANT, row.id))

    assert await store.read(batches.results(TENANT, row.id, PAGE)) == []
    assert len(await store.read(runs.search(TENANT, RunFilter(), PAGE))) == 1
    assert len(await store.read(batches.results(TENANT, other.id, PAGE))) == 1
    with pytest.raises(NotFoundError):
        await store.read(batches.find(TENANT, row.id))


async def test_a_tenant_has_only_so_many_batches_that_are_not_over(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "OPEN_MAX", 1)
    over = await kept(store, 1)
    await turned(store, over)
    await let_end(store)
    await turned(store, over)
    await kept(store, 1)

    with pytest.raises(OverloadedError, match="wait for one"):
        await kept(store, 1)

    assert (await kept(store, 1, tenant="globex")).status == "running"


async def test_batches_are_searched_by_what_they_are(store: Store) -> None:
    row = await kept(store, 1, user="ann", metadata='{"team":"a"}')
    await kept(store, 1, agent="other", tenant="globex")
    await kept(store, 1)

    async def found(**wanted: Any) -> Counter[str]:
        rows = await store.read(batches.search(TENANT, BatchFilter(**wanted), Page(10)))
        return Counter(each.id for each in rows)

    only = Counter([row.id])
    assert await found(user="ann") == await found(metadata={"team": "a"}) == only
    assert len(await found()) == len(await found(agent="clerk", status="running")) == 2
    assert len(await found(agent="agt_1", created_after_ms=NOW_MS - 1)) == 2
    assert await found(status="completed") == await found(created_before_ms=NOW_MS) == Counter()
    assert await found(agent="other") == Counter()
