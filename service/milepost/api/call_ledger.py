"""`/v1/runs/{id}/tool_calls`: what became of the calls that a run's model asked for."""

import asyncio
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import (
    allow,
    choice,
    json_response,
    listed,
    page,
    stretch_of,
    words,
)
from milepost.api.requests import caller
from milepost.core.errors import NotFoundError
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.runtime.journal import Ports
from milepost.runtime.ledger import Attempt, CallState, Ledger, LedgerCall
from milepost.store import runs, tool_calls

READ_EVENTS = 200
ON_LOOP_MAX = 50
"""More events than this at a time are read in a thread: results may be long."""
RESULT_CHARS_SHOWN = 2_000


class CallLedger:
    """The ledgers of runs, over a store."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/runs/{run_id}/tool_calls", self.search, methods=["GET"]),
            Route("/v1/runs/{run_id}/tool_calls/{call_id}", self.get, methods=["GET"]),
        ]

    async def search(self, request: Request) -> Response:
        """List the run's calls in the order in which they were asked for; long results are cut."""
        allow(request, "limit", "after", "order", "state", "tool")
        tenant = caller(request, "runs:read").tenant
        stretch = page(request, order="asc")
        state, tool = choice(request, "state", get_args(CallState)), words(request, "tool")
        ledger = await self._read(tenant, request.path_params["run_id"], RESULT_CHARS_SHOWN)
        chosen = [
            call
            for call in ledger.calls
            if (state is None or call.state == state) and (tool is None or call.tool == tool)
        ]
        return listed(stretch_of(chosen, stretch, _cursor), stretch, _shown, _cursor)

    async def get(self, request: Request) -> Response:
        """Show one call, with the whole of its result."""
        allow(request)
        tenant = caller(request, "runs:read").tenant
        run_id, call_id = request.path_params["run_id"], request.path_params["call_id"]
        call = (await self._read(tenant, run_id, None)).get(call_id)
        if call is None:
            raise NotFoundError(f"run {run_id} has no tool call {call_id!r}", code="call_not_found")
        return json_response(_shown(call))

    async def _read(self, tenant: str, run_id: str, result_chars: int | None) -> Ledger:
        """Read the log a stretch at a time: what a call brought is kept no longer than needed."""
        await self._ports.store.read(runs.find(tenant, run_id))
        ledger, after = Ledger(run_id, result_chars=result_chars), 0
        while True:
            found = await self._ports.store.read(
                tool_calls.of_run(tenant, run_id, after=after, limit=READ_EVENTS)
            )
            if len(found) > ON_LOOP_MAX:
                await asyncio.to_thread(ledger.read, found)
            else:
                ledger.read(found)
            if len(found) < READ_EVENTS:
                return ledger
            after = found[-1].seq


def _cursor(call: LedgerCall) -> str:
    """Return what calls are sorted by, and go on being when there are more."""
    return f"{call.ordinal:09d}"


def _shown(call: LedgerCall) -> dict[str, Any]:
    return {
        "call_id": call.id,
        "tool": call.tool,
        "kind": call.kind,
        "state": call.state,
        "arguments": dict(call.arguments),
        "effect": call.effect,
        "idempotency_key": call.idempotency_key,
        "attempts": [_attempt(attempt) for attempt in call.attempts],
        "approval_ids": [*call.approvals],
        "child_run_id": call.child_run_id,
        "result": call.result,
        "result_is_cut": call.result_is_cut,
        "error": call.error,
        "requested_at": rfc3339(call.requested_ms),
        "ended_at": rfc3339_or_none(call.ended_ms),
        "duration_ms": call.duration_ms,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "started_at": rfc3339(attempt.started_ms),
        "ended_at": rfc3339_or_none(attempt.ended_ms),
        "outcome": attempt.outcome,
        "duration_ms": attempt.duration_ms,
    }
