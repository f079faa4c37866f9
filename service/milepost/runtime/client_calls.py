"""Tool calls that the client runs: which are awaited, and what an answer to one of them is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from milepost.core.codec import decode
from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.events import (
    Failure,
    ForkedCall,
    RunForked,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.json import Json
from milepost.store.records import InboxMessage, LogEntry

LETTER = "tool_result"
CLIENT_FAILED = "tool_failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call: a result, or why there is none."""

    result: Json = None
    error: str | None = None

    def shown(self, call_id: str) -> dict[str, Any]:
        """Return the answer as the client sends it."""
        if self.error is not None:
            return {"call_id": call_id, "error": self.error}
        return {"call_id": call_id, "result": self.result}


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call as far as the log and the inbox know: `answer` is what counts, once there is one.

    `started_ms` is since when the client may run it, None where it may not.
    """

    call_id: str
    tool: str
    by_client: bool
    started_ms: int | None = None
    answer: Answer | None = None


class AnsweredCallError(ConflictError):
    """The call has another answer already; `shown` carries it to the client."""

    code = "call_answered"

    def __init__(self, call_id: str, answer: Answer) -> None:
        super().__init__(f"call {call_id} has another answer already; that one counts")
        self.shown = {"tool_result": answer.shown(call_id)}


def calls_of(entries: Iterable[LogEntry], letters: Iterable[InboxMessage]) -> dict[str, ClientCall]:
    """Return the run's calls by id."""
    calls: dict[str, ClientCall] = {}
    for entry in entries:
        _take(calls, entry)
    for letter in letters:
        if letter.kind == LETTER:
            said = orjson.loads(letter.data)
            call = calls[said["call_id"]]
            calls[call.call_id] = replace(call, answer=call.answer or answer_in(said))
    return calls


def require_awaited(calls: Mapping[str, ClientCall], call_id: str, answer: Answer) -> ClientCall:
    """Return the call if it may have this answer; `answered` with the same is fine.

    Raises `NotFoundError` for an unknown call, `AnsweredCallError` where another answer counts, and
    `ConflictError` where it is not the client's to answer, or not yet.
    """
    if (call := calls.get(call_id)) is None:
        raise NotFoundError(f"the run has no call {call_id!r}", code="call_not_found")
    if not call.by_client:
        raise ConflictError(
            f"call {call_id} of {call.tool} is not the client's to answer: the service runs it",
            code="call_not_awaited",
        )
    if call.answer is not None and call.answer != answer:
        raise AnsweredCallError(call_id, call.answer)
    if call.answer is None and call.started_ms is None:
        raise ConflictError(
            f"call {call_id} of {call.tool} may not run yet: wait for its tool_call.started",
            code="call_not_awaited",
        )
    return call


def answer_in(said: Mapping[str, Any]) -> Answer:
    """Return the answer that a letter brings."""
    return Answer(said.get("result"), said.get("error"))


def letter_of(call: ClientCall, answer: Answer, now_ms: int, *, terminal: bool) -> str:
    """Return the letter that brings the answer to the run."""
    took_ms = max(0, now_ms - (call.started_ms or now_ms))
    said = {**answer.shown(call.call_id), "duration_ms": took_ms, "terminal": terminal}
    return orjson.dumps(said).decode()


def event_in(said: Mapping[str, Any]) -> ToolCallCompleted | ToolCallFailed:
    """Return the event that a letter becomes."""
    call_id, took_ms = str(said["call_id"]), int(said["duration_ms"])
    answer = answer_in(said)
    if answer.error is not None:
        return ToolCallFailed(call_id, Failure(CLIENT_FAILED, answer.error), took_ms)
    return ToolCallCompleted(call_id, answer.result, took_ms, terminal=bool(said["terminal"]))


def _take(calls: dict[str, ClientCall], entry: LogEntry) -> None:
    match decode(entry.type, entry.data):
        case ToolCallRequested() as asked:
            calls[asked.call_id] = ClientCall(asked.call_id, asked.name, asked.kind == "client")
        case RunForked(calls=inherited):
            calls |= {forked.call.id: _inherited(forked) for forked in inherited}
        case ToolCallStarted(call_id):
            calls[call_id] = replace(calls[call_id], started_ms=entry.time_ms)
        case ToolCallCompleted(call_id, result):
            calls[call_id] = replace(calls[call_id], answer=Answer(result))
        case ToolCallFailed(call_id, error):
            calls[call_id] = replace(calls[call_id], answer=Answer(error=error.message))
        case ToolCallDenied(call_id, by, reason):
            denied = Answer(error=f"denied by {by}: {reason}")
            calls[call_id] = replace(calls[call_id], answer=denied)
        case _:
            pass


def _inherited(forked: ForkedCall) -> ClientCall:
    answer = Answer(forked.content) if forked.status in {"done", "denied"} else None
    call = forked.call
    return ClientCall(call.id, call.name, call.kind == "client", answer=answer)
