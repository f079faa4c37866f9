"""The protocol with one guard broken: what a simulation is worth is how soon it sees that."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from milepost.core import admission, decide
from milepost.core.agents import Agent
from milepost.core.effects import CallTool, Effect
from milepost.core.repetition import ToolEffect
from milepost.core.rulings import Rules
from milepost.core.state import State
from milepost.runtime import drive, loading, settle
from milepost.runtime.journal import Journal
from milepost.runtime.means import Means
from milepost.store import (
    approval_times,
    approvals,
    idempotency,
    lines,
    log,
    new_runs,
    queue,
    runs,
    schedules,
    store,
)
from milepost.store.approvals import ApprovalRow, Decision
from milepost.store.dialect import DialectName
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.idempotency import Asked
from milepost.store.new_runs import Created
from milepost.store.records import Append, Claim, NewRun
from milepost.store.work import Statement, Work
from milepost.worker import scheduler
from milepost.worker.lease import LeaseThread
from milepost.worker.worker import Worker

Breaking = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A guard, broken. `seen_at` is the first seed that sees it, `told` what it tells then."""

    name: str
    broken: Breaking
    seen_at: int


class Rewritten(Statement):
    """A statement whose text on SQLite is another in places."""

    def __init__(self, statement: Statement, *changes: tuple[str, str]) -> None:
        super().__init__(statement._expression)
        text, own = statement.compiled("sqlite")
        for old, new in changes:
            assert old in text, f"the statement has no {old!r} any more: {text}"
            text = text.replace(old, new)
        self._text = (text, own)

    def compiled(self, _: DialectName) -> tuple[str, dict[str, Any]]:
        """Return the text as it was changed."""
        return self._text


@contextmanager
def replaced(*places: tuple[object, str, object]) -> Iterator[None]:
    """Have other things in these places for a while."""
    with ExitStack() as undone:
        for owner, name, other in places:
            undone.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, other)
        yield


# --- The log ---


def _unfenced(*, guards: Sequence[str]) -> list[tuple[object, str, object]]:
    """Let appends go through that the guards of the insert would refuse."""

    def fits(item: Append, standing: Any) -> bool:
        return standing is not None and standing.head == item.head + len(item.entries)

    insert = Rewritten(log._INSERT, *((guard, "") for guard in guards))
    return [(log, "_INSERT", insert), (log, "_fits", fits)]


_OF_EPOCH = " AND runs.epoch = batch.epoch"
_OF_STATUS = " AND runs.status = batch.status"


def unfenced_append_behind_a_late_head() -> AbstractContextManager[object]:
    """Whoever reads the log late takes its end for the head from which it may append."""
    loads = loading.load

    async def load(claim: Claim, agent: Agent, means: Means) -> Journal:
        entries = await means.ports.store.entries(claim.tenant, claim.run_id, log.SEQ_MAX)
        late = replace(claim, entries=tuple(entries), head=entries[-1].seq)
        return await loads(late, agent, means)

    return replaced((drive, "load", load), *_unfenced(guards=[_OF_EPOCH, _OF_STATUS]))


def unfenced_end() -> AbstractContextManager[object]:
    """Whoever lets go of a run does so wherever its log and its epoch are by now."""
    appends = log.append

    def append(items: Sequence[Append]) -> Work[Any]:
        late = []
        for item in items:
            if item.change is not None:
                row = yield from runs.find(item.tenant, item.run_id)
                head = yield from log.head(item.tenant, item.run_id)
                item = replace(item, epoch=row.epoch, head=head)  # noqa: PLW2901
            late.append(item)
        return (yield from appends(late))

    class LateStore(store.Store):
        def __init__(self, *given: Any, **rest: Any) -> None:
            super().__init__(*given, **rest)
            self._appends._batch = append

    return replaced(*_hosts_with(LateStore))


def end_that_overlooks_what_came() -> AbstractContextManager[object]:
    """A run is ended from outside, whatever has come for it since somebody looked."""
    stop = Rewritten(runs._STOP, (" AND runs.status = :was AND runs.inbox_seq = :inbox_seen", ""))
    return replaced((runs, "_STOP", stop))


def ambiguous_commit_taken_for_a_failure() -> AbstractContextManager[object]:
    """An append whose answer was lost is made once more, behind what is there."""

    async def append(self: store.Store, item: Append) -> tuple[int, tuple[str, ...]]:
        try:
            return await self._append(item)
        except DatabaseUnavailableError:
            head = await self._when_back(lambda: self.read(log.head(item.tenant, item.run_id)))
            return await append(self, replace(item, head=head, append_id=f"{item.append_id} again"))

    return replaced((store.Store, "append", append))


def ambiguous_commit_taken_for_a_success() -> AbstractContextManager[object]:
    """An append whose answer was lost is believed to have landed."""

    async def append(self: store.Store, item: Append) -> tuple[int, tuple[str, ...]]:
        try:
            return await self._append(item)
        except DatabaseUnavailableError:
            return item.inbox_seen, ()

    return replaced((store.Store, "append", append))


# --- Claims and leases ---


def sweep_of_the_living() -> AbstractContextManager[object]:
    """The sweeper takes runs from workers whose lease stands."""
    lives = (
        " AND NOT (EXISTS (SELECT * \nFROM workers \n"
        "WHERE workers.id = runs.owner AND workers.dead = :dead_1))"
    )
    return replaced((queue, "_REQUEUE", Rewritten(queue._REQUEUE, (lives, ""))))


def claim_of_what_others_hold() -> AbstractContextManager[object]:
    """A claim takes runs that others drive."""
    any_ = ("runs.status = 'queued'", "runs.status IN ('queued', 'running')")
    return replaced(
        *(
            (queue, name, Rewritten(getattr(queue, name), any_))
            for name in ("_CLAIM", "_CLAIM_FAIR")
        )
    )


def lease_that_never_lapses_here() -> AbstractContextManager[object]:
    """A worker that stood still believes that nothing has happened."""

    def check(_: LeaseThread) -> None:
        return

    return replaced((LeaseThread, "check", check))


def dead_worker_renewed() -> AbstractContextManager[object]:
    """A worker that was declared dead renews its lease."""
    renew = Rewritten(
        queue._RENEW, (" AND workers.dead = :dead_1", ""), ("SET until", "SET dead=0, until")
    )
    return replaced((queue, "_RENEW", renew))


def strays_left_where_they_are() -> AbstractContextManager[object]:
    """Nobody looks for a run whose claim landed after it was given up for lost."""

    async def leave(_: Worker) -> None:
        return

    return replaced((Worker, "_return_strays", leave))


def hints_alone() -> AbstractContextManager[object]:
    """A worker looks for work when a bell is rung, and never else."""

    async def rest(_: Worker, woken: asyncio.Event) -> None:
        await woken.wait()

    return replaced((Worker, "_rest", rest))


# --- Letters ---


def wake_of_what_is_driven() -> AbstractContextManager[object]:
    """A letter queues a run that somebody drives."""
    wake = ("status=CASE WHEN (runs.status = 'waiting')", "status=CASE WHEN (runs.status != '')")
    return replaced((runs, "_DELIVER", Rewritten(runs._DELIVER, wake)))


def letter_missed_by_who_lets_go() -> AbstractContextManager[object]:
    """A run is let go of while there is a letter for it that nobody has read."""
    unread = (" AND runs.inbox_seq = changes.inbox_seen", "")
    return replaced((log, "_CHANGE", Rewritten(log._CHANGE, unread)))


def letters_consumed_unread() -> AbstractContextManager[object]:
    """Whoever has read a letter throws away those behind it, too."""
    all_ = (" AND inbox.seq <= seen.inbox_seen", "")
    return replaced((log, "_CONSUME", Rewritten(log._CONSUME, all_)))


def letter_to_a_run_that_is_over() -> AbstractContextManager[object]:
    """What nobody will ever read is taken."""
    open_ = (
        " AND (runs.status NOT IN ('completed', 'incomplete', 'failed', 'cancelled', 'expired'))",
        "",
    )
    return replaced((runs, "_DELIVER", Rewritten(runs._DELIVER, open_)))


def letters_read_backwards() -> AbstractContextManager[object]:
    """What came last is read first."""
    inbox = Rewritten(log._INBOX, ("ORDER BY inbox.seq", "ORDER BY inbox.seq DESC"))
    return replaced((log, "_INBOX", inbox))


def answer_that_waits_for_no_word() -> AbstractContextManager[object]:
    """A run ends with its model's answer, whatever was said to it meanwhile."""
    decides = decide._decide_step

    def deaf(state: State, rules: Rules) -> tuple[Effect, ...]:
        return decides(replace(state, steers=()), rules)

    return replaced((decide, "_decide_step", deaf))


# --- Approvals ---


def decision_without_compare_and_set() -> AbstractContextManager[object]:
    """The last answer counts, and every one is told."""

    def open_(_: ApprovalRow) -> None:
        return

    settle_ = Rewritten(approvals._SETTLE, (" AND approvals.status = 'pending'", ""))
    return replaced((approvals, "require_open", open_), (approvals, "_SETTLE", settle_))


def expiry_without_compare_and_set() -> AbstractContextManager[object]:
    """Time makes a no of what was answered."""
    lock = Rewritten(approval_times._LOCK_LATE, ("approvals.status = 'pending' AND ", ""))
    expire = Rewritten(approval_times._EXPIRE, (" AND approvals.status = 'pending'", ""))
    return replaced((approval_times, "_LOCK_LATE", lock), (approval_times, "_EXPIRE", expire))


def edit_that_is_not_told() -> AbstractContextManager[object]:
    """What was approved is another call than the one that is made."""
    letters = approvals._letter

    def letter(row: ApprovalRow, decision: Decision) -> str:
        return letters(replace(row, original=None), decision)

    return replaced((approvals, "_letter", letter))


# --- Effects ---


def once_made_again() -> AbstractContextManager[object]:
    """A call that may have acted is made again after a crash."""

    def repeat(_: ToolEffect) -> bool:
        return True

    return replaced((admission, "may_repeat", repeat))


def call_made_before_the_log_says_so() -> AbstractContextManager[object]:
    """What is not written down before it is begun is unknown after a crash."""
    opens = settle.Settling._opening

    def opening(self: settle.Settling, effect: settle.Call) -> tuple[Any, ...]:
        return () if isinstance(effect, CallTool) else opens(self, effect)

    return replaced((settle.Settling, "_opening", opening))


# --- Sessions and keys ---


def turn_that_never_comes() -> AbstractContextManager[object]:
    """A run that ends lets nobody have the next turn."""
    nobody = ("WHERE runs.id IN", "WHERE 0 AND runs.id IN")
    return replaced((lines, "PROMOTE", Rewritten(lines.PROMOTE, nobody)))


def turn_of_the_last() -> AbstractContextManager[object]:
    """The next turn is the youngest run's."""
    last = ("blocked.place ASC NULLS FIRST, blocked.id", "blocked.place DESC, blocked.id DESC")
    return replaced((lines, "PROMOTE", Rewritten(lines.PROMOTE, last)))


def turn_of_all() -> AbstractContextManager[object]:
    """The next turn is everybody's."""
    first, all_ = (
        f"runs.{name} IN (SELECT (SELECT blocked.{name}" for name in ("id", "session_id")
    )
    return replaced((lines, "PROMOTE", Rewritten(lines.PROMOTE, (first, all_))))


def turn_though_another_is_active() -> AbstractContextManager[object]:
    """A run begins beside another one of its session."""
    add = Rewritten(new_runs._ADD_RUNS, ("THEN 'blocked'", "THEN 'queued'"))
    return replaced((new_runs, "_ADD_RUNS", add))


def key_beside_its_effect() -> AbstractContextManager[object]:
    """A request's key is kept in a transaction of its own, behind the run."""
    creates = store.Store.create

    async def create(self: store.Store, run: NewRun) -> Created:
        if run.request is None:
            return await creates(self, run)
        asked = Asked(run.tenant, run.request, run.id, run.created_ms)
        if earlier := await self.write(idempotency.recall(asked)):
            return Created(earlier, "", replayed=True)
        created = await creates(self, replace(run, request=None))
        await self.write(idempotency.remember(asked))
        return created

    return replaced((store.Store, "create", create))


# --- Schedules ---

_WHERE_IT_STANDS = " AND schedules.next_ms = :due_ms"
_AS_IT_IS = " AND schedules.version = :version"


def time_that_comes_wherever_it_stands() -> AbstractContextManager[object]:
    """Whoever has seen that a schedule is due lets it come, whatever others did meanwhile."""
    guards = (_WHERE_IT_STANDS, ""), (_AS_IT_IS, "")
    return replaced((schedules, "_MOVE_ON", Rewritten(schedules._MOVE_ON, *guards)))


def time_that_comes_as_it_was() -> AbstractContextManager[object]:
    """A schedule comes as it was when somebody saw that it is due."""
    return replaced((schedules, "_MOVE_ON", Rewritten(schedules._MOVE_ON, (_AS_IT_IS, ""))))


def change_that_sets_a_time_back() -> AbstractContextManager[object]:
    """Whoever changes a schedule has it stand where they saw it stand."""
    kept = ("CASE WHEN (:retimed = :param_1) THEN :next_ms ELSE schedules.next_ms END", ":next_ms")
    return replaced((schedules, "_CHANGE", Rewritten(schedules._CHANGE, kept)))


def run_beside_its_time() -> AbstractContextManager[object]:
    """A schedule is moved on in one transaction, and its run is made in the next."""
    tells = scheduler.Scheduler._tell

    class Later:
        @staticmethod
        def create(batch: Sequence[NewRun], *, queue_max: int) -> Work[list[Any]]:
            assert queue_max
            yield from ()
            return [None for _ in batch]

    def tell(self: scheduler.Scheduler, occasion: schedules.Occasion, came: schedules.Came) -> None:
        tells(self, occasion, came)
        if came.run:
            self.making = asyncio.create_task(self._ports.store.create(came.run))  # type: ignore[attr-defined]

    return replaced((schedules, "new_runs", Later), (scheduler.Scheduler, "_tell", tell))


def times_by_bells_alone() -> AbstractContextManager[object]:
    """A schedule comes where somebody has just rung for it, and else is not looked for."""

    async def rest(rung: asyncio.Event, _: float) -> None:
        await rung.wait()

    return replaced((scheduler, "rest", rest))


def _hosts_with(kind: type[store.Store]) -> list[tuple[object, str, object]]:
    from tests.simulation import host  # noqa: PLC0415 - what a host is made of is looked up there

    return [(host, "Store", kind)]


MUTANTS = [
    Mutant(broken.__name__, broken, seen_at)
    for broken, seen_at in (
        (unfenced_append_behind_a_late_head, 581),
        (unfenced_end, 385),
        (end_that_overlooks_what_came, 6),
        (ambiguous_commit_taken_for_a_failure, 29),
        (ambiguous_commit_taken_for_a_success, 6),
        (sweep_of_the_living, 0),
        (claim_of_what_others_hold, 0),
        (lease_that_never_lapses_here, 19),
        (dead_worker_renewed, 2),
        (strays_left_where_they_are, 193),
        (hints_alone, 56),
        (wake_of_what_is_driven, 0),
        (letter_missed_by_who_lets_go, 89),
        (letters_consumed_unread, 28),
        (letter_to_a_run_that_is_over, 5),
        (letters_read_backwards, 1),
        (answer_that_waits_for_no_word, 20),
        (decision_without_compare_and_set, 3),
        (expiry_without_compare_and_set, 2),
        (edit_that_is_not_told, 6),
        (once_made_again, 56),
        (call_made_before_the_log_says_so, 0),
        (turn_that_never_comes, 3),
        (turn_of_the_last, 6),
        (turn_of_all, 6),
        (turn_though_another_is_active, 16),
        (key_beside_its_effect, 0),
        (time_that_comes_wherever_it_stands, 2),
        (time_that_comes_as_it_was, 640),
        (change_that_sets_a_time_back, 181),
        (run_beside_its_time, 2),
        (times_by_bells_alone, 2),
    )
]
