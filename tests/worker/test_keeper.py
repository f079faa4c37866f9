"""What has been kept for long enough goes, with all that hangs on it, and nothing else does."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.core.errors import ConflictError
from milepost.core.memories import Owner
from milepost.core.window import Place
from milepost.store import (
    batches,
    memories,
    partitions,
    retention,
    schema,
    session_forks,
    sessions,
)
from milepost.store.blobs import DirectoryBlobs
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.new_runs import Created
from milepost.store.records import Change
from milepost.store.removals import Removed, remove_runs
from milepost.store.retention import RetentionRow, Rules
from milepost.store.sessions import NewSession, SessionEdit
from milepost.store.store import Store
from milepost.store.work import Work
from milepost.worker import keeper
from tests.store.making import TENANT, a_finish, an_append, behind, held
from tests.store.making_batches import a_batch, chunk
from tests.store.making_memories import a_fact, remembered
from tests.store.test_artifacts import SHA256, an_artifact, files
from tests.store.test_traces import a_span
from tests.worker.keeping import (
    DAY_MS,
    NOW_MS,
    Household,
    a_child_of,
    a_run_of,
    ended,
    household,
    told,
    waits,
)

OLD_MS = NOW_MS - 40 * DAY_MS
NEW_MS = NOW_MS - 2 * DAY_MS
_PARTS = ("events_ms", "traces_ms", "artifacts_ms", "memories_ms")
MONDAY_MS = 4_099_075_200_000  # behind all partitions that are made ahead, whenever this is run


@pytest.fixture
def house(store: Store, tmp_path: Path) -> Household:
    """A house without rules, on each database."""
    return household(store, tmp_path)


async def test_without_rules_everything_is_kept(house: Household) -> None:
    claim = await ended(house.store, OLD_MS)

    assert not +(await house.keeper.keep())

    assert await house.left(schema.runs, id=claim.run_id) == 1


async def test_a_run_goes_with_all_that_belongs_to_it_when_its_time_is_over(
    house: Household,
) -> None:
    old, new = await ended(house.store, OLD_MS), await ended(house.store, NEW_MS)
    await house.rule(runs_ms=30 * DAY_MS)

    gone = await house.keeper.keep()
    await house.eraser.tidy()

    assert gone["runs"] == 1
    assert await house.left(schema.runs, id=old.run_id) == 0
    assert await house.left(schema.events, run_id=old.run_id) == 0
    assert await house.left(schema.sessions, id=old.session_id) == 0
    assert await house.left(schema.runs, id=new.run_id) == 1
    assert await house.left(schema.events, run_id=new.run_id) == 3
    assert await house.left(schema.sessions, id=new.session_id) == 1


async def test_what_is_not_over_is_never_touched(house: Household) -> None:
    waiting = await waits(house.store, OLD_MS)
    parent = a_run_of(OLD_MS)
    await ended(house.store, OLD_MS, parent)
    child = a_child_of(parent)
    await waits(house.store, OLD_MS, child)
    late = a_run_of(OLD_MS)
    await ended(house.store, NEW_MS, late)
    await house.rule(runs_ms=30 * DAY_MS)

    assert not +(await house.keeper.keep())

    for run_id in (waiting.run_id, parent.id, child.id, late.id):
        assert await house.left(schema.runs, id=run_id) == 1
        assert await house.left(schema.events, run_id=run_id) >= 2


async def test_a_run_takes_along_those_that_it_started(house: Household) -> None:
    parent = a_run_of(OLD_MS)
    await ended(house.store, OLD_MS, parent)
    child = a_child_of(parent)
    await ended(house.store, NEW_MS, child)
    await house.store.write(told([child.id]))
    await house.rule(runs_ms=30 * DAY_MS)

    await house.keeper.keep()
    await house.eraser.tidy()

    assert await house.left(schema.runs) == 0
    assert await house.left(schema.sessions) == 0


async def test_a_child_that_nobody_told_of_keeps_its_parent(house: Household) -> None:
    parent = a_run_of(OLD_MS)
    await ended(house.store, OLD_MS, parent)
    await ended(house.store, OLD_MS, a_child_of(parent))
    await house.rule(runs_ms=30 * DAY_MS)

    await house.keeper.keep()

    assert await house.left(schema.runs) == 2


async def test_a_session_lasts_as_long_as_its_runs(house: Household) -> None:
    first = a_run_of(OLD_MS)
    await ended(house.store, OLD_MS, first)
    await ended(house.store, NEW_MS, behind(first, id=a_run_of(NEW_MS).id))
    await house.rule(runs_ms=30 * DAY_MS)

    await house.keeper.keep()
    await house.eraser.tidy()

    assert await house.left(schema.runs, id=first.id) == 0
    assert await house.left(schema.sessions, id=first.session_id) == 1


async def test_a_session_that_had_no_runs_yet_stays_when_others_go(house: Household) -> None:
    await ended(house.store, OLD_MS)
    fresh = NewSession("ses_9", TENANT, None, None, "{}", OLD_MS)
    await house.store.write(sessions.create(fresh))
    await house.rule(runs_ms=30 * DAY_MS)

    await house.keeper.keep()
    await house.eraser.tidy()

    assert await house.left(schema.runs) == 0
    assert await house.left(schema.sessions) == await house.left(schema.sessions, id="ses_9") == 1


@pytest.mark.parametrize("fork_ms", [OLD_MS, NEW_MS])
async def test_a_session_lasts_as_long_as_what_was_forked_off_it(
    house: Household, fork_ms: int
) -> None:
    first = a_run_of(OLD_MS)
    await ended(house.store, OLD_MS, first)
    fork = NewSession("ses_fork", TENANT, None, None, "{}", OLD_MS)
    await house.store.write(session_forks.fork(fork, first.session_id, Place(1, 0)))
    goes_on = a_run_of(fork_ms, session_id=fork.id, session_is_new=False)
    await ended(house.store, fork_ms, goes_on)
    await house.rule(runs_ms=30 * DAY_MS)

    await house.keeper.keep()
    for _ in range(2):
        await house.eraser.tidy()
    kept = await house.left(schema.sessions, id=first.session_id)
    await house.rule(runs_ms=DAY_MS)
    await house.keeper.keep()
    for _ in range(2):
        await house.eraser.tidy()

    assert kept == (fork_ms == NEW_MS)
    assert await house.left(schema.runs) == 0
    assert await house.left(schema.sessions) == 0


@pytest.mark.parametrize("is_fork", [False, True])
async def test_a_session_that_had_no_runs_yet_stays_when_its_fork_goes(
    house: Household, is_fork: bool
) -> None:
    origin = NewSession("ses_9", TENANT, None, None, "{}", NOW_MS)
    if is_fork:
        first = await ended(house.store, NEW_MS)
        await house.store.write(session_forks.fork(origin, first.session_id, Place(1, 0)))
    else:
        await house.store.write(sessions.create(origin))
    fork = NewSession("ses_fork", TENANT, None, None, "{}", NOW_MS)
    await house.store.write(session_forks.fork(fork, origin.id, None))

    await house.store.write(sessions.delete(TENANT, fork.id))
    await house.eraser.tidy()

    assert await house.left(schema.sessions, id=fork.id) == 0
    assert await house.left(schema.sessions, id=origin.id) == 1


async def test_each_page_goes_on_behind_the_one_before(house: Household) -> None:
    before_ms = NOW_MS - 30 * DAY_MS
    first, second = await ended(house.store, OLD_MS), await ended(house.store, OLD_MS + 1)
    for batch_id in ("bat_1", "bat_2"):
        await house.store.write(batches.create(a_batch(id=batch_id, total=1), [chunk(0, 1)]))
        await house.change(schema.batches, batch_id, status="completed", ended_ms=OLD_MS)
    for tenant in (TENANT, "globex"):
        await house.store.write(retention.replace(RetentionRow(tenant), Rules(), NOW_MS))

    due = await house.store.read(retention.due_of_all(first.run_id, before_ms))
    runs = await house.store.write(retention.remove_due(TENANT, first.run_id, before_ms))
    gone = await house.store.write(retention.remove_batches(TENANT, "bat_1", before_ms))
    ruled = await house.store.read(retention.all_after(TENANT))

    assert due == [(second.run_id, TENANT)]
    assert (runs, gone) == ((1, None), (1, None))
    assert await house.left(schema.runs, id=first.run_id) == 1
    assert await house.left(schema.batches, id="bat_1") == 1
    assert [row.tenant for row in ruled] == ["globex"]


async def test_sessions_whose_time_is_over_are_looked_at_one_behind_the_other(
    house: Household,
) -> None:
    for session_id, ttl_ms in (
        ("ses_1", 2),
        ("ses_2", 2),
        ("ses_3", 3),
        ("ses_4", 1),
        ("ses_5", 4),
    ):
        brief = NewSession(session_id, TENANT, None, None, "{}", NOW_MS, ttl_ms=ttl_ms)
        await house.store.write(sessions.create(brief))

    pages = [await house.store.read(retention.expired(NOW_MS + 3))]
    pages += [await house.store.read(retention.expired(NOW_MS + 3, each)) for each in pages[0]]

    ids = [[each.session_id for each in page] for page in pages]
    assert ids[0] == ["ses_4", "ses_1", "ses_2", "ses_3"]
    assert ids[1:] == [ids[0][n:] for n in range(1, 5)]


async def test_two_keepers_and_a_run_that_ends_meanwhile_do_each_other_no_harm(
    house: Household, tmp_path: Path
) -> None:
    for n in range(120):
        await ended(house.store, OLD_MS + n)
    going = [await held(house.store, a_run_of(OLD_MS + n)) for n in range(20)]
    await house.rule(runs_ms=30 * DAY_MS)
    other = household(house.store, tmp_path)

    async def end() -> None:
        for claim in going:
            change = Change("completed", outcome="{}", ended_ms=NEW_MS)
            await house.store.append(a_finish(claim, change=change))

    first, second, _ = await asyncio.gather(house.keeper.keep(), other.keeper.keep(), end())

    assert first["runs"] + second["runs"] == 120
    assert await house.left(schema.runs) == 20
    assert await house.left(schema.runs, status="completed") == 20
    for claim in going:
        assert await house.left(schema.events, run_id=claim.run_id) == 3


async def test_a_log_may_go_before_its_run(house: Household) -> None:
    old, waiting = await ended(house.store, OLD_MS), await waits(house.store, OLD_MS + 1)
    new = await ended(house.store, NEW_MS)
    await house.rule(events_ms=30 * DAY_MS)

    gone = await house.keeper.keep()

    assert gone["events"] == 3
    assert await house.left(schema.events, run_id=old.run_id) == 0
    assert await house.left(schema.runs, id=old.run_id) == 1
    assert await house.left(schema.events, run_id=waiting.run_id) == 3
    assert await house.left(schema.events, run_id=new.run_id) == 3


async def test_a_run_that_goes_on_hides_no_logs_behind_it_however_many(
    house: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "PAGES_MAX", 2)
    monkeypatch.setattr(retention, "LOOKS_MAX", 2)
    waiting = await waits(house.store, OLD_MS)
    for after_ms in range(1, 6):
        await ended(house.store, OLD_MS + after_ms)
    await house.rule(events_ms=30 * DAY_MS)

    gone = [(await house.keeper.keep())["events"] for _ in range(3)]

    assert gone == [9, 6, 0]
    assert await house.left(schema.events) == 3
    late = await ended(house.store, OLD_MS + 3)
    assert (await house.keeper.keep())["events"] == 3
    assert await house.left(schema.events, run_id=late.run_id) == 0
    assert await house.left(schema.events, run_id=waiting.run_id) == 3


async def test_a_log_that_went_on_longer_goes_later(house: Household) -> None:
    claim = await held(house.store, a_run_of(OLD_MS))
    await ended(house.store, OLD_MS + 1)
    await house.rule(events_ms=30 * DAY_MS)
    await house.keeper.keep()
    change = Change("completed", outcome="{}", ended_ms=OLD_MS + 2)
    await house.store.append(a_finish(claim, change=change))

    gone = await house.keeper.keep()

    assert gone["events"] == 3
    assert await house.left(schema.events) == 0


async def test_a_sessions_own_time_holds_for_its_runs(house: Household) -> None:
    first = a_run_of(OLD_MS)
    await ended(house.store, OLD_MS, first)
    await ended(house.store, NEW_MS, behind(first, id=a_run_of(NEW_MS).id))
    other = await ended(house.store, OLD_MS)
    await house.change(schema.sessions, first.session_id, keep_ms=10 * DAY_MS)

    gone = await house.keeper.keep()

    assert gone["runs"] == 1
    assert await house.left(schema.runs, id=first.id) == 0
    assert await house.left(schema.runs, id=other.run_id) == 1
    assert await house.left(schema.sessions) == 2


async def test_a_session_whose_time_is_over_goes_with_its_runs(house: Household) -> None:
    over, busy, forked = (
        await ended(house.store, NEW_MS),
        await waits(house.store, NEW_MS),
        await ended(house.store, NEW_MS),
    )
    fork = await ended(house.store, NEW_MS)
    for claim in (over, busy, forked):
        terms = {"ttl_ms": 1_000, "expires_ms": NOW_MS - 1}
        await house.change(schema.sessions, claim.session_id, **terms)
    await house.change(schema.sessions, fork.session_id, forked_from=forked.session_id)

    gone = await house.keeper.keep()

    assert gone["sessions"] == 1
    assert await house.left(schema.sessions, id=over.session_id) == 0
    assert await house.left(schema.runs, id=over.run_id) == 0
    for claim in (busy, forked, fork):
        assert await house.left(schema.runs, id=claim.run_id) == 1


async def test_a_session_that_was_given_more_time_meanwhile_stays(house: Household) -> None:
    brief = NewSession("ses_9", TENANT, None, None, "{}", OLD_MS, ttl_ms=DAY_MS)
    await house.store.write(sessions.create(brief))
    found = await house.store.read(retention.expired(NOW_MS))
    for_good = SessionEdit(None, "{}")
    await house.store.write(sessions.change(TENANT, "ses_9", for_good, now_ms=NOW_MS))

    more = await house.store.write(retention.remove_expired(TENANT, "ses_9", NOW_MS))

    assert found == [(TENANT, "ses_9", OLD_MS + DAY_MS)]
    assert not more
    assert await house.left(schema.sessions, id="ses_9") == 1


@pytest.mark.parametrize("goes_on", ["a run", "a fork"])
async def test_a_session_that_somebody_goes_on_from_meanwhile_keeps_its_past(
    house: Household, goes_on: str
) -> None:
    over = await ended(house.store, NEW_MS)
    terms = {"ttl_ms": 1_000, "expires_ms": NOW_MS - 1}
    await house.change(schema.sessions, over.session_id, **terms)
    found = await house.store.read(retention.expired(NOW_MS))
    if goes_on == "a run":
        there = a_run_of(NOW_MS, session_id=over.session_id, session_is_new=False)
        await house.store.create(there)
    else:
        fork = NewSession("ses_9", TENANT, None, None, "{}", NOW_MS)
        await house.store.write(session_forks.fork(fork, over.session_id, Place(1, 0)))

    more = await house.store.write(retention.remove_expired(TENANT, over.session_id, NOW_MS))

    assert [each.session_id for each in found] == [over.session_id]
    assert not more
    assert await house.left(schema.runs, id=over.run_id) == 1


async def test_the_installations_limit_holds_for_all_tenants(store: Store, tmp_path: Path) -> None:
    house = household(store, tmp_path, kept_max_ms=30 * DAY_MS)
    await ended(store, OLD_MS)
    foreign = await ended(store, OLD_MS, a_run_of(OLD_MS, tenant="globex"))
    new = await ended(store, NEW_MS)

    gone = await house.keeper.keep()

    assert gone["runs"] == 2
    assert await house.left(schema.runs) == 1
    assert await house.left(schema.events) == await house.left(schema.events, run_id=new.run_id)
    assert await house.left(schema.events, run_id=foreign.run_id) == 0


async def test_the_installations_limit_takes_no_run_that_ended_later(
    store: Store, tmp_path: Path
) -> None:
    house = household(store, tmp_path, kept_max_ms=30 * DAY_MS)
    late = await ended(store, NEW_MS, a_run_of(OLD_MS))
    over = await ended(store, OLD_MS)

    gone = await house.keeper.keep()

    assert gone["runs"] == 1
    assert await house.left(schema.runs, id=over.run_id) == 0
    assert await house.left(schema.events, run_id=late.run_id) == 3


async def test_weeks_that_are_past_are_dropped_as_a_whole(store: Store, tmp_path: Path) -> None:
    await partitions.make_ahead(store, MONDAY_MS)
    now_ms = MONDAY_MS + 40 * DAY_MS
    house = household(store, tmp_path, kept_max_ms=14 * DAY_MS, now_ms=now_ms)
    over = await ended(store, MONDAY_MS)
    waiting = await waits(store, MONDAY_MS + 7 * DAY_MS)
    in_parts = store.engine.dialect == "postgresql"
    before = await store.read(partitions.present()) if in_parts else []

    await house.keeper.keep()

    assert await house.left(schema.runs) == 1
    assert await house.left(schema.events, run_id=waiting.run_id) == 3
    assert await house.left(schema.events) == 3
    after = await store.read(partitions.present()) if in_parts else []
    assert any(part.has(over.run_id) for part in before) == in_parts
    assert not any(part.has(over.run_id) for part in after)
    assert any(part.has(waiting.run_id) for part in after) == in_parts


async def test_one_process_at_a_time_looks_after_it(house: Household) -> None:
    turns = [await house.store.write(retention.take_turn(NOW_MS, 60_000)) for _ in range(2)]
    later = await house.store.write(retention.take_turn(NOW_MS + 60_000, 60_000))

    assert (turns, later) == ([True, False], True)


async def test_a_clock_that_once_ran_ahead_keeps_nobody_from_looking(house: Household) -> None:
    ahead = await house.store.write(retention.take_turn(NOW_MS + 365 * DAY_MS, 60_000))
    turns = [await house.store.write(retention.take_turn(NOW_MS, 60_000)) for _ in range(2)]
    a_little = await house.store.write(retention.take_turn(NOW_MS - 1_000, 60_000))

    assert (ahead, turns, a_little) == (True, [True, False], False)


async def test_a_session_that_cannot_be_erased_keeps_no_other(
    house: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"ses_{number}" for number in range(3)]
    for number, session_id in enumerate(ids):
        brief = NewSession(session_id, TENANT, None, None, "{}", OLD_MS, ttl_ms=1_000)
        await house.store.write(sessions.create(brief))
        await house.change(schema.sessions, session_id, expires_ms=NOW_MS - 10 + number)
    remove = retention.remove_expired

    def removing(tenant: str, session_id: str, now_ms: int) -> Work[bool]:
        if session_id == ids[0]:
            raise DatabaseUnavailableError("it took too long")
        return remove(tenant, session_id, now_ms)

    monkeypatch.setattr(retention, "remove_expired", removing)

    gone = await house.keeper.keep()

    assert gone["sessions"] == 2
    assert [await house.left(schema.sessions, id=each) for each in ids] == [1, 0, 0]


async def test_a_session_whose_runs_cannot_be_erased_keeps_no_others(
    house: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = [await ended(house.store, OLD_MS) for _ in range(2)]
    first, other = sorted(claims, key=lambda claim: claim.session_id)
    for claim in claims:
        await house.change(schema.sessions, claim.session_id, keep_ms=10 * DAY_MS)
    remove = retention.remove_kept

    def removing(tenant: str, session_id: str, before_ms: int) -> Work[int]:
        if session_id == first.session_id:
            raise DatabaseUnavailableError("it took too long")
        return remove(tenant, session_id, before_ms)

    monkeypatch.setattr(retention, "remove_kept", removing)

    gone = await house.keeper.keep()

    assert gone["runs"] == 1
    assert await house.left(schema.runs, id=other.run_id) == 0


async def test_a_tenant_whose_runs_cannot_be_erased_keeps_no_others(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = household(store, tmp_path, kept_max_ms=30 * DAY_MS)
    stuck = await ended(store, OLD_MS, a_run_of(OLD_MS, tenant="a tenant"))
    other = await ended(store, OLD_MS)
    remove = remove_runs

    def removing(tenant: str, run_ids: Sequence[str], **how: Any) -> Work[Removed]:
        if tenant == "a tenant":
            raise DatabaseUnavailableError("it took too long")
        return remove(tenant, run_ids, **how)

    monkeypatch.setattr(keeper, "remove_runs", removing)

    gone = await house.keeper.keep()

    assert gone["runs"] == 1
    assert await house.left(schema.runs, id=other.run_id) == 0
    assert await house.left(schema.events, run_id=stuck.run_id) == 3


async def test_rules_that_were_read_before_a_change_are_refused(house: Household) -> None:
    before = await house.store.read(retention.get(TENANT))
    await house.rule(runs_ms=DAY_MS)

    with pytest.raises(ConflictError, match="changed meanwhile"):
        await house.store.write(retention.replace(before, retention.Rules(), NOW_MS))


async def test_rules_are_replaced_as_they_were_read_and_no_other_tenants(house: Household) -> None:
    await house.rule(runs_ms=DAY_MS)
    theirs = await house.store.write(
        retention.replace(RetentionRow("globex"), Rules(runs_ms=2 * DAY_MS), NOW_MS)
    )
    before = await house.store.read(retention.get(TENANT))
    await house.rule(runs_ms=3 * DAY_MS)

    with pytest.raises(ConflictError, match="changed meanwhile"):
        await house.store.write(retention.replace(before, Rules(), NOW_MS))

    assert (await house.store.read(retention.get(TENANT))).rules == Rules(runs_ms=3 * DAY_MS)
    assert await house.store.read(retention.get("globex")) == theirs


async def test_a_tenants_rules_take_what_is_old_of_its_own_and_nothing_else(
    house: Household,
) -> None:
    for tenant in (TENANT, "globex"):
        for time_ms in (OLD_MS, NEW_MS):
            claim = await held(house.store, a_run_of(time_ms, tenant=tenant))
            change = Change("completed", outcome="{}", ended_ms=time_ms)
            left, span = an_artifact(claim.session_id), a_span(claim)
            end = a_finish(claim, change=change, artifacts=(left,), spans=(span,))
            await house.store.append(end)
            fact = a_fact(str(time_ms))
            await remembered(house.store, fact, tenant=tenant, now_ms=time_ms)
            batch = a_batch(1, tenant=tenant)
            await house.store.write(batches.create(batch, [chunk(0, 1)]))
            ended_ms = {"status": "completed", "ended_ms": time_ms}
            await house.change(schema.batches, batch.id, **ended_ms)
    parts = (schema.events, schema.spans, schema.artifacts, schema.memories)
    wholes = (schema.runs, schema.batches)
    await house.rule(**dict.fromkeys(_PARTS, 30 * DAY_MS))

    await house.keeper.keep()
    worn = [await house.left(table, tenant=TENANT) for table in parts]
    await house.rule(runs_ms=30 * DAY_MS)
    await house.keeper.keep()

    assert worn == [3, 1, 1, 1]
    assert [await house.left(table, tenant=TENANT) for table in wholes] == [1, 1]
    assert [await house.left(table, tenant="globex") for table in parts] == [6, 2, 2, 2]
    assert [await house.left(table, tenant="globex") for table in wholes] == [2, 2]


async def test_memories_that_nobody_mentioned_for_long_go(house: Household) -> None:
    ann = Owner("user", "ann")
    for content, time_ms in (("Old", OLD_MS), ("New", NEW_MS), ("Again", OLD_MS)):
        await remembered(house.store, a_fact(content), ann, now_ms=time_ms)
    await remembered(house.store, a_fact("Again"), ann, now_ms=NEW_MS)
    await house.rule(memories_ms=30 * DAY_MS)

    gone = await house.keeper.keep()

    assert gone["memories"] == 1
    assert await house.left(schema.memories) == 2


async def test_a_memory_that_somebody_corrected_lately_stays(house: Household) -> None:
    old = await remembered(house.store, a_fact("Old"), now_ms=OLD_MS)
    await house.store.write(memories.change(old, a_fact("Corrected"), now_ms=NEW_MS))
    await house.rule(memories_ms=30 * DAY_MS)

    gone = await house.keeper.keep()

    assert gone["memories"] == 0
    assert await house.left(schema.memories, content="Corrected") == 1


async def test_an_artifact_may_go_before_its_run_and_its_content_with_it(
    house: Household, tmp_path: Path
) -> None:
    first = a_run_of(OLD_MS)
    claim = await held(house.store, first)
    left = an_artifact(claim.session_id)
    await house.store.append(an_append(claim, artifacts=(left,)))
    await house.store.keep_content(TENANT, claim.session_id, SHA256, b"small")
    await DirectoryBlobs(tmp_path).put(TENANT, claim.session_id, SHA256, b"large")
    change = Change("completed", outcome="{}", ended_ms=OLD_MS)
    end = a_finish(replace(claim, head=claim.head + 1), change=change)
    await house.store.append(end)
    await house.rule(artifacts_ms=30 * DAY_MS)

    gone = await house.keeper.keep()
    next_one = await held(house.store, behind(first, id=a_run_of(NEW_MS).id))
    await house.eraser.tidy()
    kept = await house.left(schema.artifact_contents)
    await house.store.append(a_finish(next_one))
    await house.change_leftovers(due_ms=0)
    await house.eraser.tidy()

    assert gone["artifacts"] == 1
    assert kept == 1  # As long as a run is active there, which may be about to refer to it.
    assert await house.left(schema.artifact_contents) == 0
    assert await house.left(schema.runs, id=first.id) == 1
    assert SHA256 not in files(tmp_path)


async def test_a_content_that_another_run_has_left_as_well_is_kept(house: Household) -> None:
    first = a_run_of(OLD_MS)
    for run, time_ms in ((first, OLD_MS), (behind(first, id=a_run_of(NEW_MS).id), NEW_MS)):
        claim = await held(house.store, run)
        left = an_artifact(claim.session_id)
        await house.store.append(an_append(claim, artifacts=(left,)))
        change = Change("completed", outcome="{}", ended_ms=time_ms)
        await house.store.append(a_finish(replace(claim, head=claim.head + 1), change=change))
    await house.store.keep_content(TENANT, first.session_id, SHA256, b"small")
    await house.rule(runs_ms=30 * DAY_MS)

    await house.keeper.keep()
    await house.eraser.tidy()

    assert await house.left(schema.artifacts) == 1
    assert await house.left(schema.artifact_contents) == 1
    assert await house.left(schema.leftovers) == 0


async def test_a_content_goes_whatever_is_left_of_others_and_takes_none_of_them_along(
    house: Household,
) -> None:
    other_sha256 = "cd" * 32
    first, elsewhere, foreign = (
        a_run_of(OLD_MS),
        a_run_of(NEW_MS),
        a_run_of(NEW_MS, tenant="globex"),
    )
    behind_it = behind(first, id=a_run_of(NEW_MS).id)
    for run, time_ms, left in (
        (first, OLD_MS, {}),
        (behind_it, NEW_MS, {"sha256": other_sha256}),
        (elsewhere, NEW_MS, {}),
        (foreign, NEW_MS, {}),
    ):
        claim = await held(house.store, run)
        change = Change("completed", outcome="{}", ended_ms=time_ms)
        artifact = an_artifact(run.session_id, **left)
        await house.store.append(a_finish(claim, change=change, artifacts=(artifact,)))
        sha256 = str(artifact.sha256)
        await house.store.keep_content(run.tenant, run.session_id, sha256, b"small")
    await held(house.store, behind(elsewhere, id=a_run_of(NEW_MS).id))
    await house.rule(artifacts_ms=30 * DAY_MS)

    await house.keeper.keep()
    await house.eraser.tidy()

    contents = schema.artifact_contents
    assert await house.left(contents, session_id=first.session_id, sha256=SHA256) == 0
    assert await house.left(contents, session_id=first.session_id, sha256=other_sha256) == 1
    assert await house.left(contents, session_id=elsewhere.session_id) == 1
    assert await house.left(contents, tenant="globex") == 1
    assert await house.left(schema.leftovers) == 0


async def test_nobody_begins_in_a_session_while_a_file_of_it_is_removed(
    store: Store, tmp_path: Path
) -> None:
    """A run that left the same content would find it kept, and lose it."""
    first = a_run_of(OLD_MS)
    begins: list[asyncio.Task[Created]] = []
    began_meanwhile: list[bool] = []

    class Removing(DirectoryBlobs):
        async def remove(self, tenant: str, session_id: str, sha256: str) -> None:
            next_one = asyncio.create_task(store.create(behind(first, id=a_run_of(NEW_MS).id)))
            began_meanwhile.append(bool((await asyncio.wait({next_one}, timeout=0.2))[0]))
            begins.append(next_one)
            await super().remove(tenant, session_id, sha256)

    house = household(store, tmp_path, blobs=Removing(tmp_path))
    left = (an_artifact(first.session_id),)
    change = Change("completed", outcome="{}", ended_ms=OLD_MS)
    await store.append(a_finish(await held(store, first), change=change, artifacts=left))
    await house.rule(artifacts_ms=30 * DAY_MS)

    await house.keeper.keep()
    await house.eraser.tidy()

    assert began_meanwhile == [False]
    assert [(await each).status for each in begins] == ["queued"]
    assert await house.left(schema.leftovers) == 0


async def test_what_is_for_later_is_not_forgotten_with_what_goes_now(house: Household) -> None:
    busy, quiet = a_run_of(OLD_MS), a_run_of(OLD_MS)
    for run in (busy, quiet):
        claim = await held(house.store, run)
        change = Change("completed", outcome="{}", ended_ms=OLD_MS)
        left = an_artifact(run.session_id)
        await house.store.append(a_finish(claim, change=change, artifacts=(left,)))
        await house.store.keep_content(TENANT, run.session_id, SHA256, b"small")
    going = await held(house.store, behind(busy, id=a_run_of(NEW_MS).id))
    await house.rule(artifacts_ms=30 * DAY_MS)
    await house.keeper.keep()

    await house.eraser.tidy()
    left_over = await house.left(schema.leftovers)
    await house.change_leftovers(due_ms=0)
    await house.eraser.tidy()
    kept = await house.left(schema.artifact_contents, session_id=busy.session_id)
    await house.store.append(a_finish(going))
    await house.change_leftovers(due_ms=0)
    await house.eraser.tidy()

    assert (left_over, kept) == (1, 1)
    assert await house.left(schema.artifact_contents) == 0
    assert await house.left(schema.leftovers) == 0


async def test_batches_go_with_their_runs(house: Household) -> None:
    for batch_id, time_ms in (("bat_1", OLD_MS), ("bat_2", NEW_MS)):
        batch = a_batch(id=batch_id, total=1)
        await house.store.write(batches.create(batch, [chunk(0, 1)]))
        await house.change(schema.batches, batch_id, status="completed", ended_ms=time_ms)
    await house.rule(runs_ms=30 * DAY_MS)

    gone = await house.keeper.keep()

    assert gone["batches"] == 1
    assert await house.left(schema.batches, id="bat_2") == 1
    assert await house.left(schema.batch_items) == 1
