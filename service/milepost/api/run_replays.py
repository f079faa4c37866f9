"""`POST /v1/runs/{id}/replay`: what an agent's rules would make of what happened in a run."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import Body, read_optional
from milepost.api.earlier_runs import EarlierRuns
from milepost.api.new_runs import AgentName
from milepost.api.paging import allow, json_response
from milepost.api.replays import asked, keeping
from milepost.api.requests import caller
from milepost.core.agents import Agent
from milepost.core.errors import OverloadedError
from milepost.core.rulings import Rules
from milepost.providers.pricing import Pricing
from milepost.runtime.claims import claim_of
from milepost.runtime.journal import Ports
from milepost.runtime.judging import Judging
from milepost.runtime.logged import logged
from milepost.runtime.permits import Identity
from milepost.runtime.replay import (
    Replayed,
    definition_changes,
    fitted,
    replay,
    tools_called,
)
from milepost.store import runs
from milepost.store.records import LogEntry
from milepost.store.runs import RunRow
from milepost.tools import Registry

REPLAY_S_MAX = 20.0
REPLAYS_MAX = 4
ON_LOOP_MAX = 200
"""Longer logs than this many events are played in a thread."""


class RunReplay(Body):
    """What `POST /v1/runs/{id}/replay` takes."""

    agent: AgentName | None = None
    agent_version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class RunReplays:
    """Replays, over a store and the tools whose calls are judged again."""

    def __init__(self, ports: Ports, judging: Judging, pricing: Pricing) -> None:
        self._ports = ports
        self._judging = judging
        self._pricing = pricing
        self._earlier = EarlierRuns(ports.store)
        self._under_way = 0

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/runs/{run_id}/replay", self.replay, methods=["POST"])]

    async def replay(self, request: Request) -> Response:
        """Play the run's log again; say where it first differs from what the rules would do.

        Nothing comes of it but the answer, so that a repeated request is simply answered again.
        """
        allow(request)
        principal = caller(request, "runs:read")
        body, raw = await read_optional(request, RunReplay)
        run_id, read = request.path_params["run_id"], self._ports.store.read
        row = await read(runs.find(principal.tenant, run_id))
        if self._under_way >= REPLAYS_MAX:
            raise OverloadedError(f"{self._under_way} replays are under way here; come back")
        self._under_way += 1
        try:
            shown = await self._replayed(row, body)
        finally:
            self._under_way -= 1
        wish = asked(request, raw, run_id, self._ports.clock())
        made = await self._ports.store.write(keeping(wish))
        return json_response(shown, headers=made.headers())

    async def _replayed(self, row: RunRow, body: RunReplay) -> dict[str, Any]:
        own = await self._earlier.own_agent(row)
        agent = await self._earlier.agent(row, body.agent, body.agent_version)
        entries, whole = await self._earlier.log(row)
        tools = await self._judging.tools(row.tenant, agent)
        log = logged(entries)
        fit = fitted(agent, log)
        rules = await self._rules(row, fit, tools)
        stop = _after(REPLAY_S_MAX)
        play = partial(replay, log, claim_of(row), fit, rules, whole=whole, stop=stop)
        played = play() if len(log) <= ON_LOOP_MAX else await asyncio.to_thread(play)
        named = {*agent.tools, *tools_called(log)}
        return {
            "run_id": row.id,
            "agent": agent.name,
            "agent_version": agent.version,
            "events": played.events,
            "steps": played.steps,
            "identical": played.divergence is None,
            "divergence": _divergence(played),
            "definition_changed": definition_changes(own, agent),
            "tools_missing": sorted(name for name in named if name not in tools),
            "notes": [*played.notes, *_notes(entries, len(log), whole=whole)],
        }

    async def _rules(self, row: RunRow, agent: Agent, tools: Registry) -> Rules:
        """Return the agent's rules for this run, as tenant and session have it now."""
        identity = Identity.of(row.user, row.scopes, row.made_by)
        rules = await self._judging.rules(row.tenant, agent, identity, row.session_id, tools)
        bounded = agent.limits.max_cost_usd_micros is not None
        if bounded and not self._pricing.knows(agent.model):
            return replace(rules, unpriced=agent.model)
        return rules


def _divergence(played: Replayed) -> dict[str, Any] | None:
    found = played.divergence
    if found is None:
        return None
    return {
        "seq": found.seq,
        "expected": found.expected,
        "found": found.found,
        "why": found.why,
    }


def _notes(entries: Sequence[LogEntry], known: int, *, whole: bool) -> list[str]:
    notes = []
    if unknown := len(entries) - known:
        notes.append(f"{unknown} events are of types that this version does not know")
    if not whole:
        notes.append(f"the log goes on behind event {entries[-1].seq}; that much was played")
    return notes


def _after(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until
