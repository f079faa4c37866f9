"""Two open transactions at once: in every order one wins, the other is told, and no log has a gap.

Each test lets either side begin, and the other come in whole before each of its statements.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import psycopg
import pytest
from sqlalchemy import func, select

from milepost.core.approvers import Approver
from milepost.core.codec import encode
from milepost.core.decide import SKIPPED
from milepost.core.errors import (
    ConflictError,
    FencedError,
    NotFoundError,
    OverloadedError,
    ToolError,
)
from milepost.core.events import (
    Event,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.policy import Terms
from milepost.core.window import Place
from milepost.runtime import client_calls, stored_notes
from milepost.runtime.clock import now_ms
from milepost.store import (
    agents,
    approval_times,
    approvals,
    batches,
    budgets,
    chat_approvals,
    children,
    erasures,
    grants,
    idempotency,
    log,
    memories,
    new_runs,
    policies,
    queue,
    rates,
    reservations,
    runs,
    schedules,
    schema,
    secrets,
    session_forks,
    sessions,
    steers,
    tool_calls,
    withdrawals,
)
from milepost.store.address import PostgresAddress
from milepost.store.agents import AgentRow
from milepost.store.approvals import Decision
from milepost.store.budgets import BudgetRow
from milepost.store.dialect import text
from milepost.store.engine import CollisionError
from milepost.store.grants import GrantRow
from milepost.store.idempotency import Asked
from milepost.store.memories import MemoryFilter
from milepost.store.policies import PolicyRow
from milepost.store.rates import Counting, Tally
from milepost.store.records import (
    AuditRow,
    Claim,
    Entry,
    Fork,
    IfActive,
    InboxMovedError,
    NewApproval,
    NewRun,
    Page,
    Request,
    RunFilter,
)
from milepost.store.removals import close_sessions
from milepost.store.schedules import Came, ScheduleRow
from milepost.store.sessions import NewSession, SessionEdit
from milepost.store.spending import Shortage
from milepost.store.store import Store
from milepost.store.withdrawals import Withdrawal
from milepost.store.work import Statement, Work
from tests.store.budgeting import (
    CALL,
    a_call_of,
    counted,
    kept,
    place_in,
    reserving,
    settling,
)
from tests.store.conftest import opened, serving
from tests.store.making import (
    NOW_MS,
    TENANT,
    TTL_MS,
    a_finish,
    a_park,
    a_run,
    a_worker,
    an_append,
    an_approval,
    an_entry,
    an_id,
    asking,
    behind,
    being_erased,
    claims,
    events,
    finished,
    held,
    letters,
    next_claim,
    queued,
    status,
    types,
    waiting,
)
from tests.store.making_batches import a_batch, chunk
from tests.store.making_memories import a_memory
from tests.store.making_schedules import a_schedule, a_wish, an_occasion
from tests.store.stepper import Contest, Raced, S, Stepper, orders, together

LETTER = runs.Letter("approval", "{}", "approval", NOW_MS)
CAT = runs.Letter(
    client_calls.LETTER, '{"call_id":"call_1_0","result":"a cat"}', "client_tool", NOW_MS
)
Orders = Callable[[Callable[[], Awaitable[Contest[Any]]]], AsyncIterator[Raced[Any]]]


@pytest.fixture
async def store(postgres_address: PostgresAddress) -> AsyncIterator[Store]:
    """A store on Postgres: SQLite has one writer at a time."""
    async with opened(postgres_address) as engine, serving(Store(engine)) as store:
        yield store


@pytest.fixture
def every_order(postgres_address: PostgresAddress) -> Orders:
    """Runs a contest in all its orders."""

    def every(prepare: Callable[[], Awaitable[Contest[S]]]) -> AsyncIterator[Raced[S]]:
        return orders(postgres_address.url, prepare)

    return every


class Clock(Protocol):
    """Sets the time that Postgres tells."""

    def __call__(self, *, at_ms: int) -> None: ...


@pytest.fixture
def clock(postgres_address: PostgresAddress) -> Clock:
    """The database's clock, in the test's hands, for connections opened from now on."""

    def tell(*, at_ms: int) -> None:
        with psycopg.connect(postgres_address.url, autocommit=True) as connection:
            connection.execute(
                "CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz"
                f" LANGUAGE sql AS 'SELECT to_timestamp({at_ms / 1000})'"
            )
            name = connection.info.dbname
            connection.execute(f"ALTER DATABASE {name} SET search_path = public, pg_catalog")

    return tell


@dataclass(frozen=True, slots=True)
class Dead:
    """A run whose worker's lease lapsed; `claim` is what that worker still believes."""

    claim: Claim
    worker: str


async def a_dead_worker_s(store: Store) -> Dead:
    """Return a run that nobody has swept yet."""
    run = await queued(store)
    worker = await a_worker(store)
    (claim,) = await claims(store, worker)
    assert claim.run_id == run.id
    await store.write(queue.dismiss(worker))
    return Dead(claim, worker)


def claiming(worker: str) -> Any:
    return queue.claim(worker, 10, an_id("append"), NOW_MS)


def an_end(row: runs.RunRow, head: int) -> Any:
    ending = runs.Ending("cancelled", "{}", (an_entry("run.cancelled"),), head)
    return runs.end(row, ending, an_id("append"))


def winners(*outcomes: Any) -> list[Any]:
    return [outcome for outcome in outcomes if outcome and not isinstance(outcome, Exception)]


def assert_one_wins(raced: Raced[Any], *errors: type[Exception]) -> None:
    """Check that one side got what it wanted and the other was told so by one of `errors`."""
    failed = [side for side in (raced.one, raced.other) if isinstance(side, Exception)]
    assert len(failed) == 1, raced
    assert isinstance(failed[0], errors), raced


async def test_two_claims_never_take_the_same_run(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[str]:
        run = await queued(store)
        rivals = [await a_worker(store) for _ in range(2)]
        return Contest(run.id, claiming(rivals[0]), claiming(rivals[1]))

    async for raced in every_order(prepare):
        assert sorted(map(len, (raced.one, raced.other))) == [0, 1], raced
        assert types(await events(store, raced.subject)) == ["run.queued", "run.started"], raced


async def test_a_delivered_run_is_claimed_once_whoever_claims_what_is_ready(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        run = await queued(store)
        rivals = [await a_worker(store) for _ in range(2)]
        delivered = queue.claim_specific(rivals[0], [run.id], an_id("append"), NOW_MS)
        return Contest(run.id, delivered, claiming(rivals[1]))

    async for raced in every_order(prepare):
        assert sorted(map(len, (raced.one, raced.other))) == [0, 1], raced
        assert types(await events(store, raced.subject)) == ["run.queued", "run.started"], raced


async def test_a_run_that_is_delivered_twice_is_claimed_once(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        run = await queued(store)
        one, other = [
            queue.claim_specific(await a_worker(store), [run.id], an_id("append"), NOW_MS)
            for _ in range(2)
        ]
        return Contest(run.id, one, other)

    async for raced in every_order(prepare):
        assert sorted(map(len, (raced.one, raced.other))) == [0, 1], raced
        assert types(await events(store, raced.subject)) == ["run.queued", "run.started"], raced


async def test_two_claims_share_what_is_ready(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[set[str]]:
        made = {(await queued(store)).id for _ in range(3)}
        rivals = [await a_worker(store) for _ in range(2)]
        two = queue.claim(rivals[0], 2, an_id("append"), NOW_MS)
        return Contest(made, two, claiming(rivals[1]))

    async for raced in every_order(prepare):
        taken = [claim.run_id for claim in (*raced.one, *raced.other)]
        assert len(taken) == len(set(taken)), raced
        left = await claims(store, await a_worker(store))
        taken += [claim.run_id for claim in left]
        assert set(taken) == raced.subject, raced


@pytest.mark.parametrize("make", [an_append, a_park, a_finish])
async def test_a_zombie_s_append_and_its_successor_s_claim_do_not_share_a_number(
    store: Store, every_order: Orders, make: Callable[[Claim], Any]
) -> None:
    async def prepare() -> Contest[Claim]:
        dead = await a_dead_worker_s(store)
        await store.write(queue.sweep())
        return Contest(dead.claim, log.append([make(dead.claim)]), claiming(await a_worker(store)))

    async for raced in every_order(prepare):
        assert isinstance(raced.one, FencedError), raced
        assert [claim.epoch for claim in raced.other] == [2], raced
        assert types(await events(store, raced.subject.run_id))[-1] == "run.resumed", raced


async def test_a_zombie_whose_append_began_before_the_sweep_slips_in_one_and_no_more(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        dead = await a_dead_worker_s(store)
        return Contest(dead.claim, log.append([an_append(dead.claim)]), queue.sweep())

    async for raced in every_order(prepare):
        assert raced.other == [raced.subject.run_id], raced
        successor = await next_claim(store)
        log_of_run = types(await events(store, raced.subject.run_id))
        slipped_in = not isinstance(raced.one, Exception)
        assert log_of_run == (
            ["run.queued", "run.started", *["step.started"] * slipped_in, "run.resumed"]
        ), raced
        with pytest.raises(FencedError):
            await store.append(an_append(raced.subject, head=successor.head - 1))


@pytest.mark.parametrize("make", [a_park, a_finish])
async def test_a_worker_that_lets_go_while_it_is_swept_does_so_once(
    store: Store, every_order: Orders, make: Callable[[Claim], Any]
) -> None:
    async def prepare() -> Contest[Claim]:
        dead = await a_dead_worker_s(store)
        return Contest(dead.claim, log.append([make(dead.claim)]), queue.sweep())

    async for raced in every_order(prepare):
        now = await status(store, raced.subject.run_id)
        if isinstance(raced.one, Exception):
            assert isinstance(raced.one, FencedError), raced
            assert (raced.other, now) == ([raced.subject.run_id], "queued"), raced
            assert [claim.epoch for claim in await claims(store, await a_worker(store))] == [2]
        else:
            assert (raced.other, now) == ([], make(raced.subject).change.status), raced
        await events(store, raced.subject.run_id)


async def test_two_appends_at_one_head_are_not_both_written(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await held(store)
        first = an_append(claim, an_entry(), an_entry())
        return Contest(claim, log.append([first]), log.append([an_append(claim)]))

    async for raced in every_order(prepare):
        assert_one_wins(raced, CollisionError)
        written = 1 if isinstance(raced.one, Exception) else 2
        assert len(await events(store, raced.subject.run_id)) == 2 + written, raced


async def test_two_groups_with_the_same_runs_do_not_wait_for_each_other(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[list[Claim]]:
        held_ones = [await held(store) for _ in range(3)]
        one = log.append([a_finish(claim) for claim in held_ones])
        other = log.append([a_finish(claim) for claim in reversed(held_ones)])
        return Contest(held_ones, one, other)

    async for raced in every_order(prepare):
        assert_one_wins(raced, log.GroupSplitError, CollisionError)
        for claim in raced.subject:
            assert len(await events(store, claim.run_id)) == 3, raced


@pytest.mark.parametrize("make", [a_park, a_finish])
async def test_a_letter_is_never_missed_by_a_run_that_lets_go(
    store: Store, every_order: Orders, make: Callable[[Claim], Any]
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await held(store)
        return Contest(claim, log.append([make(claim)]), runs.deliver(TENANT, claim.run_id, LETTER))

    async for raced in every_order(prepare):
        now = await status(store, raced.subject.run_id)
        if isinstance(raced.one, Exception):
            assert isinstance(raced.one, InboxMovedError), raced
            assert (raced.other, now) == ("running", "running"), raced
        elif make is a_finish:
            assert (raced.other, now) == (None, "completed"), raced
        else:
            assert (raced.other, now) == ("queued", "queued"), raced
            assert len(await claims(store, await a_worker(store))) == 1, raced
        await events(store, raced.subject.run_id)


async def test_an_append_and_a_letter_do_not_disturb_each_other(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await held(store)
        return Contest(
            claim, log.append([an_append(claim)]), runs.deliver(TENANT, claim.run_id, LETTER)
        )

    async for raced in every_order(prepare):
        assert raced.one in ([(0, ())], [(1, ())]), raced
        assert raced.other == "running", raced
        assert len(await events(store, raced.subject.run_id)) == 3, raced


async def test_a_run_queued_while_another_of_its_session_ends_is_neither_active_too_nor_stranded(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        run = a_run()
        claim = await held(store, run)
        second = behind(run)
        return Contest(second.id, log.append([a_finish(claim)]), new_runs.create([second]))

    async for raced in every_order(prepare):
        assert winners(raced.one, raced.other) == [raced.one, raced.other], raced
        assert await status(store, raced.subject) == "queued", raced
        (claim,) = await claims(store, await a_worker(store))
        assert claim.run_id == raced.subject, raced


async def test_a_scheduled_run_that_starts_while_another_ends_is_not_stranded(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        run = a_run()
        claim = await held(store, run)
        later = await queued(store, behind(run, scheduled_ms=1))
        row = await store.read(runs.find(TENANT, later.id))
        return Contest(later.id, log.append([a_finish(claim)]), runs.start_scheduled(row))

    async for raced in every_order(prepare):
        assert await status(store, raced.subject) == "queued", raced
        assert len(await claims(store, await a_worker(store))) == 1, raced


async def test_two_runs_queued_in_one_free_session_are_not_both_active(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[list[str]]:
        run = a_run()
        await store.append(a_finish(await held(store, run)))
        rivals = [behind(run), behind(run)]
        return Contest(
            [rival.id for rival in rivals],
            new_runs.create([rivals[0]]),
            new_runs.create([rivals[1]]),
        )

    async for raced in every_order(prepare):
        now = sorted([await status(store, run_id) for run_id in raced.subject])
        assert now == ["blocked", "queued"], raced
        assert len(await claims(store, await a_worker(store))) == 1, raced


async def test_of_two_letters_one_wakes_the_run_and_both_arrive(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await waiting(store)
        rivals = [runs.deliver(TENANT, claim.run_id, LETTER) for _ in range(2)]
        return Contest(claim, rivals[0], rivals[1])

    async for raced in every_order(prepare):
        assert (raced.one, raced.other) == ("queued", "queued"), raced
        (again,) = await claims(store, await a_worker(store))
        assert (again.epoch, again.inbox_seq) == (2, 2), raced
        found = await letters(store, again.run_id)
        assert [letter.seq for letter in found] == [1, 2], raced
        assert types(await events(store, again.run_id)).count("run.resumed") == 1, raced


async def test_a_letter_and_a_claim_do_not_disturb_each_other(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await waiting(store)
        await store.write(runs.deliver(TENANT, claim.run_id, LETTER))
        worker = await a_worker(store)
        return Contest(claim, claiming(worker), runs.deliver(TENANT, claim.run_id, LETTER))

    async for raced in every_order(prepare):
        if not raced.one:  # The claim skipped a row that was locked: the next one takes it.
            (again,) = await claims(store, await a_worker(store))
        else:
            (again,) = raced.one
        assert again.epoch == 2, raced
        found = await letters(store, again.run_id)
        assert [letter.seq for letter in found] == [1, 2], raced


@pytest.mark.parametrize("answers", [("approve", "deny"), ("approve", "approve")])
async def test_of_two_decisions_one_counts(
    store: Store, every_order: Orders, answers: Sequence[Any]
) -> None:
    async def prepare() -> Contest[str]:
        asked = await asking(store)
        works = [
            approvals.decide(TENANT, asked.id, Decision(answer, by), NOW_MS)
            for answer, by in zip(answers, ("ann", "bob"), strict=True)
        ]
        return Contest(asked.id, works[0], works[1])

    async for raced in every_order(prepare):
        assert_one_wins(raced, approvals.DecidedError)
        (won,) = winners(raced.one, raced.other)
        for side in (raced.one, raced.other):
            assert side == won or side.winner == won.approval, raced
        found = await letters(store, won.approval.run_id)
        assert [letter.kind for letter in found] == ["approval"], raced
        assert await status(store, won.approval.run_id) == "queued", raced


async def test_a_decision_and_its_expiry_do_not_both_count(
    store: Store, every_order: Orders, clock: Clock
) -> None:
    async def prepare() -> Contest[str]:
        clock(at_ms=500)
        asked = await asking(store, expires_ms=1_000)
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        expiry = approval_times.expire_due(NOW_MS, 10)
        return Contest(asked.id, decision, expiry, meanwhile=lambda: clock(at_ms=1_001))

    won: set[str] = set()
    async for raced in every_order(prepare):
        await store.write(approval_times.expire_due(NOW_MS, 10))  # what was locked was skipped
        row = await store.read(approvals.find(TENANT, raced.subject))
        decided = not isinstance(raced.one, Exception)
        assert decided or raced.one.code == "approval_expired", raced
        assert row.status == ("approved" if decided else "expired"), raced
        (letter,) = await letters(store, row.run_id)
        assert letter.kind == ("approval" if decided else "approval_expired"), raced
        won.add(row.status)
    assert won == {"approved", "expired"}


async def test_a_decision_that_comes_too_late_meets_its_expiry_without_a_knot(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[NewApproval]:
        asked = await asking(store, expires_ms=1)
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        return Contest(asked, decision, approval_times.expire_due(NOW_MS, 10))

    async for raced in every_order(prepare):
        assert isinstance(raced.one, ConflictError), raced
        assert raced.one.code == "approval_expired", raced
        skipped = await store.write(approval_times.expire_due(NOW_MS, 10))
        assert [*raced.other, *skipped] == [(TENANT, raced.subject.run_id)], raced
        assert len(await letters(store, raced.subject.run_id)) == 1, raced


async def test_a_question_expires_once(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[NewApproval]:
        asked = await asking(store, expires_ms=1)
        return Contest(
            asked, approval_times.expire_due(NOW_MS, 10), approval_times.expire_due(NOW_MS, 10)
        )

    async for raced in every_order(prepare):
        assert [*raced.one, *raced.other] == [(TENANT, raced.subject.run_id)], raced
        assert len(await letters(store, raced.subject.run_id)) == 1, raced


async def test_a_decision_and_an_escalation_do_not_both_count(
    store: Store, every_order: Orders, clock: Clock
) -> None:
    terms = Terms(
        approvers=("key:ann",), ttl_s=4e9, on_timeout="escalate", escalate_to=("key:bob",)
    )

    async def prepare() -> Contest[str]:
        clock(at_ms=500)
        asked = await asking(store, expires_ms=1_000, terms=terms)
        answer = Decision("approve", "ann", who=Approver("ann"))
        decision = approvals.decide(TENANT, asked.id, answer, NOW_MS)
        expiry = approval_times.expire_due(NOW_MS, 10)
        return Contest(asked.id, decision, expiry, meanwhile=lambda: clock(at_ms=1_001))

    won: set[str] = set()
    async for raced in every_order(prepare):
        await store.write(approval_times.expire_due(NOW_MS, 10))  # what was locked was skipped
        row = await store.read(approvals.find(TENANT, raced.subject))
        decided = not isinstance(raced.one, Exception)
        assert decided or raced.one.code in {"approval_expired", "not_an_approver"}, raced
        expected = ("approved", 0) if decided else ("pending", 1)
        assert (row.status, row.escalated) == expected, raced
        (letter,) = await letters(store, row.run_id)
        assert letter.kind == ("approval" if decided else "approval_escalated"), raced
        won.add(row.status)
    assert won == {"approved", "pending"}


async def test_a_decision_and_a_withdrawal_do_not_both_count(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        asked = await asking(store)
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        taking = withdrawals.withdraw(TENANT, asked.id, Withdrawal("bob"), NOW_MS)
        return Contest(asked.id, decision, taking)

    async for raced in every_order(prepare):
        assert_one_wins(raced, ConflictError)
        row = await store.read(approvals.find(TENANT, raced.subject))
        decided = not isinstance(raced.one, Exception)
        assert row.status == ("approved" if decided else "withdrawn"), raced
        assert len(await letters(store, row.run_id)) == 1, raced


async def test_decisions_in_one_go_and_a_group_that_lets_their_runs_go_make_no_knot(
    store: Store, postgres_address: PostgresAddress
) -> None:
    workers = [await a_worker(store) for _ in range(3)]
    held_ones, ids = [], []
    for worker in reversed(workers):  # Neither in the order of the runs.
        await queued(store)
        (claim,) = await claims(store, worker)
        question = an_approval(claim)
        await store.append(an_append(claim, approvals=(question,)))
        held_ones.append(claim)
        ids.append(question.id)
    first, middle, last = held_ones
    group = log.append([a_finish(claim, head=claim.head + 1) for claim in (last, first)])

    decided, appended = together(
        postgres_address.url,
        runs.deliver(TENANT, middle.run_id, LETTER),
        approving_all(ids),
        group,
    )

    assert [each.approval.status for each in decided] == ["approved"] * 3
    assert isinstance(appended, log.GroupSplitError)


async def test_decisions_in_one_go_and_a_child_that_tells_of_its_end_make_no_knot(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        parent = await asking(store)
        call = {"parent_run_id": parent.run_id, "parent_call_id": "call_1_0"}
        claim = await held(store, a_run(**call))
        question = an_approval(claim)
        await store.append(an_append(claim, approvals=(question,)))
        await store.append(a_finish(claim, head=claim.head + 1))
        child = await store.read(runs.find(TENANT, claim.run_id))
        ids = [parent.id, question.id]
        return Contest(parent.run_id, approving(ids, parent.id), children.tell(child, NOW_MS))

    async for raced in every_order(prepare):
        assert raced.one.approval.status == "approved", raced
        assert raced.other, raced
        kinds = {letter.kind for letter in await letters(store, raced.subject)}
        assert kinds == {"approval", "child_run"}, raced


def approving(locked: Sequence[str], approval_id: str) -> Work[approvals.Decided]:
    """Say yes to one of several questions, all of whose runs are locked."""
    yield from approvals.lock_runs_of(TENANT, locked)
    return (yield from approvals.decide(TENANT, approval_id, Decision("approve", "ann"), NOW_MS))


def approving_all(approval_ids: Sequence[str]) -> Work[list[approvals.Decided]]:
    """Say yes to several questions in one go."""
    yield from approvals.lock_runs_of(TENANT, approval_ids)
    yes = Decision("approve", "ann")
    decided: list[approvals.Decided] = []
    for each in approval_ids:
        decided += [(yield from approvals.decide(TENANT, each, yes, NOW_MS))]
    return decided


async def test_two_votes_make_one_decision(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[str]:
        asked = await asking(store, terms=Terms(required=2))
        works = [
            approvals.decide(TENANT, asked.id, Decision("approve", by, digest="sha256:1"), NOW_MS)
            for by in ("ann", "bob")
        ]
        return Contest(asked.id, works[0], works[1])

    async for raced in every_order(prepare):
        row = await store.read(approvals.find(TENANT, raced.subject))
        statuses = sorted(side.approval.status for side in (raced.one, raced.other))
        assert (row.status, statuses) == ("approved", ["approved", "pending"]), raced
        assert len(await letters(store, row.run_id)) == 1, raced


async def test_a_question_expires_or_falls_away_with_its_run_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[NewApproval]:
        claim = await held(store)
        asked = an_approval(claim, expires_ms=1)
        await store.append(an_append(claim, approvals=(asked,)))
        finish = log.append([a_finish(claim, head=claim.head + 1)])
        return Contest(asked, finish, approval_times.expire_due(NOW_MS, 10))

    async for raced in every_order(prepare):
        row = await store.read(approvals.find(TENANT, raced.subject.id))
        if isinstance(raced.one, Exception):
            assert isinstance(raced.one, InboxMovedError), raced
            assert row.status == "expired", raced
        else:
            assert (row.status, raced.other) == ("withdrawn", []), raced


async def test_a_decision_and_the_end_of_its_run_do_not_both_count(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        asked = await asking(store)
        row = await store.read(runs.find(TENANT, asked.run_id))
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        return Contest(asked.id, decision, an_end(row, head=3))

    async for raced in every_order(prepare):
        assert_one_wins(raced, runs.StaleError, ConflictError)
        row = await store.read(approvals.find(TENANT, raced.subject))
        decided = not isinstance(raced.one, Exception)
        assert row.status == ("approved" if decided else "withdrawn"), raced
        assert await status(store, row.run_id) == ("queued" if decided else "cancelled"), raced


async def test_a_decision_on_a_running_run_and_its_end_do_not_both_count(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        claim = await held(store)
        asked = an_approval(claim)
        await store.append(an_append(claim, approvals=(asked,)))
        finish = log.append([a_finish(claim, head=claim.head + 1)])
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        return Contest(asked.id, decision, finish)

    async for raced in every_order(prepare):
        assert_one_wins(raced, InboxMovedError, ConflictError)
        row = await store.read(approvals.find(TENANT, raced.subject))
        decided = not isinstance(raced.one, Exception)
        assert row.status == ("approved" if decided else "withdrawn"), raced


async def test_a_decision_and_a_run_that_goes_on_without_an_answer_do_not_both_count(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        claim = await held(store)
        asked = an_approval(claim)
        await store.append(an_append(claim, approvals=(asked,)))
        taken_back = an_append(
            claim, an_entry("approval.withdrawn"), head=claim.head + 1, withdrawn=(asked.id,)
        )
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        return Contest(asked.id, decision, log.append([taken_back]))

    won: set[str] = set()
    async for raced in every_order(prepare):
        assert_one_wins(raced, InboxMovedError, ConflictError)
        row = await store.read(approvals.find(TENANT, raced.subject))
        decided = not isinstance(raced.one, Exception)
        assert row.status == ("approved" if decided else "withdrawn"), raced
        told = types(await events(store, row.run_id))
        assert ("approval.withdrawn" in told) is not decided, raced
        won.add(row.status)
    assert won == {"approved", "withdrawn"}


async def test_a_call_is_not_answered_anew_while_its_run_reads_the_answer(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        claim = await awaiting_its_client(store)
        await store.write(runs.deliver(TENANT, claim.run_id, CAT))
        reading = an_append(
            claim,
            encoded(ToolCallCompleted("call_1_0", "a cat", 0)),
            inbox_seen=1,
            inbox_consumed=True,
        )
        return Contest(claim.run_id, answering(claim.run_id, "a dog"), log.append([reading]))

    async for raced in every_order(prepare):
        assert isinstance(raced.one, client_calls.AnsweredCallError), raced
        assert not isinstance(raced.other, Exception), raced


async def test_a_call_is_answered_or_skipped_by_its_run_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await awaiting_its_client(store)
        skipped = encoded(ToolCallFailed("call_1_0", SKIPPED))
        skipping = an_append(claim, skipped, skips=True)
        return Contest(claim, bringing(claim.run_id, "a cat"), log.append([skipping]))

    won: set[str] = set()
    async for raced in every_order(prepare):
        assert_one_wins(raced, InboxMovedError, client_calls.AnsweredCallError)
        last = types(await events(store, raced.subject.run_id))[-1]
        brought = await letters(store, raced.subject.run_id)
        assert (last, len(brought)) in {("tool_call.failed", 0), ("tool_call.started", 1)}, raced
        won.add(last)
    assert won == {"tool_call.failed", "tool_call.started"}


async def awaiting_its_client(store: Store) -> Claim:
    """Return the claim of a run that has a call which its client may answer."""
    claim = await held(store)
    begun: tuple[Event, ...] = (
        ToolCallRequested("call_1_0", "look", {}, "client", "key", "msg_1"),
        ToolCallStarted("call_1_0", 1, "once"),
    )
    await store.append(an_append(claim, *map(encoded, begun)))
    return replace(claim, head=claim.head + len(begun))


def bringing(run_id: str, result: str) -> Work[str | None]:
    """Bring a result, if it may be."""
    yield from answering(run_id, result)
    return (yield from runs.deliver(TENANT, run_id, CAT))


def answering(run_id: str, result: str) -> Work[client_calls.ClientCall]:
    """Bring another result, as far as it may be."""
    calls = client_calls.calls_of(*(yield from tool_calls.locked(TENANT, run_id)))
    return client_calls.require_awaited(calls, "call_1_0", client_calls.Answer(result))


def encoded(event: Event) -> Entry:
    """Return the event as it is written down."""
    return Entry(event.type, NOW_MS, encode(event).decode())


async def test_two_sweeps_queue_a_run_once(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[Dead]:
        return Contest(await a_dead_worker_s(store), queue.sweep(), queue.sweep())

    async for raced in every_order(prepare):
        assert sorted(map(len, (raced.one, raced.other))) == [0, 1], raced
        assert len(await claims(store, await a_worker(store))) == 1, raced


async def test_a_worker_renews_its_lease_or_is_swept_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        worker = await a_worker(store, ttl_ms=-1)
        return Contest(worker, queue.renew(worker, TTL_MS), queue.sweep())

    async for raced in every_order(prepare):
        renewed = not isinstance(raced.one, Exception)
        assert renewed or isinstance(raced.one, FencedError), raced
        await queued(store)
        taken = await claims(store, raced.subject)
        assert bool(taken) == renewed, raced
        if not renewed:
            await claims(store, await a_worker(store))


async def test_a_lapsed_worker_s_claim_is_swept_sooner_or_later(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        run = await queued(store)
        worker = await a_worker(store)
        return Contest(run.id, claiming(worker), queue.dismiss(worker))

    async for raced in every_order(prepare):
        await store.write(queue.sweep())
        assert await status(store, raced.subject) == "queued", raced
        assert len(await claims(store, await a_worker(store))) == 1, raced


@pytest.mark.parametrize("make", [an_append, a_park, a_finish])
async def test_a_run_ended_by_force_has_one_last_event(
    store: Store, every_order: Orders, make: Callable[[Claim], Any]
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await held(store)
        row = await store.read(runs.find(TENANT, claim.run_id))
        return Contest(claim, log.append([make(claim)]), an_end(row, claim.head))

    async for raced in every_order(prepare):
        assert_one_wins(raced, FencedError, CollisionError, runs.StaleError)
        if not isinstance(raced.one, Exception):
            assert isinstance(raced.other, runs.StaleError), raced
        last = make(raced.subject).entries[-1].type
        expected = last if isinstance(raced.other, Exception) else "run.cancelled"
        assert types(await events(store, raced.subject.run_id))[2:] == [expected], raced


async def test_a_run_is_claimed_or_cancelled_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        run = await queued(store)
        row = await store.read(runs.find(TENANT, run.id))
        return Contest(run.id, claiming(await a_worker(store)), an_end(row, head=1))

    async for raced in every_order(prepare):
        ended = not isinstance(raced.other, Exception)
        assert ended or isinstance(raced.other, runs.StaleError), raced
        assert bool(raced.one) != ended, raced
        assert types(await events(store, raced.subject))[1:] == (
            ["run.cancelled"] if ended else ["run.started"]
        ), raced


async def test_two_requests_with_one_key_have_one_effect(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[str]:
        request = Request("POST /v1/agents", an_id("key"), "hash")
        rivals = [Asked(TENANT, request, an_id("agt"), NOW_MS) for _ in range(2)]
        works = [idempotency.remember(asked) for asked in rivals]
        return Contest(" ".join(asked.resource_id for asked in rivals), works[0], works[1])

    async for raced in every_order(prepare):
        ids = raced.subject.split()
        assert (raced.one, raced.other) in [(None, ids[0]), (ids[1], None)], raced


async def test_runs_queued_with_the_same_keys_in_another_order_do_not_wait_for_each_other(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[None]:
        requests = [Request("POST /v1/runs", an_id("key"), "hash") for _ in range(3)]
        one = new_runs.create([a_run(request=request) for request in requests])
        other = new_runs.create([a_run(request=request) for request in reversed(requests)])
        return Contest(None, one, other)

    async for raced in every_order(prepare):
        if isinstance(raced.one, Exception) or isinstance(raced.other, Exception):
            assert_one_wins(raced, CollisionError)
        else:  # the second came in so late that it found the keys
            replayed = [created.replayed for created in (*raced.one, *raced.other)]
            assert sorted(replayed) == [False] * 3 + [True] * 3, raced


async def test_two_that_apply_the_same_agent_make_it_once(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        name = an_id("agent")
        works = [
            agents.apply(TENANT, name, "{}", agent_id=an_id("agt"), now_ms=1) for _ in range(2)
        ]
        return Contest(name, works[0], works[1])

    async for raced in every_order(prepare):
        assert raced.one == raced.other, raced
        assert raced.one.version == 1, raced


async def test_two_that_apply_the_same_change_make_one_version(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        name = an_id("agent")
        made = agents.create(TENANT, name, "{}", agent_id=an_id("agt"), now_ms=1)
        await store.write(made)
        works = [
            agents.apply(TENANT, name, "[]", agent_id=an_id("agt"), now_ms=2) for _ in range(2)
        ]
        return Contest(name, works[0], works[1])

    async for raced in every_order(prepare):
        assert raced.one == raced.other, raced
        assert (raced.one.version, raced.one.definition) == (2, "[]"), raced


async def test_two_changes_of_one_version_are_not_both_made(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        agent_id = an_id("agt")
        await store.write(agents.create(TENANT, agent_id, "{}", agent_id=agent_id, now_ms=1))
        works = [
            agents.revise(TENANT, agent_id, definition, now_ms=2, expected_version=1)
            for definition in ("one", "other")
        ]
        return Contest(agent_id, works[0], works[1])

    async for raced in every_order(prepare):
        assert_one_wins(raced, ConflictError)
        (won,) = winners(raced.one, raced.other)
        assert await store.read(agents.find(TENANT, raced.subject)) == won, raced


async def test_a_secret_put_twice_at_once_is_one_of_both(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[str]:
        name = an_id("secret")
        works = [secrets.put(TENANT, name, sealed, 1) for sealed in ("one", "other")]
        return Contest(name, works[0], works[1])

    async for raced in every_order(prepare):
        assert (raced.one, raced.other) == (None, None), raced
        assert await store.read(secrets.get(TENANT, raced.subject)) in {"one", "other"}, raced


async def test_a_session_is_erased_or_gets_another_run_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[NewRun]:
        run = a_run()
        await store.append(a_finish(await held(store, run)))
        another = behind(run)
        erasing = sessions.delete(TENANT, run.session_id)
        return Contest(another, erasing, new_runs.create([another]))

    async for raced in every_order(prepare):
        erased = not isinstance(raced.one, Exception)
        (created,) = raced.other
        assert erased == isinstance(created, NotFoundError), raced
        if not erased:
            assert raced.one.code == "session_busy", raced
            assert await status(store, raced.subject.id) == "queued", raced


async def test_a_session_is_erased_or_gets_another_run_beside_a_fork_without_a_knot(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[list[NewRun]]:
        run = a_run()
        await store.append(a_finish(await held(store, run)))
        act = AuditRow(an_id("aud"), TENANT, "key_1", "run.forked", run.id, "{}", NOW_MS)
        fork = a_run(fork=Fork(run.id, 3, an_entry("run.forked"), act))
        group = [behind(run), fork]
        return Contest(group, sessions.delete(TENANT, run.session_id), new_runs.create(group))

    async for raced in every_order(prepare):
        erased = not isinstance(raced.one, Exception)
        assert [isinstance(each, NotFoundError) for each in raced.other] == [erased] * 2, raced
        if not erased:
            assert raced.one.code == "session_busy", raced
            for run in raced.subject:
                assert await status(store, run.id) == "queued", raced


async def test_a_session_is_erased_or_forked_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        claim = await finished(store)
        new = NewSession(an_id("ses"), TENANT, None, None, "{}", 1)
        forking = session_forks.fork(new, claim.session_id, Place(1, 0))
        return Contest(new.id, sessions.delete(TENANT, claim.session_id), forking)

    async for raced in every_order(prepare):
        erased = not isinstance(raced.one, Exception)
        assert erased == isinstance(raced.other, NotFoundError), raced
        if not erased:
            assert raced.one.code == "session_has_forks", raced
            found = await store.read(sessions.find(TENANT, raced.subject))
            assert found == raced.other, raced


async def test_a_session_is_archived_or_gets_another_run_in_some_order(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[NewRun]:
        run = await queued(store)
        edit = SessionEdit(None, "{}", archived_ms=NOW_MS)
        archiving = sessions.change(TENANT, run.session_id, edit, now_ms=NOW_MS)
        another = behind(run)
        return Contest(another, archiving, new_runs.create([another]))

    async for raced in every_order(prepare):
        assert raced.one.archived_ms == NOW_MS, raced
        (created,) = raced.other
        if isinstance(created, Exception):
            assert isinstance(created, ConflictError), raced
            assert created.code == "session_archived", raced
        else:
            assert await status(store, raced.subject.id) == "blocked", raced


async def test_a_session_is_erased_while_somebody_decides_on_what_is_over(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        claim = await held(store)
        asked = an_approval(claim)
        await store.append(an_append(claim, approvals=(asked,)))
        await store.append(a_finish(claim, head=claim.head + 1))
        decision = approvals.decide(TENANT, asked.id, Decision("approve", "ann"), NOW_MS)
        return Contest(asked.id, sessions.delete(TENANT, claim.session_id), decision)

    async for raced in every_order(prepare):
        assert not isinstance(raced.one, Exception), raced
        assert isinstance(raced.other, (ConflictError, NotFoundError)), raced


async def test_a_session_is_erased_with_those_below_while_somebody_decides_on_all_in_one_go(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        parent, ids = await held(store), []
        child = await held(store, a_run(parent_run_id=parent.run_id, parent_call_id="call_1_0"))
        for claim in (child, parent):
            question = an_approval(claim)
            await store.append(an_append(claim, approvals=(question,)))
            await store.append(a_finish(claim, head=claim.head + 1))
            ids.append(question.id)
        over = await store.read(runs.find(TENANT, child.run_id))
        await store.write(children.tell(over, NOW_MS))
        erasing = sessions.delete(TENANT, parent.session_id)
        return Contest(ids[0], erasing, approving(ids, ids[0]))

    async for raced in every_order(prepare):
        assert not isinstance(raced.one, Exception), raced
        assert isinstance(raced.other, (ConflictError, NotFoundError)), raced


async def test_a_session_below_is_erased_or_gets_a_run_of_a_client_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[NewRun]:
        top = await finished(store)
        child = a_run(parent_run_id=top.run_id, parent_call_id="call_1_0")
        await finished(store, child)
        another = behind(child)
        erasing = sessions.delete(TENANT, top.session_id)
        return Contest(another, erasing, new_runs.create([another]))

    async for raced in every_order(prepare):
        (created,) = raced.other
        erased = raced.subject.session_id in raced.one
        assert erased == isinstance(created, NotFoundError), raced
        if not erased:
            assert await status(store, raced.subject.id) == "queued", raced


# --- Budgets ---


@pytest.mark.parametrize("before", [0, 1])
async def test_two_calls_do_not_both_take_the_last_one_of_a_budget(
    store: Store, every_order: Orders, before: int
) -> None:
    claim = await held(store)

    async def prepare() -> Contest[BudgetRow]:
        budget = await kept(store, model_calls=before + 1)
        for _ in range(before):
            await store.write(reserving(a_call_of(claim), place_in(budget)))
        one, other = (reserving(a_call_of(claim), place_in(budget)) for _ in range(2))
        return Contest(budget, one, other)

    async for raced in every_order(prepare):
        assert [raced.one, raced.other].count(CALL) == 1, raced
        assert [type(side) for side in (raced.one, raced.other)].count(Shortage) == 1, raced
        assert await counted(store, raced.subject) == (0, before + 1), raced


async def test_calls_that_count_in_the_same_budgets_do_not_wait_for_each_other_for_ever(
    store: Store, every_order: Orders
) -> None:
    claim = await held(store)

    async def prepare() -> Contest[list[BudgetRow]]:
        rows = [await kept(store, model_calls=1) for _ in range(3)]
        places = [place_in(row) for row in rows]
        return Contest(
            rows,
            reserving(a_call_of(claim), *places),
            reserving(a_call_of(claim), *reversed(places)),
        )

    async for raced in every_order(prepare):
        assert [raced.one, raced.other].count(CALL) == 1, raced
        assert [await counted(store, row) for row in raced.subject] == [(0, 1)] * 3, raced


async def test_a_call_that_is_settled_leaves_the_rest_to_one_that_reserves(
    store: Store, every_order: Orders
) -> None:
    claim = await held(store)

    async def prepare() -> Contest[BudgetRow]:
        budget = await kept(store, model_calls=2)
        call, place = a_call_of(claim), place_in(budget)
        await store.write(reserving(call, place))
        return Contest(budget, settling(call, place), reserving(a_call_of(claim), place))

    async for raced in every_order(prepare):
        assert (raced.one, raced.other) == ((), CALL), raced
        assert await counted(store, raced.subject) == (1, 1), raced


async def test_one_crossing_is_warned_of_once(store: Store, every_order: Orders) -> None:
    claim = await held(store)

    async def prepare() -> Contest[BudgetRow]:
        budget = await kept(store, model_calls=9, warn_at=0.1)
        place = place_in(budget)
        calls = [a_call_of(claim) for _ in range(2)]
        for call in calls:
            await store.write(reserving(call, place))
        one, other = (settling(call, place) for call in calls)
        return Contest(budget, one, other)

    async for raced in every_order(prepare):
        assert sorted(map(len, (raced.one, raced.other))) == [0, 1], raced
        assert await counted(store, raced.subject) == (2, 0), raced


async def test_what_was_left_behind_is_given_back_once(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[list[BudgetRow]]:
        claim = await held(store)
        rows = [await kept(store), await kept(store)]
        for _ in range(2):
            await store.write(reserving(a_call_of(claim), *map(place_in, rows)))
        await store.append(a_finish(claim))
        return Contest(rows, reservations.free(TENANT), reservations.free())

    async for raced in every_order(prepare):
        assert raced.one + raced.other == 4, raced
        assert [await counted(store, row) for row in raced.subject] == [(0, 0)] * 2, raced


async def test_a_late_call_is_settled_or_given_back_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[list[BudgetRow]]:
        claim = await held(store)
        rows = [await kept(store), await kept(store)]
        call, places = a_call_of(claim), [place_in(row) for row in rows]
        await store.write(reserving(call, *places))
        await store.append(a_finish(claim))
        return Contest(rows, settling(call, *places), reservations.free())

    async for raced in every_order(prepare):
        spent = [await counted(store, row) for row in raced.subject]
        assert set(spent) <= {(0, 0), (1, 0)}, raced
        assert raced.other == spent.count((0, 0)), raced


async def test_a_budget_goes_with_its_counters_whoever_reserves_just_then(
    store: Store, every_order: Orders
) -> None:
    claim = await held(store)

    async def prepare() -> Contest[BudgetRow]:
        budget = await kept(store, model_calls=1)
        deleting = budgets.delete(TENANT, budget.id)
        return Contest(budget, deleting, reserving(a_call_of(claim), place_in(budget)))

    async for raced in every_order(prepare):
        assert (raced.one, raced.other) == (None, CALL), raced
        assert await orphans(store, raced.subject) == (0, 0), raced


async def test_a_budget_goes_with_its_counters_whoever_gives_back_just_then(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[BudgetRow]:
        claim = await held(store)
        budget = await kept(store, scope="user")
        for user in ("ann", "bob", "eve"):
            await store.write(reserving(a_call_of(claim), place_in(budget, user)))
        await store.append(a_finish(claim))
        return Contest(budget, budgets.delete(TENANT, budget.id), reservations.free())

    async for raced in every_order(prepare):
        assert raced.one is None, raced
        assert raced.other in {0, 3}, raced
        assert await orphans(store, raced.subject) == (0, 0), raced


async def orphans(store: Store, budget: BudgetRow) -> tuple[int, int]:
    """Return how many counters and reservations a budget has, though it may be gone."""
    return await store.read(_rows_of(budget.id))


def _rows_of(budget_id: str) -> Work[tuple[int, int]]:
    ((kept,),), ((reserved,),) = yield (
        _COUNTERS_OF(budget_id=budget_id),
        _RESERVATIONS_OF(budget_id=budget_id),
    )
    return kept, reserved


_COUNTERS_OF, _RESERVATIONS_OF = (
    Statement(select(func.count()).where(table.c.budget_id == text("budget_id")))
    for table in (schema.budget_counters, schema.budget_reservations)
)


# --- Chats ---


async def test_who_goes_on_in_a_chat_and_who_ends_its_run_do_not_wait_for_each_other_for_ever(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[NewRun]:
        asked = await asking(store)
        row = await store.read(runs.find(TENANT, asked.run_id))
        head = await store.read(log.head(TENANT, asked.run_id))
        question = await store.read(approvals.find(TENANT, asked.id))
        message = a_run(session_id=row.session_id, session_is_new=False)
        return Contest(message, going_on(question, message), an_end(row, head))

    async for raced in every_order(prepare):
        (made,) = raced.one
        assert isinstance(made, new_runs.Created), raced
        assert not isinstance(raced.other, Exception), raced
        assert await status(store, raced.subject.id) == "queued", raced


def going_on(question: approvals.ApprovalRow, message: NewRun) -> Work[Any]:
    """Do as a message does in a chat that waits for an answer: take the question back, and run."""
    yield from chat_approvals.supersede(question, message.session_id, "ann", NOW_MS)
    return (yield from new_runs.create([message]))


# --- Policies, grants and rates ---

HOUR_MS = 3_600_000


def counting(
    key: str, *, within_ms: int = HOUR_MS, more: Sequence[str] = ()
) -> Work[dict[str, int]]:
    """Count another call as often as there are keys."""
    tallies = [Tally(each, each, within_ms, 100) for each in (key, *more)]
    [counts] = yield from rates.count([Counting(TENANT, "run_1", an_id("call"), tallies)])
    return counts


async def test_two_calls_are_not_counted_as_the_same_one(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[str]:
        key = an_id("key")
        return Contest(key, counting(key), counting(key))

    async for raced in every_order(prepare):
        assert sorted((raced.one[raced.subject], raced.other[raced.subject])) == [1, 2], raced


async def test_calls_that_are_counted_alike_do_not_wait_for_each_other_for_ever(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        one, other = an_id("key"), an_id("key")
        return Contest(one, counting(one, more=[other]), counting(other, more=[one]))

    async for raced in every_order(prepare):
        assert sorted(raced.one.values()) in ([1, 1], [2, 2]), raced
        assert raced.one != raced.other, raced


async def test_a_call_that_comes_while_old_counts_are_purged_is_counted(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[str]:
        key = an_id("key")
        await store.write(counting(key, within_ms=-2 * rates.KEPT_MS))
        return Contest(key, rates.purge(now_ms()), counting(key))

    async for raced in every_order(prepare):
        assert raced.other == {raced.subject: 1}, raced
        assert await store.write(counting(raced.subject)) == {raced.subject: 2}, raced


async def test_two_first_policies_of_one_scope_are_not_both_kept(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[PolicyRow]:
        before = PolicyRow(TENANT, an_id("ses"))
        return Contest(before, policies.replace(before, "1"), policies.replace(before, "2"))

    async for raced in every_order(prepare):
        assert_one_wins(raced, ConflictError)
        (won,) = winners(raced.one, raced.other)
        assert await store.read(policies.get(TENANT, raced.subject.scope)) == won, raced


async def test_a_policy_is_replaced_or_removed_but_not_both(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[PolicyRow]:
        scope = an_id("ses")
        before = await store.write(policies.replace(PolicyRow(TENANT, scope), "1"))
        return Contest(before, policies.replace(before, "2"), policies.remove(before))

    async for raced in every_order(prepare):
        assert_one_wins(raced, ConflictError)
        kept = await store.read(policies.get(TENANT, raced.subject.scope))
        assert kept.policy == ("null" if isinstance(raced.one, Exception) else "2"), raced


async def test_a_grant_is_taken_back_by_one_person(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[str]:
        grant = GrantRow(an_id("gra"), TENANT, an_id("ses"), "pay", None, "apr_1", "ann", 1, 2**53)
        await store.write(grants.add(grant))
        works = [grants.revoke(TENANT, grant.id, by, NOW_MS) for by in ("bob", "eve")]
        return Contest(grant.id, works[0], works[1])

    async for raced in every_order(prepare):
        (one, first), (other, second) = raced.one, raced.other
        assert sorted((first, second)) == [False, True], raced
        assert one == other, raced


# --- Who comes to a busy session ---


def arriving(run: NewRun, then: str) -> NewRun:
    said = (f'{{"message_id":"{an_id("ste")}"}}',) if then == "steer" else ()
    return behind(run, if_active=IfActive(then, "ann", said, ("ste",)))  # type: ignore[arg-type]


@pytest.mark.parametrize("then", ["interrupt", "rollback"])
async def test_a_run_ends_of_itself_or_is_told_to_stop_by_the_one_that_replaces_it(
    store: Store, every_order: Orders, then: str
) -> None:
    async def prepare() -> Contest[tuple[Claim, NewRun]]:
        run = a_run()
        claim = await held(store, run)
        second = arriving(run, then)
        return Contest((claim, second), log.append([a_finish(claim)]), new_runs.create([second]))

    async for raced in every_order(prepare):
        claim, second = raced.subject
        (created,) = raced.other
        row = await store.read(runs.find(TENANT, claim.run_id))
        told = isinstance(raced.one, InboxMovedError)
        assert told or not isinstance(raced.one, Exception), raced
        assert (created.replaces == (claim.run_id,)) == told, raced
        assert (row.status, await status(store, second.id)) == (
            ("running", "blocked") if told else ("completed", "queued")
        ), raced
        by = second.id if told and then == "rollback" else None
        assert row.rolled_back_by == by, raced


async def test_what_a_run_notes_is_forgotten_or_refused_where_another_takes_its_place(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        run = a_run()
        claim = await held(store, run)
        noting = stored_notes._kept(a_memory(run_id=run.id))
        return Contest(claim, noting, new_runs.create([arriving(run, "rollback")]))

    async for raced in every_order(prepare):
        claim = raced.subject
        row = await store.read(runs.find(TENANT, claim.run_id))
        noted = memories.search(TENANT, MemoryFilter(run_id=claim.run_id), Page(10))
        assert row.rolled_back_by is not None, raced
        assert not isinstance(raced.one, Exception) or isinstance(raced.one, ToolError), raced
        assert await store.read(noted) == [], raced


async def test_what_is_said_reaches_the_run_under_way_or_makes_one_but_is_not_lost(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[tuple[Claim, NewRun]]:
        run = a_run()
        claim = await held(store, run)
        second = arriving(run, "steer")
        return Contest((claim, second), log.append([a_finish(claim)]), new_runs.create([second]))

    async for raced in every_order(prepare):
        claim, second = raced.subject
        (created,) = raced.other
        if created.steered:
            assert isinstance(raced.one, InboxMovedError), raced
            assert len(await letters(store, claim.run_id)) == 1, raced
        else:
            assert await status(store, claim.run_id) == "completed", raced
            assert await status(store, second.id) == "queued", raced


async def test_of_two_that_replace_the_run_under_way_one_replaces_the_other_as_well(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[list[NewRun]]:
        run = a_run()
        await held(store, run)
        rivals = [arriving(run, "rollback"), arriving(run, "interrupt")]
        return Contest([run, *rivals], new_runs.create([rivals[0]]), new_runs.create([rivals[1]]))

    async for raced in every_order(prepare):
        first, *rivals = raced.subject
        replaced = [set(outcome[0].replaces) for outcome in (raced.one, raced.other)]
        assert all(first.id in each for each in replaced), raced
        assert sum(rival.id in each for rival in rivals for each in replaced) == 1, raced


async def test_what_is_said_to_a_run_is_refused_or_read_before_it_ends(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[Claim]:
        claim = await held(store)
        letter = ['{"message_id":"ste_1"}']
        return Contest(
            claim, log.append([a_finish(claim)]), steers.steer(TENANT, claim.run_id, letter, NOW_MS)
        )

    async for raced in every_order(prepare):
        assert_one_wins(raced, InboxMovedError, steers.RunOverError)


async def test_runs_of_one_session_have_places_of_their_own(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[list[NewRun]]:
        run = a_run()
        await held(store, run)
        rivals = [behind(run), behind(run)]
        return Contest(rivals, new_runs.create([rivals[0]]), new_runs.create([rivals[1]]))

    async for raced in every_order(prepare):
        rows = [await store.read(runs.find(TENANT, rival.id)) for rival in raced.subject]
        assert sorted(row.ahead or 0 for row in rows) == [1, 2], raced


# --- Schedules ---


async def a_due_schedule(store: Store, **changes: Any) -> ScheduleRow:
    """Keep a schedule of an agent of its own, so that its runs are told from others'."""
    name = an_id("clerk")
    await store.write(agents.create(TENANT, name, "{}", agent_id=an_id("agt"), now_ms=NOW_MS))
    return await store.write(schedules.create(a_schedule(agent=name, **changes)))


def coming(row: ScheduleRow) -> Work[Came | None]:
    """Let it come, as a process does that sees it so."""

    def begin(agent: AgentRow) -> NewRun:
        run = an_occasion(row).begin(agent)
        return replace(run, agent=row.agent)

    return schedules.come(an_occasion(row, begin=begin), queue_max=1_000)


async def came_of(store: Store, row: ScheduleRow) -> tuple[ScheduleRow, int]:
    """Return the schedule as it is now, and how many runs it has made."""
    made = await store.read(runs.search(TENANT, RunFilter(agent=row.agent), Page(10)))
    return await store.read(schedules.find(TENANT, row.id)), len(made)


async def test_two_schedules_do_not_both_take_the_last_place(
    store: Store, every_order: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SCHEDULES_MAX", 2)

    async def prepare() -> Contest[str]:
        tenant = an_id("acme")
        await store.write(agents.create(tenant, "clerk", "{}", agent_id=an_id("agt"), now_ms=0))
        there, one, other = (a_schedule(id=an_id("sch"), tenant=tenant) for _ in range(3))
        await store.write(schedules.create(there))
        return Contest(tenant, schedules.create(one), schedules.create(other))

    async for raced in every_order(prepare):
        assert_one_wins(raced, ConflictError)
        work = schedules.search(raced.subject, schedules.ScheduleFilter(), Page(10))
        assert len(await store.read(work)) == 2, raced


async def test_who_makes_a_schedule_keeps_no_other_tenant_waiting(
    store: Store, postgres_address: PostgresAddress
) -> None:
    one, other = (a_schedule(id=an_id("sch"), tenant=an_id("acme")) for _ in range(2))
    for row in (one, other):
        await store.write(agents.create(row.tenant, "clerk", "{}", agent_id=an_id("agt"), now_ms=0))
    making = Stepper(postgres_address.url, schedules.create(one))
    while not making.ended:
        making.step()

    assert await store.write(schedules.create(other)) == other
    assert making.conclude() == one  # It would have lost its lock, had the other waited for it.
    making.close()


async def test_a_time_that_two_processes_see_comes_once(store: Store, every_order: Orders) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        row = await a_due_schedule(store)
        return Contest(row, coming(row), coming(row))

    async for raced in every_order(prepare):
        assert [side.result for side in winners(raced.one, raced.other)] == ["started"], raced
        now, made = await came_of(store, raced.subject)
        assert (now.next_ms, made) == (NOW_MS + HOUR_MS, 1), raced


async def test_a_schedule_that_is_changed_when_it_comes_comes_as_it_was_or_as_it_is(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        row = await a_due_schedule(store)
        wanted = replace(row, name="x", run=a_wish(input="x"))
        return Contest(row, coming(row), schedules.change(row, wanted, now_ms=NOW_MS))

    async for raced in every_order(prepare):
        now, made = await came_of(store, raced.subject)
        assert (now.name, now.version) == ("x", 2), raced
        is_due = raced.one is None
        assert (now.next_ms, made) == ((NOW_MS, 0) if is_due else (NOW_MS + HOUR_MS, 1)), raced
        assert (now.last is None) == is_due, raced


@pytest.mark.parametrize("changes", [{"enabled": 0, "next_ms": None}, {"next_ms": NOW_MS + 5}])
async def test_a_schedule_that_is_paused_or_moved_when_it_comes_does_not_come_behind_that(
    store: Store, every_order: Orders, changes: dict[str, Any]
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        row = await a_due_schedule(store)
        wanted = replace(row, cron="5 * * * *", **changes)
        return Contest(row, coming(row), schedules.change(row, wanted, now_ms=NOW_MS))

    async for raced in every_order(prepare):
        now, made = await came_of(store, raced.subject)
        assert (now.next_ms, made) == (changes["next_ms"], 0 if raced.one is None else 1), raced
        assert now.version == 2, raced


async def test_a_schedule_that_is_deleted_when_it_comes_has_come_before_or_does_not(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        row = await a_due_schedule(store)
        return Contest(row, coming(row), schedules.delete(TENANT, row.id, expected_version=1))

    async for raced in every_order(prepare):
        assert not isinstance(raced.other, Exception), raced
        with pytest.raises(NotFoundError):
            await store.read(schedules.find(TENANT, raced.subject.id))
        made = await store.read(runs.search(TENANT, RunFilter(agent=raced.subject.agent), Page(10)))
        assert len(made) == (0 if raced.one is None else 1), raced


async def test_of_two_changes_of_one_version_of_a_schedule_one_is_told(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        row = await a_due_schedule(store)
        one, other = (
            schedules.change(row, replace(row, name=name), now_ms=NOW_MS) for name in "xy"
        )
        return Contest(row, one, other)

    async for raced in every_order(prepare):
        assert_one_wins(raced, ConflictError)
        now, _ = await came_of(store, raced.subject)
        assert (now.name, now.version) == (winners(raced.one, raced.other)[0].name, 2), raced


async def test_a_schedule_s_run_is_there_before_its_user_s_erasure_begins_or_is_refused(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        user = an_id("ann")
        row = await a_due_schedule(store, user=user)
        return Contest(row, coming(row), being_erased(TENANT, user))

    async for raced in every_order(prepare):
        assert not isinstance(raced.other, Exception), raced
        _, made = await came_of(store, raced.subject)
        assert (raced.one.code, made) in [(None, 1), ("user_being_erased", 0)], raced


async def test_a_schedule_is_made_for_a_user_before_their_erasure_begins_or_is_refused(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        user = an_id("ann")
        row = await a_due_schedule(store)
        work = schedules.change(row, replace(row, user=user), now_ms=NOW_MS)
        return Contest(row, work, being_erased(TENANT, user))

    async for raced in every_order(prepare):
        assert not isinstance(raced.other, Exception), raced
        now, _ = await came_of(store, raced.subject)
        assert (now.user is None) == isinstance(raced.one, erasures.UserBeingErasedError), raced


async def test_a_schedule_s_run_is_in_a_session_that_is_there_or_is_refused(
    store: Store, every_order: Orders
) -> None:
    async def prepare() -> Contest[ScheduleRow]:
        made = await store.write(
            sessions.create(NewSession(an_id("ses"), TENANT, None, None, "{}", NOW_MS))
        )
        row = await a_due_schedule(store, run=a_wish(session_id=made.id))
        return Contest(row, coming(row), close_sessions(TENANT, [made.id]))

    async for raced in every_order(prepare):
        _, made = await came_of(store, raced.subject)
        is_there = raced.other == []
        assert raced.one.code == (None if is_there else "session_not_found"), raced
        assert made == is_there, raced


# --- Batches ---


async def test_two_batches_do_not_both_take_the_last_place(
    store: Store, every_order: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "OPEN_MAX", 2)

    async def prepare() -> Contest[str]:
        tenant = an_id("acme")
        there, one, other = (a_batch(1, tenant=tenant) for _ in range(3))
        await store.write(batches.create(there, [chunk(0, 1)]))
        one_s, other_s = (batches.create(each, [chunk(0, 1)]) for each in (one, other))
        return Contest(tenant, one_s, other_s)

    async for raced in every_order(prepare):
        assert_one_wins(raced, OverloadedError)
        work = batches.search(raced.subject, batches.BatchFilter(), Page(10))
        assert len(await store.read(work)) == 2, raced
