"""`POST /v1/runs/{id}/fork`: a new run that goes on from the middle of another one."""

import asyncio
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.acts import act_of
from milepost.api.bodies import Body, UserName, read_body
from milepost.api.earlier_runs import EarlierRuns
from milepost.api.new_runs import AgentName, NewRuns, RunInput, messages_of
from milepost.api.paging import allow, json_response
from milepost.api.replays import asked
from milepost.api.requests import caller, idempotent, principal_of
from milepost.api.runs_shown import show_run
from milepost.core.agents import Agent
from milepost.core.codec import encode
from milepost.core.context import shown
from milepost.core.errors import ConflictError, InvalidError
from milepost.core.events import ForkPoint, RunForked, RunQueued
from milepost.core.evolve import fold
from milepost.core.messages import Message
from milepost.live.hub import QUEUE_BELL
from milepost.runtime.agent_spec import Metadata
from milepost.runtime.claims import claim_of
from milepost.runtime.forking import Forking, forking
from milepost.runtime.history import History
from milepost.runtime.journal import Ports
from milepost.runtime.logged import Logged, logged
from milepost.store import idempotency, runs, sessions
from milepost.store.records import Entry, Fork, NewRun
from milepost.store.runs import RunRow
from milepost.telemetry.export import Exporter

FORKED_BYTES_MAX = 16_777_216
ON_LOOP_MAX = 200
"""Runs with longer logs than this many events are forked in a thread."""


class RunFork(Body):
    """What `POST /v1/runs/{id}/fork` takes."""

    at_seq: Annotated[int, Field(ge=1, le=2**53 - 1)]
    agent: AgentName | None = None
    agent_version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    input: RunInput | None = None
    metadata: Metadata = Field(default_factory=dict)
    user: UserName | None = None


@dataclass(frozen=True, slots=True)
class _Origin:
    """The other run, what it was asked, and what of it a fork begins with."""

    row: RunRow
    asked: RunQueued
    begun: Forking


class RunForks:
    """Forks, over a store."""

    def __init__(self, ports: Ports, exporter: Exporter | None = None) -> None:
        self._ports = ports
        self._earlier = EarlierRuns(ports.store)
        self._history = History(ports.store)
        self._new_runs = NewRuns(ports, exporter)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/runs/{run_id}/fork", self.fork, methods=["POST"])]

    async def fork(self, request: Request) -> Response:
        """Queue a run that goes on from where another one was; the other one is left alone."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, RunFork)
        principal.acting_as(body.user)  # Before anything is looked at.
        read = self._ports.store.read
        earlier = await self._made_before(request, raw)
        row = await read(runs.find(principal.tenant, earlier or request.path_params["run_id"]))
        principal.require("runs:read")  # A fork can be made to tell all that was said before.
        if earlier:
            return _accepted(row, replayed=True)
        origin = await self._origin(row, body)
        agent = await self._earlier.agent(row, body.agent, body.agent_version)
        wanted = self._wanted(request, raw, body, origin, agent)
        made = await self._new_runs.put(wanted)
        if made.wanted is None:
            return _accepted(await read(runs.find(principal.tenant, made.run_id)), replayed=True)
        self._new_runs.export(request, wanted, "POST /v1/runs/{run_id}/fork", 202)
        self._ports.hub.ring(QUEUE_BELL)
        return _accepted(runs.new_row(wanted, made.status))

    async def _made_before(self, request: Request, raw: bytes) -> str | None:
        """Return the run that the same request made: the other one may be gone since."""
        wish = asked(request, raw, self._ports.new_id("run"), self._ports.clock())
        return await self._ports.store.write(idempotency.recall(wish)) if wish else None

    def _wanted(
        self, request: Request, raw: bytes, body: RunFork, origin: _Origin, agent: Agent
    ) -> NewRun:
        """Return the run to be queued, with what it goes on from and what the audit trail keeps."""
        principal = principal_of(request)
        user, now = principal.acting_as(body.user), self._ports.clock()
        run_id, session_id = self._ports.new_id("run"), self._ports.new_id("ses")
        point = ForkPoint(origin.row.id, body.at_seq)
        queued = RunQueued(
            agent=agent.name,
            agent_id=agent.id,
            agent_version=agent.version,
            session_id=session_id,
            input=origin.begun.input,
            user=user,
            response_format=origin.asked.response_format,
            cache=origin.asked.cache,
            forked_from=point,
        )
        act = act_of(self._ports, principal, "run.forked", run_id, _details(point, body, agent))
        return NewRun(
            id=run_id,
            tenant=principal.tenant,
            session_id=session_id,
            session_is_new=True,
            agent_id=agent.id,
            agent=agent.name,
            agent_version=agent.version,
            user=user,
            metadata=orjson.dumps(body.metadata).decode(),
            lane=0,
            created_ms=now,
            scheduled_ms=None,
            deadline_ms=None,
            trace_parent=self._new_runs.trace_parent(request, run_id),
            queued=Entry(queued.type, now, encode(queued).decode()),
            request=idempotent(request, raw),
            made_by=principal.id,
            scopes=orjson.dumps(sorted(principal.scopes)).decode(),
            fork=Fork(point.run_id, point.at_seq, _entry(origin.begun.forked, now), act),
        )

    async def _origin(self, row: RunRow, body: RunFork) -> _Origin:
        """Return what the fork begins with. Raises what the point does not allow."""
        log = logged(await self._earlier.whole_log(row))
        if body.at_seq > log[-1].seq:
            raise InvalidError(
                f"event {body.at_seq} is not written yet; the log ends at {log[-1].seq}",
                code="cursor_ahead",
                pointer="/at_seq",
            )
        take = partial(
            forking,
            log,
            row.id,
            body.at_seq,
            history=await self._said_before(row, log),
            added=messages_of(body.input) if body.input is not None else (),
            trace_parent=row.trace_parent,
        )
        begun = take() if len(log) <= ON_LOOP_MAX else await asyncio.to_thread(take)
        first = log[0].event
        assert isinstance(first, RunQueued), "a log begins with the request"
        return _Origin(row, first, begun)

    async def _said_before(self, row: RunRow, log: list[Logged]) -> tuple[Message, ...]:
        """Return what the other run's model was shown of its session; a fork has it in its log."""
        state, claim = fold(each.event for each in log), claim_of(row)
        agent = await self._earlier.own_agent(row)
        guarded = bool(agent.guardrails and agent.guardrails.input)
        if state.loaded is not None:
            seen = await self._history.again(claim, state, begun_only=guarded)
        elif state.step:
            return ()
        else:
            session = await self._ports.store.read(sessions.find(row.tenant, row.session_id))
            claim = replace(claim, turns=session.turns)
            seen = await self._history.before(claim, agent.memory, "", begun_only=guarded)
        return shown(seen.earlier, state.summary)


def _entry(forked: RunForked, now_ms: int) -> Entry:
    data = encode(forked)
    if len(data) > FORKED_BYTES_MAX:
        raise ConflictError(
            f"what was said until there has {len(data)} bytes, and a fork may begin with"
            f" {FORKED_BYTES_MAX}; fork at an earlier event",
            code="fork_too_large",
        )
    return Entry(forked.type, now_ms, data.decode())


def _details(point: ForkPoint, body: RunFork, agent: Agent) -> dict[str, Any]:
    """Return what the audit trail keeps of a fork."""
    return {
        "forked_from": asdict(point),
        "agent": agent.name,
        "agent_version": agent.version,
        "input": body.input is not None,
    }


def _accepted(row: RunRow, *, replayed: bool = False) -> Response:
    headers = {"Location": f"/v1/runs/{row.id}"}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    return json_response(show_run(row), 202, headers)
