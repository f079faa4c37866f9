"""The ledger of a run's tool calls: what each has come to, and how often it was tried."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from milepost.core import ids
from milepost.core.codec import decode
from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalWithdrawn,
    ChildRunStarted,
    Event,
    Failure,
    ForkedCall,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunForked,
    RunIncomplete,
    RunResumed,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
)
from milepost.core.json import Json
from milepost.core.messages import ToolKind
from milepost.core.repetition import ToolEffect
from milepost.store.records import LogEntry

EVENTS: tuple[type[Event], ...] = (
    RunForked,
    RunResumed,
    RunCompleted,
    RunIncomplete,
    RunFailed,
    RunCancelled,
    RunExpired,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallDenied,
    ToolCallInterrupted,
    ToolCallChecked,
    ChildRunStarted,
    ApprovalRequested,
    ApprovalDecided,
    ApprovalExpired,
    ApprovalWithdrawn,
)
"""What the ledger is made from; the rest of a log need not be read."""

CallState = Literal[
    "requested", "waiting", "started", "completed", "failed", "denied", "interrupted", "unknown"
]
AttemptOutcome = Literal["completed", "failed", "interrupted"]

# A call that was given up, or lost for good, may have acted: nobody knows.
_UNKNOWN = frozenset({"outcome_unknown", "cancelled"})
_WITHOUT_TRACE = frozenset({"read", "transactional"})
_NOT_KNOWN = Failure("outcome_unknown", "the run was ended while this tool ran; it may have acted")
_NEVER_ANSWERED = Failure("denied", "the run was ended before anybody answered")


@dataclass(slots=True)
class Attempt:
    """One time that the tool was run; `outcome` is None while it runs."""

    attempt: int
    started_ms: int
    ended_ms: int | None = None
    outcome: AttemptOutcome | None = None
    duration_ms: int | None = None


@dataclass(slots=True)
class LedgerCall:
    """One call, as far as it has come; `ordinal` counts the run's calls from 0.

    `arguments` are those that it ran with, or would run with as things stand.
    """

    id: str
    ordinal: int
    tool: str
    kind: ToolKind
    arguments: Mapping[str, Json]
    idempotency_key: str
    requested_ms: int
    effect: ToolEffect | None = None
    state: CallState = "requested"
    attempts: list[Attempt] = field(default_factory=list)
    approvals: list[str] = field(default_factory=list)
    child_run_id: str | None = None
    result: Json = None
    result_is_cut: bool = False
    error: Failure | None = None
    ended_ms: int | None = None
    duration_ms: int | None = None
    begun: bool = False
    asks_for_outcome: bool = False

    @property
    def may_have_acted(self) -> bool:
        """Say whether it was begun, and what it does outlasts an attempt that brought nothing."""
        return self.begun and self.effect not in _WITHOUT_TRACE


class Ledger:
    """Folds a run's log, in order and in as many pieces as one likes.

    Of a result beyond `result_chars` characters of JSON only the beginning is kept, as text; None
    keeps all.
    """

    def __init__(self, run_id: str, *, result_chars: int | None = None) -> None:
        self._run_id = run_id
        self._result_chars = result_chars
        self._calls: dict[str, LedgerCall] = {}

    @property
    def calls(self) -> tuple[LedgerCall, ...]:
        """The calls, in the order in which they were asked for."""
        return tuple(self._calls.values())

    def get(self, call_id: str) -> LedgerCall | None:
        """Return the call, None where the run has none like that."""
        return self._calls.get(call_id)

    def read(self, entries: Iterable[LogEntry]) -> None:
        """Read on in the log; events that say nothing of calls are passed over."""
        for entry in entries:
            if event := decode(entry.type, entry.data):
                self._take(event, entry)

    def _take(self, event: Event, entry: LogEntry) -> None:
        match event:
            case RunForked(calls=calls):
                for forked in calls:
                    self._inherit(forked, entry)
            case RunResumed():
                self._lose(entry.time_ms)
            case RunCompleted() | RunIncomplete() | RunFailed() | RunCancelled() | RunExpired():
                self._close(entry.time_ms)
            case ToolCallRequested():
                self._request(event, entry)
            case (
                ToolCallScreened(call_id=call_id)
                | ToolCallStarted(call_id=call_id)
                | ToolCallCompleted(call_id=call_id)
                | ToolCallFailed(call_id=call_id)
                | ToolCallDenied(call_id=call_id)
                | ToolCallInterrupted(call_id=call_id)
                | ToolCallChecked(call_id=call_id)
                | ChildRunStarted(call_id=call_id)
                | ApprovalRequested(call_id=call_id)
                | ApprovalDecided(call_id=call_id)
                | ApprovalExpired(call_id=call_id)
                | ApprovalWithdrawn(call_id=call_id)
            ):
                self._go_on(self._calls[call_id], event, entry.time_ms)
            case _:
                pass

    def _request(self, event: ToolCallRequested, entry: LogEntry) -> None:
        self._calls[event.call_id] = LedgerCall(
            id=event.call_id,
            ordinal=len(self._calls),
            tool=event.name,
            kind=event.kind,
            arguments=event.arguments,
            idempotency_key=event.idempotency_key,
            requested_ms=entry.time_ms,
        )

    def _inherit(self, forked: ForkedCall, entry: LogEntry) -> None:
        """Take over a call of the step that a fork begins in: what it came to was another run's."""
        asked = forked.call
        call = LedgerCall(
            id=asked.id,
            ordinal=len(self._calls),
            tool=asked.name,
            kind=asked.kind,
            arguments=asked.arguments,
            idempotency_key=ids.idempotency_key(self._run_id, asked.id),
            requested_ms=entry.time_ms,
        )
        match forked.status:
            case "done":
                call.state, call.ended_ms = "completed", entry.time_ms
                self._bring(call, forked.content)
            case "denied":
                _end(call, "denied", entry.time_ms, Failure("denied", forked.content))
            case "unknown":
                call.state, call.begun = "interrupted", True
            case "requested":
                pass
        self._calls[asked.id] = call

    def _go_on(  # noqa: C901, PLR0912 - an arm each
        self, call: LedgerCall, event: Event, time_ms: int
    ) -> None:
        match event:
            case ToolCallScreened(arguments=arguments) if arguments is not None:
                call.arguments = arguments
            case ToolCallStarted():
                _start(call, event, time_ms)
            case ToolCallCompleted():
                self._complete(call, event, time_ms)
            case ToolCallFailed():
                _fail(call, event, time_ms)
            case ToolCallDenied(by=by, reason=reason):
                _end(call, "denied", time_ms, Failure("denied", f"{by}: {reason}"))
            case ToolCallInterrupted():
                _interrupt(call, time_ms)
            case ToolCallChecked(found="unknown"):
                call.state = "unknown"
            case ChildRunStarted(run_id=run_id):
                call.child_run_id = run_id
            case ApprovalRequested(approval_id=approval_id, kind=kind):
                call.approvals.append(approval_id)
                call.state, call.asks_for_outcome = "waiting", kind == "outcome"
            case ApprovalDecided():
                _decide(call, event)
            case ApprovalExpired() | ApprovalWithdrawn():
                call.state = "unknown" if call.asks_for_outcome else "requested"
            case _:
                pass

    def _complete(self, call: LedgerCall, event: ToolCallCompleted, time_ms: int) -> None:
        self._bring(call, event.result)
        _end_attempt(call, "completed", time_ms, event.duration_ms)
        call.duration_ms = event.duration_ms
        _end(call, "completed", time_ms)

    def _bring(self, call: LedgerCall, result: Json) -> None:
        call.result = result
        if self._result_chars is None:
            return
        text = result if isinstance(result, str) else orjson.dumps(result).decode()
        if len(text) > self._result_chars:
            call.result, call.result_is_cut = text[: self._result_chars], True

    def _lose(self, time_ms: int) -> None:
        """What the last worker ran is lost; a client, or another run, goes on with its own."""
        for call in self._calls.values():
            if call.state == "started" and call.kind != "client" and call.child_run_id is None:
                _interrupt(call, time_ms)

    def _close(self, time_ms: int) -> None:
        """Nothing more comes of what the run's end has left open."""
        for call in self._calls.values():
            if call.state in {"started", "interrupted"} and call.may_have_acted:
                _end_attempt(call, "interrupted", time_ms)
                _end(call, "unknown", time_ms, _NOT_KNOWN)
            elif call.state == "waiting":
                state: CallState = "unknown" if call.asks_for_outcome else "denied"
                _end(call, state, time_ms, _NOT_KNOWN if call.asks_for_outcome else _NEVER_ANSWERED)


def _start(call: LedgerCall, event: ToolCallStarted, time_ms: int) -> None:
    if event.arguments is not None:
        call.arguments = event.arguments
    call.effect, call.state = event.effect, "started"
    call.begun, call.asks_for_outcome = True, False
    call.attempts.append(Attempt(event.attempt, time_ms))


def _fail(call: LedgerCall, event: ToolCallFailed, time_ms: int) -> None:
    is_unknown = event.error.code in _UNKNOWN and call.may_have_acted
    duration_ms = event.duration_ms or None
    _end_attempt(call, "interrupted" if is_unknown else "failed", time_ms, duration_ms)
    call.duration_ms = duration_ms
    _end(call, "unknown" if is_unknown else "failed", time_ms, event.error)


def _interrupt(call: LedgerCall, time_ms: int) -> None:
    _end_attempt(call, "interrupted", time_ms)
    call.state = "interrupted"


def _decide(call: LedgerCall, event: ApprovalDecided) -> None:
    """An approved call is as one that was just asked for; what follows has events of its own."""
    if event.arguments is not None:
        call.arguments = event.arguments
    match event.decision:
        case "approve" | "deny":
            call.state = "requested"
        case "happened" | "not_happened":
            call.state = "interrupted"
        case "stop":
            call.state = "unknown"


def _end_attempt(
    call: LedgerCall, outcome: AttemptOutcome, time_ms: int, duration_ms: int | None = None
) -> None:
    """End the attempt that runs, if one does."""
    if call.attempts and (last := call.attempts[-1]).outcome is None:
        last.outcome, last.ended_ms, last.duration_ms = outcome, time_ms, duration_ms


def _end(call: LedgerCall, state: CallState, time_ms: int, error: Failure | None = None) -> None:
    call.state, call.ended_ms, call.error = state, time_ms, error
