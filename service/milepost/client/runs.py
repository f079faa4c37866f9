"""`client.runs`."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

from milepost.client.following import Following, Wanted
from milepost.client.foreign import ours
from milepost.client.position import Position
from milepost.client.shapes import (
    Event,
    IfActive,
    Page,
    Replay,
    Run,
    RunStatus,
    ToolCall,
    ToolCallState,
    paged,
    shaped,
)
from milepost.client.transport import Transport, filtered, quoted

WAIT_S = 300.0
WAIT_STEP_S = 30
_NONE: Mapping[str, Any] = MappingProxyType({})


class RunOptions(TypedDict, total=False):
    """What a new run may be given besides its agent and its input."""

    session_id: str
    metadata: Mapping[str, str]
    user: str
    priority: int
    deadline_s: float
    delay_s: float
    if_active: IfActive


class ForkOptions(TypedDict, total=False):
    """What a fork may be given besides its point: another agent, something to be told, whose it is.

    Without `agent_version` a named agent is taken as it is now.
    """

    agent: str
    agent_version: int
    input: str | Sequence[Mapping[str, str]]
    metadata: Mapping[str, str]
    user: str


class RunFilters(TypedDict, total=False):
    """Which runs a list is to hold, and which stretch of it."""

    status: RunStatus | None
    agent: str | None
    session_id: str | None
    user: str | None
    made_by: str | None
    forked_from: str | None
    metadata: Mapping[str, str]
    created_after: str | None
    created_before: str | None
    limit: int | None
    after: str | None
    order: str | None


class ToolCallFilters(TypedDict, total=False):
    """Which calls a list is to hold, and which stretch of it."""

    state: ToolCallState | None
    tool: str | None
    limit: int | None
    after: str | None
    order: str | None


class Runs:
    """Start runs, follow them, look them up."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self,
        agent: str,
        input: str | Sequence[Mapping[str, str]],  # noqa: A002 - as the API calls it
        **options: Unpack[RunOptions],
    ) -> Run:
        """Queue a run of an agent, by name or id. Repeated by itself, it never makes two."""
        body = {"agent": agent, "input": input, **options}
        return shaped(Run, await self._transport.post("/v1/runs", body))

    async def get(self, run_id: str) -> Run:
        """Return a run as it is now."""
        return shaped(Run, await self._transport.get(f"/v1/runs/{quoted(run_id)}"))

    async def list(self, **filters: Unpack[RunFilters]) -> Page[Run]:
        """Return runs, the newest first."""
        return paged(Run, await self._transport.get("/v1/runs", filtered(filters)))

    async def cancel(self, run_id: str, reason: str | None = None) -> Run:
        """Ask a run to end; one that is over stays as it is."""
        body = {"reason": reason}
        return shaped(Run, await self._transport.post(f"/v1/runs/{quoted(run_id)}/cancel", body))

    async def retry(self, run_id: str) -> Run:
        """Send a run on that waits for an operator, since its workers crashed."""
        return shaped(Run, await self._transport.post(f"/v1/runs/{quoted(run_id)}/retry", {}))

    async def steer(self, run_id: str, content: str | Sequence[Mapping[str, str]]) -> str:
        """Say something to a run that is under way, in text or parts; return the message's id."""
        body = {"content": content}
        said = await self._transport.post(f"/v1/runs/{quoted(run_id)}/messages", body)
        return str(ours(said, "message_id")["message_id"])

    async def fork(self, run_id: str, at_seq: int, **options: Unpack[ForkOptions]) -> Run:
        """Queue a run that goes on from where another one was behind its event `at_seq`."""
        body = {"at_seq": at_seq, **options}
        return shaped(Run, await self._transport.post(f"/v1/runs/{quoted(run_id)}/fork", body))

    async def replay(
        self, run_id: str, agent: str | None = None, agent_version: int | None = None
    ) -> Replay:
        """Play a run's log again under an agent's rules; say where it first differs from them."""
        body = {"agent": agent, "agent_version": agent_version}
        path = f"/v1/runs/{quoted(run_id)}/replay"
        return shaped(Replay, await self._transport.post(path, body))

    async def tool_calls(self, run_id: str, **filters: Unpack[ToolCallFilters]) -> Page[ToolCall]:
        """Return what became of the run's calls, in the order in which they were asked for."""
        path = f"/v1/runs/{quoted(run_id)}/tool_calls"
        return paged(ToolCall, await self._transport.get(path, filtered(filters)))

    async def tool_call(self, run_id: str, call_id: str) -> ToolCall:
        """Return what became of a call, with the whole of its result."""
        path = f"/v1/runs/{quoted(run_id)}/tool_calls/{quoted(call_id)}"
        return shaped(ToolCall, await self._transport.get(path))

    async def tool_results(
        self,
        run_id: str,
        results: Mapping[str, Any] = _NONE,
        *,
        errors: Mapping[str, str] = _NONE,
    ) -> Run:
        """Bring what came of calls of client-side tools, by their ids: results of any JSON type.

        `errors` say to the model why a call came to nothing. All of it counts, or none.
        """
        said = [
            *({"call_id": call_id, "result": result} for call_id, result in results.items()),
            *({"call_id": call_id, "error": error} for call_id, error in errors.items()),
        ]
        path = f"/v1/runs/{quoted(run_id)}/tool_results"
        return shaped(Run, await self._transport.post(path, {"results": said}))

    def stream(
        self,
        run_id: str,
        *,
        after: str | None = None,
        types: Sequence[str] = (),
        deltas: bool = True,
        until_waiting: bool = False,
        partials: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield a run's events, from the first or behind `after`, until it ends.

        Broken connections are mended on the way: nothing is lost and nothing comes twice.
        `until_waiting` ends the stream, too, when the run begins to wait for somebody. `partials`
        are events `output.partial` with what can be read of a structured answer's value so far.
        """
        wanted = Wanted(types, deltas, until_waiting, partials)
        path = f"/v1/runs/{quoted(run_id)}/events"
        return Following(self._transport, path, wanted, Position(after)).events()

    async def wait(self, run_id: str, *, timeout_s: float = WAIT_S) -> Run:
        """Return the run once it has ended. Raises `TimeoutError`."""
        params = {"timeout_s": WAIT_STEP_S}
        async with asyncio.timeout(timeout_s):
            while True:
                run = shaped(
                    Run, await self._transport.get(f"/v1/runs/{quoted(run_id)}/wait", params)
                )
                if run.ended:
                    return run

    async def trace(self, run_id: str) -> Mapping[str, Any]:
        """Return the run's spans."""
        return ours(await self._transport.get(f"/v1/runs/{quoted(run_id)}/trace"), "spans")

    async def usage(self, run_id: str) -> Mapping[str, Any]:
        """Return what the run has used so far, in tokens and in money."""
        return ours(await self._transport.get(f"/v1/runs/{quoted(run_id)}/usage"), "run_id")
