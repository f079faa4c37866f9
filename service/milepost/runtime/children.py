"""Agents as tools: the tool that an agent is, what its run may take, and how it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from milepost.core.agents import Agent, Bounds, Limits
from milepost.core.codec import usage_read
from milepost.core.effects import CallTool
from milepost.core.events import (
    ChildRunEnded,
    ChildRunStarted,
    Event,
    Failure,
    Parent,
    ToolCallCompleted,
    ToolCallFailed,
)
from milepost.core.json import Json
from milepost.core.open_call import CallStatus
from milepost.core.state import State
from milepost.core.usage import NANOS_PER_MICRO
from milepost.runtime.agent_spec import AGENT_PREFIX
from milepost.store.records import CHILD_LETTER as LETTER
from milepost.store.records import Claim
from milepost.telemetry.context import TraceContext, span_id_of, trace_id_of
from milepost.tools import Registry, Tool

__all__ = [
    "DEPTH_MAX", "LETTER", "Children", "agent_tool", "below", "events_of_child", "left_of",
    "session_above", "trace_below", "within",
]  # fmt: skip

DEPTH_MAX = 5
_UNANSWERED = frozenset(
    {CallStatus.STARTED, CallStatus.LOST, CallStatus.REPEATABLE, CallStatus.AWAITED}
)
_PARAMETERS: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "input": {
            "type": "string",
            "minLength": 1,
            "description": "The whole task: the agent sees nothing else of this conversation.",
        }
    },
    "required": ["input"],
    "additionalProperties": False,
}


class Children(Protocol):
    """The runs that calls of agents become, whoever keeps them."""

    async def join(self, tools: Registry, agent: Agent, tenant: str) -> Registry:
        """Return the tools with those that other agents are, as far as `agent` names them."""

    async def start(
        self, effect: CallTool, seq: int, claim: Claim, agent: Agent, state: State
    ) -> Event:
        """Have the call become a run, once; return what tells of it, or why it did not.

        `seq` is the event that says that the call is begun: the child's trace hangs on its span.
        """

    async def call_off(self, claim: Claim, state: State, within_s: float) -> frozenset[str]:
        """Have the children of a run that is being cancelled stop; return those that are over."""

    async def part(self, claim: Claim, state: State) -> None:
        """Tell the parent that this run is over, and stop the children that nobody waits for."""


def agent_tool(name: str, agent: str, described: str | None) -> Tool:
    """Return the tool, called `name`, that the agent is."""
    return Tool(
        name=name,
        description=described or f"Hand a task to the agent {agent}, and get its answer.",
        function=_elsewhere,
        kind="agent",
        effect="idempotent",  # The run that a call becomes has always the same id.
        parameters=_PARAMETERS,
    )


async def _elsewhere(**_: Json) -> Any:  # Not Json, whose schema takes 20 ms at each claim.
    raise AssertionError("a call of an agent becomes a run of its own")


def below(claim: Claim, call_id: str, state: State) -> Parent | Failure:
    """Return the parent of the run that the call becomes, or why it may become none."""
    depth = state.parent.depth + 1 if state.parent else 1
    if depth > DEPTH_MAX:
        return Failure("too_deep", f"agents may call agents {DEPTH_MAX} deep, and this is deeper")
    return Parent(claim.run_id, call_id, depth, session_above(claim, state))


def session_above(claim: Claim, state: State) -> str:
    """Return the session in which the run was asked for, or the uppermost of those above it."""
    above = state.parent.session_id if state.parent else None
    return above or claim.session_id


def left_of(agent: Agent, state: State) -> Bounds | None:
    """Return what the run's own bounds leave, in equal shares for the children of the step.

    Of calls, each that the step may still make is set aside: it is made while children are at work.
    """
    usage, open_calls = state.usage + state.children, state.calls.values()
    shares = sum(c.call.kind == "agent" and c.status is not CallStatus.DONE for c in open_calls)
    to_come = sum(not c.attempt and c.status is not CallStatus.DONE for c in open_calls)
    spent = {
        "max_model_calls": usage.model_calls + usage.unknown_calls,
        "max_tool_calls": state.tool_calls + to_come,
        "max_tokens": usage.input_tokens + usage.output_tokens,
        "max_cost_usd_micros": usage.cost_nanos // NANOS_PER_MICRO,
    }
    left = {
        name: max(0, bound - spent[name]) // max(1, shares)
        for name in spent
        if (bound := getattr(agent.limits, name)) is not None
    }
    return Bounds(**left) if left else None


def within(limits: Limits, bounds: Bounds) -> Limits:
    """Return the limits as narrow as `bounds` make them."""
    return replace(
        limits,
        max_model_calls=_narrower(limits.max_model_calls, bounds.max_model_calls),
        max_tool_calls=_narrower(limits.max_tool_calls, bounds.max_tool_calls),
        max_tokens=_narrower(limits.max_tokens, bounds.max_tokens),
        max_cost_usd_micros=_narrower(limits.max_cost_usd_micros, bounds.max_cost_usd_micros),
    )


def _narrower(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


def trace_below(claim: Claim, seq: int) -> str:
    """Return the `traceparent` of what hangs on the span that the run's event `seq` opened."""
    above = TraceContext.parse(claim.trace_parent)
    span_id = span_id_of(claim.run_id, seq)
    context = above.child(span_id) if above else TraceContext(trace_id_of(claim.run_id), span_id)
    return context.header()


def events_of_child(said: Mapping[str, Any], state: State) -> Sequence[Event]:
    """Return the events of a letter in which a child says that it is over.

    A child may be over before its call says that there is one: its worker died in between, or has
    not heard yet. It tells no second time, so that is said here. What a child has taken counts even
    if nobody waits for its answer any more.
    """
    outcome: Mapping[str, Any] = said["outcome"]
    ended = ChildRunEnded(
        said["call_id"],
        said["run_id"],
        said["status"],
        usage_read(outcome.get("usage") or {}),
        usage_read(outcome.get("below") or {}),
        outcome.get("tool_calls", 0),
    )
    call = state.calls.get(said["call_id"])
    if call is None or call.call.kind != "agent" or call.status not in _UNANSWERED:
        return (ended,) if said["run_id"] in state.open_children else ()
    told = (ended, _answer(said["call_id"], said["status"], outcome))
    if call.status is CallStatus.AWAITED:
        return told
    agent = call.call.name.removeprefix(AGENT_PREFIX)
    return ChildRunStarted(said["call_id"], said["run_id"], agent), *told


def _answer(call_id: str, status: str, outcome: Mapping[str, Any]) -> Event:
    output = outcome.get("output") or {}
    if status == "completed":
        parsed = output.get("parsed")
        return ToolCallCompleted(call_id, output.get("text", "") if parsed is None else parsed, 0)
    why = _why(status, outcome)
    return ToolCallFailed(call_id, Failure("child_run_failed", f"the agent did not answer: {why}"))


def _why(status: str, outcome: Mapping[str, Any]) -> str:
    match status:
        case "failed":
            error = outcome.get("error") or {}
            return f"it failed ({error.get('code')}): {error.get('message')}"
        case "incomplete":
            said = (outcome.get("output") or {}).get("text") or "nothing"
            return f"it stopped at a limit ({outcome.get('finish_reason')}), having said: {said}"
        case _:
            return f"its run was {status}"
