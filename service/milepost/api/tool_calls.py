"""`/v1/tools/{name}/call`: try a tool, under the rules that hold for any run."""

from collections.abc import Iterable
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import Body, UserName, read_body
from milepost.api.known_agents import AgentVersion
from milepost.api.new_runs import MadeRun, NewRuns, RunCreate
from milepost.api.paging import allow, json_response
from milepost.api.requests import caller, principal_of
from milepost.api.runs_shown import show_run
from milepost.api.waiting import attend_run, await_run, wait_s
from milepost.core.codec import decode
from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.events import ToolCallCompleted, ToolCallDenied, ToolCallFailed
from milepost.core.json import Json
from milepost.live.hub import QUEUE_BELL
from milepost.providers.direct import written_call
from milepost.runtime.cancelling import Cancellation, cancel_run
from milepost.runtime.direct import direct_id, direct_name
from milepost.runtime.journal import Ports
from milepost.runtime.toolsets import Toolsets
from milepost.store import agents, log, runs
from milepost.store.records import LogEntry
from milepost.store.runs import RunRow
from milepost.telemetry.export import Exporter
from milepost.tools import Tool

WAIT_S = 30
STOPPED_WITHIN_S = 10
UNATTENDED = "nobody waits for it any more"


class ToolCallCreate(Body):
    """What `POST /v1/tools/{name}/call` takes."""

    arguments: dict[str, Any] = Field(default_factory=dict)
    agent: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    session_id: Annotated[str, Field(max_length=64)] | None = None
    background: bool = False
    user: UserName | None = None


class ToolCalls:
    """Single calls. Each is a run of its own: it asks, streams, and outlives its worker as any."""

    def __init__(self, ports: Ports, toolsets: Toolsets, exporter: Exporter | None = None) -> None:
        self._ports = ports
        self._toolsets = toolsets
        self._new_runs = NewRuns(ports, exporter)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/tools/{name}/call", self.call, methods=["POST"])]

    async def call(self, request: Request) -> Response:
        """Have the tool called, and show what came of it, or the run if that takes longer."""
        allow(request, "wait")
        tenant = caller(request, "runs:write").tenant
        waits_s = wait_s(request, WAIT_S)
        body, raw = await read_body(request, ToolCallCreate)
        waits_s = 0 if body.background else waits_s
        run_id = self._ports.new_id("run")
        try:
            tool = await self._tool(tenant, request.path_params["name"])
            agent = await self._agent(tenant, tool.name, body.agent)
        except NotFoundError:
            if (earlier := await self._new_runs.earlier(request, raw, run_id)) is None:
                raise
            return await self._answer(tenant, body, earlier.run_id, waits_s, replayed=True)
        _require_callable(tool, waits=waits_s > 0)
        wanted = RunCreate(
            agent=agent.name,
            input=written_call(tool.name, body.arguments),
            session_id=body.session_id,
            user=body.user,
            # For the case that this process dies while it waits.
            deadline_s=waits_s + STOPPED_WITHIN_S if tool.no_background else None,
        )
        made = await self._new_runs.queue(request, wanted, raw, run_id, agent)
        if made.wanted is not None and made.status == "queued":
            self._ports.hub.ring(QUEUE_BELL)
        answering = self._waited(request, body, made, waits_s, attended=tool.no_background)
        route = "POST /v1/tools/{name}/call"
        return await self._new_runs.answered(request, made, route, answering)

    async def _waited(
        self, request: Request, body: ToolCallCreate, made: MadeRun, waits_s: int, *, attended: bool
    ) -> Response:
        if attended:
            await self._attend(request, made.run_id, waits_s)
            waits_s = 0
        tenant, replayed = principal_of(request).tenant, made.wanted is None
        return await self._answer(tenant, body, made.run_id, waits_s, replayed=replayed)

    async def _answer(
        self, tenant: str, body: ToolCallCreate, run_id: str, waits_s: int, *, replayed: bool
    ) -> Response:
        """Show what came of the call, or its run if that takes longer than somebody waits."""
        headers = {"Location": f"/v1/runs/{run_id}"}
        if replayed:
            headers["Idempotency-Replayed"] = "true"
        if waits_s:
            await await_run(self._ports, tenant, run_id, waits_s, until_waiting=True)
        row = await self._ports.store.read(runs.find(tenant, run_id))
        if row.ended_ms is None or body.background:
            return json_response(show_run(row), 202, headers)
        entries = await self._ports.store.read(log.read_all(tenant, row.id))
        return json_response(_shown(row, entries), 200, headers)

    async def _attend(self, request: Request, run_id: str, waits_s: int) -> None:
        """Wait for the run's end, and stop it if it has none while somebody waits."""
        principal = principal_of(request)
        await attend_run(request, self._ports, run_id, waits_s)
        row = await self._ports.store.read(runs.find(principal.tenant, run_id))
        if row.ended_ms is None:
            left = Cancellation(principal.tenant, run_id, principal.name, UNATTENDED)
            await cancel_run(self._ports, left)
            await await_run(self._ports, principal.tenant, run_id, STOPPED_WITHIN_S)

    async def _tool(self, tenant: str, name: str) -> Tool:
        tool = (await self._toolsets.of(tenant)).get(name)
        if tool is None:
            raise NotFoundError(f"there is no tool {name!r}", code="tool_not_found")
        return tool

    async def _agent(self, tenant: str, tool: str, named: str | None) -> AgentVersion:
        """Return the agent that is made for this call; one that is named lends its rules."""
        if named is None:
            return AgentVersion(direct_id(tool), direct_name(tool), 1)
        base = await self._ports.store.read(agents.find(tenant, named))
        return AgentVersion(direct_id(tool, base.id), direct_name(tool), base.version)


def _require_callable(tool: Tool, *, waits: bool) -> None:
    if tool.kind == "client":
        raise ConflictError(
            f"{tool.name!r} is run by the client itself; start a run of an agent that has it, and"
            " answer its calls",
            code="client_tool_call",
        )
    if tool.executes:
        raise ConflictError(
            f"{tool.name!r} executes what the user of a chat has confirmed, and nothing else",
            code="executor_call",
        )
    if tool.no_background and not waits:
        raise ConflictError(
            f"{tool.name!r} runs only while somebody waits; leave out background, and wait",
            code="no_background",
        )


def _shown(row: RunRow, entries: Iterable[LogEntry]) -> dict[str, Any]:
    """Return what came of the call; a run that ended without it says why."""
    shown: dict[str, Any] = {
        "run_id": row.id,
        "status": row.status,
        "result": None,
        "error": _failure_of(row),
        "latency_ms": None,
    }
    for entry in entries:
        match decode(entry.type, entry.data):
            case ToolCallCompleted(result=result, duration_ms=took_ms):
                shown |= {"status": "completed", "result": result, "error": None}
                shown["latency_ms"] = took_ms
            case ToolCallFailed(error=failure, duration_ms=took_ms):
                error = {"code": failure.code, "message": failure.message}
                shown |= {"status": "failed", "error": error, "latency_ms": took_ms}
            case ToolCallDenied(by=by, reason=reason):
                error = {"code": "denied", "message": f"{by}: {reason}"}
                shown |= {"status": "denied", "error": error}
            case _:
                pass  # How it came to that is in the run's log.
    return shown


def _failure_of(row: RunRow) -> dict[str, Json]:
    said = orjson.loads(row.outcome or "{}").get("error") or {}
    message = said.get("message") or f"the run is {row.status}, and the tool was not called"
    return {"code": said.get("code") or row.status, "message": message}
