"""A run as its driver finds it: its log folded, its agent as it wants it, and its past."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from milepost.core.agents import Agent, Limits
from milepost.core.codec import decode
from milepost.core.context import NOTHING_SEEN, Seen, with_context
from milepost.core.events import RunResumed
from milepost.core.evolve import evolve
from milepost.core.pending import TTL_S
from milepost.core.state import State
from milepost.live.frames import Frame
from milepost.runtime import notices
from milepost.runtime.children import within
from milepost.runtime.journal import Journal
from milepost.runtime.lost_side_calls import LostSideCalls
from milepost.runtime.means import Means
from milepost.runtime.ports import Past
from milepost.runtime.worked_time import WorkedTime
from milepost.store.records import Claim, LogEntry
from milepost.telemetry.spans import SpanFold

_TAKEN_OVER = frozenset({"crash", "outage", "drain"})


async def load(claim: Claim, agent: Agent, means: Means) -> Journal:
    """Fold the run's log as far as the claim reaches, and show the claim itself.

    What came later is another's.
    """
    entries: Sequence[LogEntry]
    if claim.entries is not None:
        entries = claim.entries
    else:
        entries = await means.ports.store.entries(claim.tenant, claim.run_id, claim.head)
    state, event, worked = State(), None, WorkedTime()
    lost = LostSideCalls()
    spans = SpanFold(
        claim.run_id,
        claim.trace_parent,
        provider=agent.provider,
        content=means.content,
        metadata=orjson.loads(claim.metadata),
    )
    for entry in entries:
        if event := decode(entry.type, entry.data):
            state = evolve(state, event)
            spans.feed(entry.seq, entry.time_ms, event)
            worked.feed(event, entry.time_ms)
            lost.feed(event)
    if isinstance(event, RunResumed) and event.why in _TAKEN_OVER:
        notices.run_taken_over(event, claim.run_id)
    last = entries[-1]
    shown = Frame(claim.run_id, last.seq, last.type, last.time_ms, last.data.encode())
    means.ports.hub.publish(claim.run_id, [shown])
    journal = Journal(claim, adapted(agent, state), state, spans, means.ports, worked)
    journal.lost = lost.told()
    return journal


def adapted(agent: Agent, state: State) -> Agent:
    """Return the agent as this run wants it, and within what the run that started it leaves."""
    limits = _limits(agent.limits, state)
    response_format = state.response_format or agent.response_format
    cache_ttl_s = agent.cache_ttl_s if state.cache else None
    if (limits, response_format, cache_ttl_s) == (
        agent.limits, agent.response_format, agent.cache_ttl_s,
    ):  # fmt: skip
        return agent
    return replace(agent, limits=limits, response_format=response_format, cache_ttl_s=cache_ttl_s)


def _limits(limits: Limits, state: State) -> Limits:
    """Return the limits; who sits at a chat is asked for a minute, unless the agent says otherwise.

    An agent that says what is the rule elsewhere has said nothing.
    """
    if state.bounds:
        limits = within(limits, state.bounds)
    if state.channel and limits.approval_ttl_s == Limits().approval_ttl_s:
        return replace(limits, approval_ttl_s=TTL_S)
    return limits


async def look_back(journal: Journal, history: Past, means: Means) -> Seen:
    """Return what the run sees of its session: what ended since its first step came later."""
    state, claim, agent = journal.state, journal.claim, journal.agent
    guarded = bool(agent.guardrails and agent.guardrails.input)
    if state.loaded is not None:
        return await history.again(claim, state, begun_only=guarded)
    if state.step:
        return NOTHING_SEEN
    seen = NOTHING_SEEN
    if claim.turns:
        summary_id = means.ports.new_id("sum")
        seen = await history.before(claim, agent.memory, summary_id, begun_only=guarded)
    if means.recall and agent.memory and agent.memory.recall and not state.inherited:
        asked = "\n".join(said.content for said in state.messages)
        context = await means.recall.context(claim, agent, asked)
        seen = with_context(seen, claim.turns, context)
    return seen
