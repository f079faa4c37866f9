"""Schedules in the store: each time comes once, and what became of the last one is kept."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from milepost.core.errors import ConflictError, NotFoundError, OverloadedError
from milepost.store import agents, keys, runs, schedules
from milepost.store.erasures import UserBeingErasedError
from milepost.store.keys import NewKey
from milepost.store.records import Page, RunFilter
from milepost.store.removals import remove_runs
from milepost.store.runs import RunRow
from milepost.store.schedules import Came, Occasion, ScheduleFilter, ScheduleRow
from milepost.store.store import Store
from tests.store.making import (
    NOW_MS,
    TENANT,
    a_finish,
    a_park,
    a_run,
    a_worker,
    an_id,
    being_erased,
    claims,
    queued,
)
from tests.store.making_schedules import HOUR_MS, a_schedule, a_wish, an_occasion

PAGE = Page(100, ascending=True)
QUEUE_MAX = 100


@pytest.fixture(autouse=True)
async def clerk(store: Store) -> agents.AgentRow:
    """The agent that the schedules name."""
    return await store.write(
        agents.create(TENANT, "clerk", "{}", agent_id=an_id("agt"), now_ms=NOW_MS)
    )


async def kept(store: Store, **changes: Any) -> ScheduleRow:
    return await store.write(schedules.create(a_schedule(**changes)))


async def found(store: Store, row: ScheduleRow) -> ScheduleRow:
    return await store.read(schedules.find(TENANT, row.id))


async def come(store: Store, occasion: Occasion, queue_max: int = QUEUE_MAX) -> Came | None:
    return await store.write(schedules.come(occasion, queue_max=queue_max))


async def came(store: Store, row: ScheduleRow, **changes: Any) -> Came:
    """Let it come as it stands now."""
    outcome = await come(store, an_occasion(await found(store, row), **changes))
    assert outcome is not None
    return outcome


async def made(store: Store) -> list[RunRow]:
    return await store.read(runs.search(TENANT, RunFilter(), PAGE))


async def last_of(store: Store, row: ScheduleRow) -> dict[str, Any]:
    last = (await found(store, row)).last
    assert last is not None
    told: dict[str, Any] = orjson.loads(last)
    return told


async def let_end(store: Store) -> None:
    for claim in await claims(store, await a_worker(store)):
        await store.append(a_finish(claim))


async def test_a_schedule_is_found_as_it_was_kept(store: Store) -> None:
    row = a_schedule(name="Report", user="ann", metadata='{"team":"a"}', late_max_ms=5)

    assert await store.write(schedules.create(row)) == row
    assert await found(store, row) == row
    with pytest.raises(NotFoundError):
        await store.read(schedules.find("globex", row.id))


async def test_no_schedule_is_kept_for_an_agent_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no agent 'nobody'"):
        await store.write(schedules.create(a_schedule(agent="nobody")))


async def test_no_schedule_is_kept_for_a_user_who_is_being_erased(store: Store) -> None:
    row = await kept(store)
    await store.write(being_erased(TENANT, "ann"))

    with pytest.raises(UserBeingErasedError):
        await kept(store, user="ann")
    with pytest.raises(UserBeingErasedError):
        await store.write(schedules.change(row, replace(row, user="ann"), now_ms=NOW_MS))
    assert (await found(store, row)).user is None


async def test_there_may_be_so_many_schedules_and_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 2)
    for _ in range(2):
        await kept(store)

    with pytest.raises(ConflictError, match="delete one first") as refused:
        await kept(store)

    assert refused.value.code == "too_many_schedules"


async def test_schedules_are_found_by_what_is_known_of_them(store: Store) -> None:
    await store.write(agents.create(TENANT, "poet", "{}", agent_id=an_id("agt"), now_ms=NOW_MS))
    first = await kept(store, user="ann", metadata='{"team":"a"}')
    second = await kept(store, agent="poet", enabled=0, next_ms=None)

    async def ids(**wanted: Any) -> list[str]:
        rows = await store.read(schedules.search(TENANT, ScheduleFilter(**wanted), PAGE))
        return [row.id for row in rows]

    assert await ids() == [first.id, second.id]
    assert await ids(user="ann") == await ids(metadata={"team": "a"}) == [first.id]
    assert await ids(enabled=True) == await ids(agent="clerk") == [first.id]
    assert await ids(enabled=False) == await ids(agent="poet") == [second.id]
    assert await store.read(schedules.search("globex", ScheduleFilter(), PAGE)) == []


async def test_a_change_makes_a_version_and_a_stale_one_makes_none(store: Store) -> None:
    row = await kept(store)

    changed = await store.write(schedules.change(row, replace(row, name="x"), now_ms=NOW_MS + 1))

    assert changed == replace(row, name="x", version=2, updated_ms=NOW_MS + 1)
    with pytest.raises(ConflictError) as refused:
        await store.write(schedules.change(row, replace(row, name="y"), now_ms=NOW_MS + 2))
    assert refused.value.code == "precondition_failed"


async def test_a_change_of_anything_else_leaves_the_time_where_it_is_by_now(store: Store) -> None:
    row = await kept(store)
    await came(store, row)
    stale = replace(row, name="x")

    changed = await store.write(schedules.change(row, stale, now_ms=NOW_MS + 1))

    assert changed.next_ms == NOW_MS + HOUR_MS, "or it would come twice"


async def test_one_whose_agent_is_gone_may_be_paused_but_not_given_another_run(
    store: Store, clerk: agents.AgentRow
) -> None:
    row = await kept(store)
    await store.write(agents.delete(TENANT, clerk.id, now_ms=NOW_MS))

    paused = await store.write(
        schedules.change(row, replace(row, enabled=0, next_ms=None), now_ms=NOW_MS)
    )

    assert (paused.enabled, paused.next_ms) == (0, None)
    with pytest.raises(NotFoundError):
        await store.write(
            schedules.change(paused, replace(paused, run=a_wish(input="x")), now_ms=NOW_MS)
        )


async def test_what_is_deleted_is_gone_unless_another_version_was_meant(store: Store) -> None:
    row = await kept(store)

    with pytest.raises(ConflictError):
        await store.write(schedules.delete(TENANT, row.id, expected_version=2))
    with pytest.raises(NotFoundError):
        await store.write(schedules.delete("globex", row.id))
    await store.write(schedules.delete(TENANT, row.id, expected_version=1))

    with pytest.raises(NotFoundError):
        await found(store, row)


async def test_those_that_come_are_found_in_the_order_of_their_times(store: Store) -> None:
    now = await store.read(schedules.now())
    later = await kept(store, next_ms=now + HOUR_MS)
    sooner = await kept(store, next_ms=now - 1)
    await kept(store, next_ms=now + 3 * HOUR_MS)
    await kept(store, next_ms=None, enabled=0)

    dues = await store.read(schedules.due(2 * HOUR_MS, 10))

    assert [(due.tenant, due.id) for due in dues] == [(TENANT, sooner.id), (TENANT, later.id)]
    assert [due.in_ms < 0 for due in dues] == [True, False]
    (first,) = await store.read(schedules.due(2 * HOUR_MS, 1))
    assert first.id == sooner.id


async def test_times_come_by_the_database_s_clock(store: Store) -> None:
    await kept(store, next_ms=NOW_MS)

    (due,) = await store.read(schedules.due(0, 10))

    assert due.now_ms <= await store.read(schedules.now()) <= due.now_ms + HOUR_MS
    assert due.in_ms == NOW_MS - due.now_ms


async def test_one_that_came_meanwhile_is_not_due_as_it_was_seen(store: Store) -> None:
    row = await kept(store)
    (due,) = await store.read(schedules.due(0, 10))
    assert await store.read(schedules.still_due(due)) == row
    assert await store.read(schedules.still_due(replace(due, tenant="globex"))) is None

    await came(store, row)

    assert await store.read(schedules.still_due(due)) is None


async def test_a_time_that_comes_makes_a_run_and_moves_on(store: Store) -> None:
    row = await kept(store)

    outcome = await came(store, row)

    (run,) = await made(store)
    assert outcome.result == "started"
    assert outcome.run is not None
    assert outcome.run.id == run.id
    after = await found(store, row)
    assert (after.next_ms, after.last_run_id) == (NOW_MS + HOUR_MS, run.id)
    assert (after.version, after.updated_ms) == (1, NOW_MS), "nobody has changed it"
    assert await last_of(store, row) == {
        "for_ms": NOW_MS, "at_ms": NOW_MS, "result": "started", "run_id": run.id,
        "code": None, "detail": None,
    }  # fmt: skip


async def test_a_time_comes_once_however_many_see_it(store: Store) -> None:
    row = await kept(store)
    sightings = [an_occasion(row), an_occasion(row)]

    outcomes = [await come(store, each) for each in sightings]

    assert [outcome is None for outcome in outcomes] == [False, True]
    assert len(await made(store)) == 1


async def test_one_that_was_changed_since_it_was_seen_does_not_come_as_it_was(
    store: Store,
) -> None:
    seen = await kept(store)
    await store.write(schedules.change(seen, replace(seen, run=a_wish(input="x")), now_ms=NOW_MS))

    assert await come(store, an_occasion(seen)) is None

    assert await made(store) == []
    assert (await found(store, seen)).next_ms == NOW_MS, "it comes when it is seen anew"


async def test_the_agent_is_the_one_of_that_name_when_it_comes(
    store: Store, clerk: agents.AgentRow
) -> None:
    row = await kept(store)
    await store.write(agents.revise(TENANT, clerk.id, "[]", now_ms=NOW_MS))

    await came(store, row)

    (run,) = await made(store)
    assert (run.agent_id, run.agent_version) == (clerk.id, 2)


async def test_while_the_run_before_is_not_over_a_time_is_skipped(store: Store) -> None:
    row = await kept(store)
    first = await came(store, row)
    (claim,) = await claims(store, await a_worker(store))
    await store.append(a_park(claim))

    assert (await came(store, row)).result == "skipped"

    assert len(await made(store)) == 1
    assert first.run is not None
    assert (await found(store, row)).last_run_id == first.run.id
    assert (await last_of(store, row))["run_id"] is None


async def test_once_the_run_before_is_over_the_next_time_makes_another(store: Store) -> None:
    row = await kept(store)
    await came(store, row)
    assert (await came(store, row)).result == "skipped"
    await let_end(store)

    assert (await came(store, row)).result == "started"

    assert len(await made(store)) == 2


async def test_a_run_before_that_was_erased_holds_nothing_up(store: Store) -> None:
    row = await kept(store, last_run_id=None)
    outcome = await came(store, row)
    assert outcome.run is not None
    await let_end(store)
    await store.write(remove_runs(TENANT, [outcome.run.id]))

    assert (await came(store, row)).result == "started"


async def test_where_runs_may_overlap_each_time_makes_one(store: Store) -> None:
    row = await kept(store, overlap="allow")

    assert [(await came(store, row)).result for _ in range(2)] == ["started", "started"]

    assert len(await made(store)) == 2


async def test_a_time_that_comes_too_late_makes_no_run(store: Store) -> None:
    row = await kept(store, late_max_ms=1_000)

    on_time = await came(store, row, now_ms=NOW_MS + 1_000)
    await let_end(store)
    late = await came(store, row, now_ms=NOW_MS + HOUR_MS + 1_001)

    assert (on_time.result, late.result) == ("started", "late")
    assert len(await made(store)) == 1
    assert (await found(store, row)).next_ms == NOW_MS + 2 * HOUR_MS


async def test_without_its_agent_it_is_refused_and_goes_on(
    store: Store, clerk: agents.AgentRow
) -> None:
    row = await kept(store)
    await store.write(agents.delete(TENANT, clerk.id, now_ms=NOW_MS))

    outcome = await came(store, row)

    assert (outcome.result, outcome.code) == ("refused", "agent_not_found")
    last = await last_of(store, row)
    assert (last["code"], last["detail"]) == ("agent_not_found", "there is no agent 'clerk'")
    assert (await found(store, row)).next_ms == NOW_MS + HOUR_MS


async def test_without_its_session_it_is_refused(store: Store) -> None:
    row = await kept(store, run=a_wish(session_id="ses_none"))

    outcome = await came(store, row)

    assert (outcome.result, outcome.code) == ("refused", "session_not_found")
    assert await made(store) == []


async def test_in_its_session_runs_stand_in_line(store: Store) -> None:
    before = await queued(store)
    row = await kept(store, overlap="allow", run=a_wish(session_id=before.session_id))

    assert (await came(store, row)).result == "started"

    assert [run.status for run in await made(store)] == ["queued", "blocked"]


async def test_for_a_user_who_is_being_erased_it_is_refused(store: Store) -> None:
    row = await kept(store, user="ann")
    await store.write(being_erased(TENANT, "ann"))

    outcome = await came(store, row)

    assert (outcome.result, outcome.code) == ("refused", "user_being_erased")
    assert await made(store) == []


@pytest.mark.parametrize("end", ["revoked", "expired", "gone"])
async def test_once_the_key_that_answers_for_it_is_valid_no_longer_it_is_refused(
    store: Store, end: str
) -> None:
    key_id = an_id("key")
    expires_ms = 1 if end == "expired" else None
    key = NewKey(key_id, TENANT, "ci", f"of {key_id}", "mp_…", "[]", None, NOW_MS, expires_ms)
    if end != "gone":
        await store.write(keys.create(key))
    if end == "revoked":
        await store.write(keys.revoke(TENANT, key_id, NOW_MS))
    row = await kept(store, made_by=key_id)

    outcome = await came(store, row)

    assert (outcome.result, outcome.code) == ("refused", "invalid_key")
    assert await made(store) == []


async def test_a_valid_key_s_schedule_comes(store: Store) -> None:
    key = NewKey(an_id("key"), TENANT, "ci", an_id("hash"), "mp_…", "[]", None, NOW_MS, None)
    await store.write(keys.create(key))

    assert (await came(store, await kept(store, made_by=key.id))).result == "started"


async def test_another_tenant_s_key_answers_for_nothing(store: Store) -> None:
    key = NewKey(an_id("key"), "globex", "ci", an_id("hash"), "mp_…", "[]", None, NOW_MS, None)
    await store.write(keys.create(key))

    assert (await came(store, await kept(store, made_by=key.id))).code == "invalid_key"


async def test_where_the_queue_has_no_room_its_time_has_not_come_yet(store: Store) -> None:
    row = await kept(store)
    await queued(store, a_run())

    with pytest.raises(OverloadedError):
        await come(store, an_occasion(row), queue_max=1)

    assert await found(store, row) == row
    assert (await come(store, an_occasion(row), queue_max=2)) is not None
