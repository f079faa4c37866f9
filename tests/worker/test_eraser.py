"""A user is erased step by step, by whoever comes, and nothing new of theirs comes in between."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import orjson
import pytest
from redis.asyncio import Redis
from sqlalchemy import insert, select

from milepost.live.hub import LiveText
from milepost.live.redis_link import RedisLink
from milepost.live.text_buffers import TextBuffers
from milepost.providers.cache_key import owner_key
from milepost.providers.cache_memory import InProcessCache
from milepost.store import (
    audit,
    batches,
    budgets,
    erasure,
    erasures,
    keys,
    leftovers,
    memories,
    rates,
    schema,
    session_imports,
    sessions,
)
from milepost.store.address import SqliteAddress
from milepost.store.audit import AuditFilter
from milepost.store.conversations import ScopeKey, take
from milepost.store.dialect import now_ms
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.erasures import TAKEN_MS, ErasureRow, NewErasure, UserBeingErasedError
from milepost.store.keys import NewKey
from milepost.store.rates import Counting, Tally
from milepost.store.records import AuditRow, Fork, Page, Request
from milepost.store.session_imports import Imported, ImportedRun
from milepost.store.sessions import NewSession
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from milepost.worker.eraser import SOON_MS, Eraser
from tests.api.searching import files_with
from tests.store.breaking import BreakingEngine
from tests.store.budgeting import a_budget
from tests.store.conftest import opened, serving
from tests.store.making import TENANT, a_finish, an_entry, an_id, behind, held
from tests.store.making_batches import a_batch, chunk
from tests.store.making_memories import a_memory
from tests.store.test_artifacts import an_artifact
from tests.worker.keeping import (
    NOW_MS,
    Household,
    a_child_of,
    a_run_of,
    ended,
    household,
    told,
)
from tests.worker.running import running

T = TypeVar("T")

ANN = "ann"


@pytest.fixture
def house(store: Store, tmp_path: Path) -> Household:
    """A house, on each database."""
    return household(store, tmp_path)


async def begun(house: Household, user: str = ANN, tenant: str = TENANT) -> ErasureRow:
    """Begin to erase a user."""
    wanted = NewErasure(an_id("era"), tenant, owner_key(tenant, user), "key_1", user, NOW_MS)
    act = AuditRow(an_id("aud"), tenant, "key_1", "user.erasing", wanted.id, "{}", NOW_MS)
    return await house.store.write(erasures.begin(wanted, act))


async def finish(house: Household, row: ErasureRow) -> ErasureRow:
    """Have it done to its end."""
    async with asyncio.timeout(30):
        while True:
            await house.eraser.erase()
            await house.eraser.tidy()
            found = await house.store.read(erasures.find(row.tenant, row.id))
            if found.ended_ms is not None:
                return found
            await asyncio.sleep(0.02)


async def test_all_runs_of_a_user_go_and_nobody_elses(house: Household) -> None:
    for n in range(7):
        await ended(house.store, NOW_MS + n, a_run_of(NOW_MS + n, user=ANN))
    other = await ended(house.store, NOW_MS, a_run_of(NOW_MS, user="bob"))
    going = a_run_of(NOW_MS, user="bob")
    foreign = a_run_of(NOW_MS, user=ANN, tenant="globex")
    for run in (going, foreign):
        await house.store.create(run)

    row = await finish(house, await begun(house))

    assert row.counted["runs"] == 7
    assert row.counted["sessions"] == 7
    assert (row.user, row.stage) == (None, "done")
    assert await house.left(schema.runs) == 3
    assert await house.left(schema.runs, id=going.id, status="queued") == 1
    assert await house.left(schema.runs, id=other.run_id) == 1
    assert await house.left(schema.runs, id=foreign.id) == 1


async def test_another_tenants_user_of_the_same_name_keeps_all(house: Household) -> None:
    request = Request("POST /v1/runs", "k1", "hash")
    for tenant in (TENANT, "globex"):
        await ended(house.store, NOW_MS, a_run_of(NOW_MS, tenant=tenant, user=ANN, request=request))
        await house.store.write(memories.keep(a_memory(tenant=tenant, user=ANN)))
        await house.store.write(budgets.create(a_budget(tenant=tenant, scope="user")))
        await house.store.write(
            budgets.create(a_budget(tenant=tenant, scope="user", scope_value=ANN))
        )
        await house.store.write(keys.create(_a_key_of(tenant)))
        await house.store.write(_counted(tenant))
    tables = (
        schema.runs,
        schema.sessions,
        schema.memories,
        schema.idempotency,
        schema.keys,
        schema.rate_marks,
        schema.rate_counters,
    )
    assert [await house.left(table) for table in tables] == [2] * len(tables)

    await finish(house, await begun(house))

    assert [await house.left(table, tenant=TENANT) for table in tables] == [0] * len(tables)
    assert [await house.left(table, tenant="globex") for table in tables] == [1] * len(tables)
    assert await house.left(schema.budgets, tenant=TENANT) == 1
    assert await house.left(schema.budgets, tenant="globex") == 2


async def test_whoever_was_frozen_while_another_finished_erases_nothing_that_came_since(
    house: Household,
) -> None:
    row = await begun(house)
    frozen = await house.store.write(erasures.take())
    assert frozen is not None
    await house.store.write(erasures.advance(frozen, held_ms=-1))
    await finish(house, row)
    again = NewSession(an_id("ses"), TENANT, ANN, None, "{}", NOW_MS)
    await house.store.write(sessions.create(again))

    steps = [await house.store.write(erasure.go_on(frozen, NOW_MS))]
    while not steps[-1].step.idle and steps[-1].row.stage != erasure.FILE_STAGE:
        steps.append(await house.store.write(erasure.go_on(steps[-1].row, NOW_MS)))

    assert await house.left(schema.sessions, id=again.id) == 1


async def test_what_is_under_way_is_cancelled_first(house: Household) -> None:
    queued = a_run_of(NOW_MS, user=ANN)
    await house.store.create(queued)
    scheduled = a_run_of(NOW_MS, user=ANN, scheduled_ms=NOW_MS * 2)
    await house.store.create(scheduled)

    row = await finish(house, await begun(house))

    assert row.counted["runs"] == 2
    assert await house.left(schema.runs) == 0


async def test_a_run_in_a_workers_hands_is_told_to_stop_and_goes_once_it_has(
    house: Household,
) -> None:
    claim = await held(house.store, a_run_of(NOW_MS, user=ANN))
    row = await begun(house)

    await house.eraser.erase()
    still_there = await house.left(schema.runs)
    told_to_stop = await house.left(schema.inbox, run_id=claim.run_id, kind="cancel")
    await house.store.append(a_finish(claim, "cancelled", inbox_seen=claim.inbox_seq + 1))
    await finish(house, row)

    assert (still_there, told_to_stop) == (1, 1)
    assert await house.left(schema.runs) == 0


async def test_runs_in_the_sessions_of_others_go_and_those_sessions_stay(
    house: Household,
) -> None:
    first = a_run_of(NOW_MS, user="bob")
    await ended(house.store, NOW_MS, first)
    await ended(house.store, NOW_MS, behind(first, id=a_run_of(NOW_MS).id, user=ANN))
    await house.store.write(sessions.create(a_session(user="bob", id="ses_bobs")))
    joined = a_run_of(NOW_MS, user=ANN, session_id="ses_bobs", session_is_new=False)
    await ended(house.store, NOW_MS, joined)

    await finish(house, await begun(house))

    assert await house.left(schema.runs) == 1
    assert await house.left(schema.sessions) == 2


async def test_what_came_of_the_users_words_goes_along(house: Household) -> None:
    run = a_run_of(NOW_MS, user=ANN)
    await ended(house.store, NOW_MS, run)
    child = a_child_of(run)
    await ended(house.store, NOW_MS, child)
    await house.store.write(told([child.id]))
    origin = Fork(run.id, 1, an_entry("run.forked"), an_act())
    fork = a_run_of(NOW_MS, user="bob", fork=origin)
    await ended(house.store, NOW_MS, fork)
    forked = a_session(user="bob", id="ses_fork")
    await house.store.write(sessions.create(forked))
    await house.change(schema.sessions, forked.id, forked_from=run.session_id)

    await finish(house, await begun(house))

    assert await house.left(schema.runs) == 0
    assert await house.left(schema.sessions, id=forked.id) == 0


async def test_nothing_new_is_taken_until_all_is_gone(house: Household) -> None:
    row = await begun(house)
    scope = ScopeKey(TENANT, "sms", "c1", ANN)
    refused = (
        lambda: house.store.create(a_run_of(NOW_MS, user=ANN)),
        lambda: house.store.write(sessions.create(a_session(user=ANN))),
        lambda: house.store.write(session_imports.create(an_import(user=ANN))),
        lambda: house.store.write(batches.create(a_batch(1, user=ANN), [chunk(0, 1)])),
        lambda: house.store.write(memories.keep(a_memory(user=ANN))),
        lambda: house.store.write(take(scope, "m1", "hash", NOW_MS)),
    )

    for ask in refused:
        with pytest.raises(UserBeingErasedError, match="'ann' is being erased"):
            await ask()
    await house.store.create(a_run_of(NOW_MS, user="bob"))
    await finish(house, row)

    await house.store.create(a_run_of(NOW_MS, user=ANN))
    assert await house.left(schema.runs) == 2


async def test_an_erasure_waits_for_what_is_left_of_its_own_and_of_no_other(
    house: Household,
) -> None:
    first = a_run_of(NOW_MS, user="bob")
    await ended(house.store, NOW_MS, first)
    joined = await held(house.store, behind(first, id=a_run_of(NOW_MS).id, user=ANN))
    left = an_artifact(first.session_id)
    await house.store.append(a_finish(joined, artifacts=(left,)))
    going = await held(house.store, behind(first, id=a_run_of(NOW_MS).id, user="bob"))
    waiting = await begun(house)
    for _ in range(3):
        await house.eraser.erase()
        await house.eraser.tidy()

    other = await finish(house, await begun(house, "cas"))

    assert other.stage == "done"
    assert (await house.store.read(erasures.find(TENANT, waiting.id))).ended_ms is None
    await house.store.append(a_finish(going))
    await house.change_leftovers(due_ms=0)
    assert (await finish(house, waiting)).stage == "done"


async def test_an_erasure_that_waits_for_long_holds_up_no_other(house: Household) -> None:
    """Each turn comes when the one before it is to be looked at again."""
    await held(house.store, a_run_of(NOW_MS, user=ANN))
    waiting, other = await begun(house), await begun(house, "bob")

    for _ in range(10):
        await house.eraser.erase()
        await house.eraser.tidy()
        for row in (waiting, other):
            found = await house.store.read(erasures.find(TENANT, row.id))
            past_ms = found.until_ms - 2 * erasure.IDLE_MS
            await house.change(schema.erasures, row.id, until_ms=past_ms)

    assert (await house.store.read(erasures.find(TENANT, waiting.id))).ended_ms is None
    assert (await house.store.read(erasures.find(TENANT, other.id))).stage == "done"


async def test_asked_again_it_is_the_same_erasure(house: Household) -> None:
    first, again = await begun(house), await begun(house)
    other = await begun(house, "bob")

    assert first.id == again.id != other.id
    assert await house.left(schema.audit, action="user.erasing") == 2


async def test_who_is_called_as_something_else_is_takes_that_out_of_no_audit_trail(
    house: Household,
) -> None:
    told = {"scopes": ["admin", "runs:read"], "scope": "admin", "subject": "admin", "name": "ops"}
    act = replace(an_act(), id="aud_of_key", details=orjson.dumps(told).decode())
    await house.store.write(audit.add(act))

    await finish(house, await begun(house, "admin"))

    rows = await house.store.read(audit.search(TENANT, AuditFilter(), Page(100)))
    [found] = [orjson.loads(row.details) for row in rows if row.id == act.id]
    assert found == {**told, "subject": None}


async def test_who_answers_at_a_chat_by_a_name_that_ends_in_the_user_s_keeps_it(
    house: Household,
) -> None:
    theirs, his = "channel:slack:T024:ann", "channel:slack:ann"
    acts = [
        replace(an_act(), actor=by, details=orjson.dumps({"by": by}).decode())
        for by in (theirs, his)
    ]
    for act in acts:
        await house.store.write(audit.add(act))

    row = await begun(house)
    await finish(house, row)

    rows = await house.store.read(audit.search(TENANT, AuditFilter(), Page(100)))
    found = {each.id: (each.actor, orjson.loads(each.details)) for each in rows}
    assert [found[act.id] for act in acts] == [(theirs, {"by": theirs}), (row.id, {"by": None})]


@pytest.mark.parametrize(("absences", "breaks"), [(3, 0), (0, 1)])
async def test_an_outage_holds_up_no_erasure_for_longer_than_it_lasts(
    house: Household, absences: int, breaks: int
) -> None:
    line = BreakingEngine(house.store.engine)

    class Cut(InProcessCache):
        """A cache; while it is looked through, the database goes away."""

        async def forget(self, owner: str) -> int:
            """Forget what is kept for them."""
            line.absences, line.breaks = absences, breaks
            return await super().forget(owner)

    row = await begun(house)
    eraser = Eraser(replace(house.ports, store=Store(line, waits_s=(0,))), Cut())

    with pytest.raises(DatabaseUnavailableError):
        await eraser.erase()

    taken = await house.store.write(erasures.take())
    assert taken is not None
    assert (taken.id, taken.stage) == (row.id, erasure.FILE_STAGE)


async def test_an_erasure_that_was_taken_without_an_answer_is_soon_anybodys(
    house: Household,
) -> None:
    line = BreakingEngine(house.store.engine)
    eraser = Eraser(replace(house.ports, store=Store(line)), house.cache)
    await begun(house)

    line.breaks = 1
    with pytest.raises(DatabaseUnavailableError):
        await eraser.erase()

    (held_ms,) = await house.store.read(_held_ms())
    assert held_ms <= TAKEN_MS


class Unheard(BreakingEngine):
    """A line over which no answer comes that tells of runs that are gone."""

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        result = await super().write(work)
        if isinstance(result, erasure.Gone) and result.step.runs:
            raise DatabaseUnavailableError("the connection broke")
        return result


async def test_what_was_said_in_runs_goes_from_redis_though_nobody_heard_that_they_are_gone(
    house: Household, redis_url: str
) -> None:
    run = a_run_of(NOW_MS, user=ANN)
    await ended(house.store, NOW_MS, run)
    await begun(house)
    async with Redis.from_url(redis_url) as redis:
        pipe = redis.pipeline(transaction=False)
        text = LiveText("message.delta", "msg_0", 1)
        TextBuffers(redis).add(pipe, run.id, text, "said", 0)
        await pipe.execute()
        house.ports.hub.link = link = RedisLink(redis_url, house.ports.hub)
        line = Unheard(house.store.engine)
        eraser = Eraser(replace(house.ports, store=Store(line)), house.cache)

        async with running(link):
            with pytest.raises(DatabaseUnavailableError):
                await eraser.erase()

        assert await house.left(schema.runs, id=run.id) == 0
        assert await TextBuffers(redis).read([run.id]) == []


async def test_an_erasure_that_has_had_its_turn_is_anybodys_at_once(
    house: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.worker.eraser.STEPS_MAX", 2)
    first = await begun(house)
    await house.eraser.erase()
    second = await begun(house, "bob")

    taken = [await house.store.write(erasures.take()) for _ in range(2)]
    assert [row.id for row in taken if row] == [second.id, first.id]


async def test_what_an_outage_kept_from_being_removed_is_due_soon_after(house: Household) -> None:
    line = BreakingEngine(house.store.engine)
    eraser = Eraser(replace(house.ports, store=Store(line)), house.cache)
    await house.store.write(_left("ses_gone", leftovers.SESSION))

    line.breaks = 1
    await eraser.tidy()

    (due_in_ms,) = await house.store.read(_due_in_ms())
    assert due_in_ms <= SOON_MS


async def test_another_process_goes_on_where_one_has_died(
    house: Household, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.worker.eraser.STEPS_MAX", 1)
    monkeypatch.setattr("milepost.store.erasure.RUNS_MAX", 2)
    for n in range(9):
        await ended(house.store, NOW_MS + n, a_run_of(NOW_MS + n, user=ANN))
    row = await begun(house)
    stages = set()

    now = row
    for _ in range(200):
        # Each process dies after a step: the next one finds the erasure lying.
        await household(house.store, tmp_path).eraser.erase()
        await house.change(schema.erasures, row.id, until_ms=0)
        await household(house.store, tmp_path).eraser.tidy()
        now = await house.store.read(erasures.find(TENANT, row.id))
        stages.add(now.stage)
        if now.ended_ms is not None:
            break

    assert now.stage == "done"
    assert now.counted["runs"] == 9
    assert {"batches", "sessions", "usage", "audit", "file"} <= stages
    assert await house.left(schema.runs) == 0


async def test_two_at_once_erase_together_what_one_would(house: Household, tmp_path: Path) -> None:
    for n in range(150):
        await ended(house.store, NOW_MS + n, a_run_of(NOW_MS + n, user=ANN))
    row = await begun(house)
    other = household(house.store, tmp_path)

    async def both() -> None:
        for _ in range(100):
            await house.change(schema.erasures, row.id, until_ms=0)
            await asyncio.gather(house.eraser.erase(), other.eraser.erase())
            await asyncio.gather(house.eraser.tidy(), other.eraser.tidy())
            if (await house.store.read(erasures.find(TENANT, row.id))).ended_ms is not None:
                return
            await asyncio.sleep(0.02)

    await both()

    assert await house.left(schema.runs) == 0
    assert await house.left(schema.sessions) == 0
    assert await house.left(schema.audit, action="user.erased") == 1


async def test_a_run_is_either_refused_or_erased_whenever_it_comes(house: Household) -> None:
    async def ask(n: int) -> bool:
        await asyncio.sleep(n / 1_000)
        try:
            await house.store.create(a_run_of(NOW_MS + n, user=ANN))
        except UserBeingErasedError:
            return False
        return True

    async def erase() -> ErasureRow:
        await asyncio.sleep(0.02)
        return await begun(house)

    asked = asyncio.gather(*(ask(n) for n in range(60)))
    row = await erase()
    taken = await asked
    await finish(house, row)

    assert row.user == ANN
    assert any(taken)
    assert await house.left(schema.runs) == 0


async def test_caches_of_every_process_forget_the_user(house: Household, tmp_path: Path) -> None:
    other = household(house.store, tmp_path)
    owner = owner_key(TENANT, ANN)
    for each in (house, other):
        await each.cache.set("a", b"of ann's", 600, owner)
        await each.cache.set("b", b"of bob's", 600, owner_key(TENANT, "bob"))

    await finish(house, await begun(house))
    await other.eraser.forget()

    for each in (house, other):
        assert await each.cache.get("a") is None
        assert await each.cache.get("b") == b"of bob's"


async def test_the_bill_stays_without_the_name(house: Household) -> None:
    run = a_run_of(NOW_MS, user=ANN)
    await ended(house.store, NOW_MS, run)
    await house.store.write(_billed(run.id))

    row = await finish(house, await begun(house))

    assert row.counted["runs"] == 1
    assert await house.left(schema.usage, user_id=None, metadata="{}") == 1


async def test_the_file_of_sqlite_keeps_nothing_however_it_was_shuffled(
    sqlite_address: SqliteAddress, tmp_path: Path
) -> None:
    chance = Random(11)
    async with opened(sqlite_address) as engine, serving(Store(engine)) as store:
        house = household(store, tmp_path / "artifacts")
        bobs = []
        for n in range(250):
            said = "Zanzibar" * chance.randint(1, 400)
            labels = orjson.dumps({"said": said}).decode()
            await ended(store, NOW_MS + n, a_run_of(NOW_MS + n, user=ANN, metadata=labels))
            labels = orjson.dumps({"said": "b" * chance.randint(1, 3_000)}).decode()
            run = a_run_of(NOW_MS + n, user="bob", metadata=labels)
            bobs.append(await ended(store, NOW_MS + n, run))
        for claim in chance.sample(bobs, 125):
            await store.write(sessions.delete(TENANT, claim.session_id))
        before = files_with(sqlite_address.path.parent, "Zanzibar")

        row = await finish(house, await begun(house))

        after = files_with(sqlite_address.path.parent, "Zanzibar")
    assert before
    assert row.counted["runs"] == 250
    assert after == set()


def an_import(user: str) -> Imported:
    """Return a session of nobody's that is brought along with a run of this user's."""
    run = ImportedRun(an_id("run"), 1, "clerk", 1, user, "{}", "{}", ())
    return Imported(a_session(), [run])


def a_session(**changes: Any) -> NewSession:
    """Return a session to be begun."""
    begins = NewSession(an_id("ses"), TENANT, None, None, "{}", NOW_MS)
    return replace(begins, **changes)


def an_act() -> AuditRow:
    """Return something that somebody did."""
    return AuditRow(an_id("aud"), TENANT, "key_1", "run.forked", "run_1", "{}", NOW_MS)


def _a_key_of(tenant: str) -> NewKey:
    key_id = an_id("key")
    return NewKey(key_id, tenant, "ci", f"hash of {key_id}", "mp_…abcd", "[]", ANN, NOW_MS, None)


def _counted(tenant: str) -> Work[None]:
    """Have a call of the user's be counted."""
    tally = Tally("hourly", f"tool:add:user:{ANN}", 3_600_000, 5)
    yield from rates.count([Counting(tenant, "run_1", "call_1", [tally])])


def _billed(run_id: str) -> Work[None]:
    table = schema.usage
    yield Statement(
        insert(table).values(
            run_id=run_id, seq=2, tenant=TENANT, session_id="ses_1", agent="clerk", model="m",
            user_id=ANN, metadata='{"said": "words"}', time_ms=NOW_MS,
        )
    )()  # fmt: skip


def _left(session_id: str, what: str) -> Work[None]:
    row = {"tenant": TENANT, "session_id": session_id, "what": what, "due_ms": 0}
    yield Statement(insert(schema.leftovers).values(**row))()


def _due_in_ms() -> Work[list[int]]:
    found = yield Statement(select(schema.leftovers.c.due_ms - now_ms()))()
    return [due_in_ms for (due_in_ms,) in found]


def _held_ms() -> Work[list[int]]:
    found = yield Statement(select(schema.erasures.c.until_ms - now_ms()))()
    return [held_ms for (held_ms,) in found]
