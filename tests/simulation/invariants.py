"""What must hold when all is over: of each log, and of what stands beside the logs."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import orjson

from milepost.core.codec import decode
from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalWithdrawn,
    ChildRunEnded,
    Event,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    RunRetried,
    SteerApplied,
    SteerReceived,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.evolve import evolve
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.store.records import STEER_LETTER
from milepost.store.usage import NUMBERS
from milepost.telemetry.spans import SpanFold
from tests.simulation.watch import TERMINAL

if TYPE_CHECKING:
    from tests.simulation.clients import Clients
    from tests.simulation.database import Database
    from tests.simulation.world import World

_ENDS = (ToolCallCompleted, ToolCallFailed, ToolCallDenied)
_CLOSES = (MessageCompleted, MessageAborted)
_ANSWERS = (ApprovalDecided, ApprovalExpired, ApprovalWithdrawn)
_MAY_FOLLOW_A_CANCEL = frozenset({"cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class Log:
    """A run and its log when all is over."""

    run_id: str
    status: str
    trace_parent: str | None
    parent_run_id: str | None
    wish: str
    entries: Sequence[tuple[int, int, str]]  # seq, time, type
    events: Sequence[Event]

    def of(self, *kinds: type) -> list[Any]:
        """Return the events of these kinds."""
        return [event for event in self.events if isinstance(event, kinds)]


def verdict(world: "World", clients: "Clients") -> str | None:
    """Return the first thing that is wrong."""
    logs = _logs(world.database)
    found = (
        wrong
        for look in (
            _runs,
            _shapes,
            _beside,
            _answers,
            _letters,
            _said,
            _wishes,
            _times,
            _turns,
            _executions,
        )
        for wrong in look(world, clients, logs)
    )
    return next(found, None)


def _logs(database: "Database") -> dict[str, Log]:
    rows: dict[str, list[Any]] = defaultdict(list)
    for run_id, *entry in database.rows(
        "SELECT run_id, seq, time_ms, type, data FROM events ORDER BY run_id, seq"
    ):
        rows[run_id].append(entry)
    logs: dict[str, Log] = {}
    for run_id, status, trace_parent, parent_id, labels in database.rows(
        "SELECT id, status, trace_parent, parent_run_id, metadata FROM runs ORDER BY id"
    ):
        entries = rows[run_id]
        decoded = [decode(kind, said) for _, _, kind, said in entries]
        logs[run_id] = Log(
            run_id,
            status,
            trace_parent,
            parent_id,
            orjson.loads(labels)["wish"],
            [(seq, time_ms, kind) for seq, time_ms, kind, _ in entries],
            [event for event in decoded if event is not None],
        )
    return logs


def _runs(_: "World", __: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """Every run has one end, and that is its log's last event."""
    for log in logs.values():
        seqs = [seq for seq, *_ in log.entries]
        if seqs != list(range(1, len(seqs) + 1)):
            yield f"{log.run_id}: the log has {seqs}"
        ends = [kind for *_, kind in log.entries if kind in TERMINAL]
        if ends != [f"run.{log.status}"] or log.entries[-1][2] != ends[0]:
            yield f"{log.run_id} is {log.status}, and its log ends with {ends}"


def _shapes(_: "World", __: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """Nothing in a log is begun, or comes to its end, twice."""
    for log in logs.values():
        once = {
            "a message begins": [event.message_id for event in log.of(MessageStarted)],
            "a message ends": [event.message_id for event in log.of(*_CLOSES)],
            "a call is asked for": [event.call_id for event in log.of(ToolCallRequested)],
            "an attempt begins": [(e.call_id, e.attempt) for e in log.of(ToolCallStarted)],
            "a call ends": [event.call_id for event in log.of(*_ENDS)],
            "a question is asked": [event.approval_id for event in log.of(ApprovalRequested)],
            "a question ends": [event.approval_id for event in log.of(*_ANSWERS)],
            "a child ends": [event.run_id for event in log.of(ChildRunEnded)],
        }
        for what, names in once.items():
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                yield f"{log.run_id}: {what} twice: {twice}"
        if set(once["a message begins"]) != set(once["a message ends"]):
            yield f"{log.run_id}: a message was begun and never ended"
        reduce(evolve, log.events, State())


def _beside(world: "World", _: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """Usage and spans are what the log says."""
    used: dict[str, dict[int, Usage]] = defaultdict(dict)
    for run_id, seq, *numbers in world.database.rows(
        f"SELECT run_id, seq, {', '.join(NUMBERS)} FROM usage"
    ):
        used[run_id][seq] = Usage(*numbers)
    spans: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for run_id, *span in world.database.rows(
        "SELECT run_id, seq, span_id, kind, name, start_ms, end_ms, status FROM spans"
    ):
        spans[run_id].add(tuple(span))
    for log in logs.values():
        if used[log.run_id] != (told := dict(_used(log))):
            yield f"{log.run_id}: usage rows {used[log.run_id]}, and the log has {told}"
        if spans[log.run_id] != (told_spans := _spans(log)):
            yield f"{log.run_id}: spans differ: {spans[log.run_id] ^ told_spans}"


def _used(log: Log) -> Iterator[tuple[int, Usage]]:
    for (seq, *_), event in zip(log.entries, log.events, strict=True):
        if isinstance(event, MessageCompleted) or (
            isinstance(event, MessageAborted) and event.usage != Usage()
        ):
            yield seq, event.usage


def _spans(log: Log) -> set[tuple[object, ...]]:
    fold = SpanFold(log.run_id, log.trace_parent, provider="simulated")
    return {
        (span.seq, span.span_id, span.kind, span.name, span.start_ms, span.end_ms, span.status)
        for (seq, time_ms, _), event in zip(log.entries, log.events, strict=True)
        for span in fold.feed(seq, time_ms, event)
    }


def _answers(world: "World", clients: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """A question has one answer, which the log, the audit and whoever gave it agree on."""
    rows = world.database.rows("SELECT id, run_id, status, decision FROM approvals")
    final = {approval_id: decision for approval_id, _, _, decision in rows}
    for answer in clients.answers:
        if final[answer.approval_id] != answer.decision:
            yield f"{answer.approval_id}: {answer.decision} was taken, and it is {final}"
    audited = Counter(
        target
        for (target,) in world.database.rows(
            "SELECT target FROM audit WHERE action = 'approval.decided'"
        )
    )
    for approval_id, run_id, status, decision in rows:
        told = [event for event in logs[run_id].of(*_ANSWERS) if event.approval_id == approval_id]
        match status, told:
            case (("approved" | "denied" | "answered"), [ApprovalDecided(decision=said)]):
                if said != decision or audited[approval_id] != 1:
                    yield f"{approval_id} is {decision}, the log says {said}, audited {audited}"
            case "expired", [ApprovalExpired()]:
                pass
            case "withdrawn", [ApprovalWithdrawn()]:
                pass
            case _:
                yield f"{approval_id} is {status} ({decision}), and the log says {told}"


def _letters(world: "World", _: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """What came in for a run was read."""
    retries: Counter[str] = Counter()
    for run_id, kind, said in world.watch.letters:
        log = logs[run_id]
        if kind == "cancel" and log.status not in _MAY_FOLLOW_A_CANCEL:
            yield f"{run_id} was told to stop, and is {log.status}"
        if kind == "child_run" and said["run_id"] not in {
            event.run_id for event in log.of(ChildRunEnded)
        }:
            yield f"{run_id} was told that {said['run_id']} is over, and its log does not say so"
        retries[run_id] += kind == "retry"
    for run_id, count in retries.items():
        if len(logs[run_id].of(RunRetried)) != count:
            yield f"{run_id} was sent on {count} times, and its log does not say so"


def _said(world: "World", clients: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """What was said to a run was heard once, and then told its model once, in the order it came.

    A run that was stopped from outside may have heard the beginning of it only.
    """
    came: dict[str, list[str]] = defaultdict(list)
    contents: Counter[str] = Counter()
    for run_id, kind, said in world.watch.letters:
        if kind == STEER_LETTER:
            came[run_id].append(said["message_id"])
            contents[said["content"]] += 1
    if twice := [content for content, count in contents.items() if count > 1]:
        yield f"said once, and brought more often: {twice}"
    for run_id, message_id in clients.said:
        if message_id not in came[run_id]:
            yield f"{run_id}: {message_id} was taken, and never came"
    for log in logs.values():
        brought = came[log.run_id]
        heard = [event.message_id for event in log.of(SteerReceived)]
        told = [message_id for event in log.of(SteerApplied) for message_id in event.message_ids]
        if heard != brought[: len(heard)] or told != heard[: len(told)]:
            yield f"{log.run_id}: said was {brought}, heard {heard}, told the model {told}"
        if log.status not in _MAY_FOLLOW_A_CANCEL and heard != brought:
            yield f"{log.run_id} is {log.status}: said was {brought}, and heard {heard}"
        if log.status == "completed" and told != brought:
            yield f"{log.run_id} has its answer: said was {brought}, and its model told {told}"


def _wishes(_: "World", clients: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """However often it was asked for, a wish makes one run."""
    made: dict[str, list[str]] = defaultdict(list)
    for log in logs.values():
        if log.parent_run_id is None:
            made[log.wish].append(log.run_id)
    for wish in clients.wishes:
        there = made[str(wish.plan.number)]
        if len(there) > 1:
            yield f"{wish.plan.said} was made {len(there)} times: {there}"
        if {run_id for run_id, _ in wish.made} - set(there):
            yield f"{wish.plan.said} was said to be {wish.made}, and is {there}"


def _times(world: "World", _: "Clients", __: dict[str, Log]) -> Iterator[str]:
    """A schedule has made the runs that its times are told to have begun, each once."""
    begun = sorted(came["run_id"] for came in world.watch.times.came.values() if came["run_id"])
    made = [
        run_id
        for (run_id,) in world.database.rows(
            "SELECT id FROM runs WHERE metadata LIKE '%schedule_id%' AND parent_run_id IS NULL"
            " ORDER BY id"
        )
    ]
    if made != begun:
        yield f"schedules have made {made}, and are told to have begun {begun}"


def _turns(world: "World", _: "Clients", __: dict[str, Log]) -> Iterator[str]:
    """A session has counted its runs."""
    for session_id, turns, ended in world.database.rows(
        "SELECT s.id, s.turns, (SELECT count(*) FROM runs r WHERE r.session_id = s.id)"
        " FROM sessions s ORDER BY s.id"
    ):
        if turns != ended:
            yield f"{session_id} has counted {turns} turns of {ended}"


def _executions(world: "World", _: "Clients", logs: dict[str, Log]) -> Iterator[str]:
    """A result is of something that was done, or that a person has vouched for."""
    done = {execution[:2] for execution in world.watch.executions}
    for log in logs.values():
        vouched = {e.call_id for e in log.of(ApprovalDecided) if e.decision == "happened"}
        children = {event.call_id for event in log.of(ChildRunEnded)}
        for event in log.of(ToolCallCompleted):
            call_id = event.call_id
            if (log.run_id, call_id) not in done and call_id not in vouched | children:
                yield f"{log.run_id}: {call_id} has a result, and nothing was done"
