"""What a run had in hand when it was cancelled: how each of it was stopped, or that it was not."""

from collections.abc import Iterator, Mapping

from milepost.core.effects import CallModel, CallTool, CheckCall, Effect, SummarizeHistory
from milepost.core.events import StoppedWork, Stopping
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.state import State
from milepost.tools import Tool

SENT = "its request may have been sent, and cannot be taken back"
BY_CLIENT = "its client runs it"
TOLD = "it was told to stop, and is not over yet"
LOST = "the worker that had it is gone, or did not let go of it in time"

IN_HAND = frozenset(
    {
        CallStatus.STARTED, CallStatus.LOST, CallStatus.CHECKING, CallStatus.AWAITED,
        CallStatus.HAPPENED, CallStatus.UNKNOWN,
    }
)  # fmt: skip

Stops = Mapping[str, StoppedWork]
"""What was stopped, by the ids of messages, calls and runs."""


def is_in_hand(call: OpenCall) -> bool:
    """Say whether the call has begun, as far as anybody knows, and nothing has come of it."""
    asked = (call.status, call.asking) == (CallStatus.ASKED, "outcome")
    return call.status in IN_HAND or asked


def work_of(state: State, model: str, stops: Stops, at_ms: int) -> tuple[StoppedWork, ...]:
    """Return what became of all that the run had in hand; who was stopped is in `stops`."""
    return tuple(_work(state, model, stops, at_ms))


def _work(state: State, model: str, stops: Stops, at_ms: int) -> Iterator[StoppedWork]:
    if message_id := state.open_message:
        lost = StoppedWork("message", message_id, model, "left", LOST, at_ms)
        yield stops.get(message_id, lost)
    if summary := state.summarizing:
        lost = StoppedWork("summary", summary.id, summary.model, "left", LOST, at_ms)
        yield stops.get(summary.id, lost)
    for call_id, call in state.calls.items():
        if call.child_run_id is None and is_in_hand(call):
            yield stops.get(call_id, _left(call, at_ms))
    told = {
        call.child_run_id: StoppedWork(
            "child_run", call.child_run_id, call.call.name, "left", TOLD, at_ms
        )
        for call in state.calls.values()
        if call.child_run_id is not None and call.status is CallStatus.AWAITED
    }
    children = {each.id: each for each in stops.values() if each.kind == "child_run"}
    yield from {**told, **children}.values()


def _left(call: OpenCall, at_ms: int) -> StoppedWork:
    why = BY_CLIENT if call.status is CallStatus.AWAITED else LOST
    return StoppedWork("tool_call", call.call.id, call.call.name, "left", why, at_ms)


def stopped(
    effect: Effect, model: str, tool: Tool | None, why_left: str | None, at_ms: int
) -> StoppedWork | None:
    """Return how what is in hand was stopped; None for what nobody has to know of.

    `why_left` is why it goes on, if it does.
    """
    match effect:
        case CallModel(message_id):
            how: Stopping = "left" if why_left else "closed"
            return StoppedWork("message", message_id, model, how, why_left, at_ms)
        case SummarizeHistory(opening):
            how = "left" if why_left else "closed"
            return StoppedWork("summary", opening.id, opening.model, how, why_left, at_ms)
        case CallTool(call) | CheckCall(call):
            if why_left is None and tool is not None and call.kind in {"http", "mcp"}:
                why_left = SENT
            how = "left" if why_left else _ended(tool)
            return StoppedWork("tool_call", call.id, call.name, how, why_left, at_ms)
        case _:
            return None


def _ended(tool: Tool | None) -> Stopping:
    return "killed" if tool is not None and tool.isolation is not None else "cancelled"
