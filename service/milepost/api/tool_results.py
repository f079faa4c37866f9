"""`/v1/runs/{id}/tool_results`: clients bring what came of the calls that are theirs to run."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.bodies import Body, read_body
from milepost.api.paging import allow, json_response
from milepost.api.replays import asked, once
from milepost.api.requests import caller
from milepost.api.runs_shown import show_run
from milepost.core.errors import ConflictError, InvalidError
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.client_calls import (
    LETTER,
    Answer,
    calls_of,
    letter_of,
    require_awaited,
)
from milepost.runtime.journal import Ports
from milepost.runtime.toolsets import Toolsets
from milepost.store import runs, tool_calls
from milepost.store.runs import Letter, RunRow
from milepost.store.work import Work
from milepost.tools import Registry
from milepost.tools.results import to_result

RESULTS_MAX = 100
ERROR_CHARS_MAX = 2_000


class ToolResult(Body):
    """What came of one call: a result of any JSON type, or why there is none."""

    call_id: Annotated[str, Field(min_length=1, max_length=64)]
    result: Any = None
    error: Annotated[str, Field(min_length=1, max_length=ERROR_CHARS_MAX)] | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "ToolResult":
        if ("result" in self.model_fields_set) == (self.error is not None):
            raise ValueError("a call has either a result or an error")
        return self


class ToolResults(Body):
    """What `POST /v1/runs/{id}/tool_results` takes."""

    results: Annotated[list[ToolResult], Field(min_length=1, max_length=RESULTS_MAX)]


class ClientTools:
    """The calls that clients run, over a store and a hub."""

    def __init__(self, ports: Ports, toolsets: Toolsets) -> None:
        self._ports = ports
        self._toolsets = toolsets

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/runs/{run_id}/tool_results", self.answer, methods=["POST"])]

    async def answer(self, request: Request) -> Response:
        """Answer calls, all or none; repeating an answer changes nothing."""
        allow(request)
        principal = caller(request, "runs:write")
        body, raw = await read_body(request, ToolResults)
        _require_distinct([each.call_id for each in body.results])
        run_id, now = request.path_params["run_id"], self._ports.clock()
        answers = [
            (each.call_id, Answer(to_result(each.result), each.error)) for each in body.results
        ]
        find = partial(runs.find, principal.tenant)
        tools = await self._toolsets.of(principal.tenant)
        effect = _answered(find(run_id), answers, tools, now)
        try:
            made = await self._ports.store.write(
                once(asked(request, raw, run_id, now), effect, find)
            )
        finally:
            # Also where it changed nothing: a claim passes over a run whose row was held by this.
            self._ports.hub.ring(QUEUE_BELL)
        if not made.replayed:
            self._ports.hub.ring(inbox_bell(run_id))
        return json_response(show_run(made.resource), headers=made.headers())


def _require_distinct(call_ids: Sequence[str]) -> None:
    for index, call_id in enumerate(call_ids):
        if call_id in call_ids[:index]:
            raise InvalidError(
                f"call {call_id} is answered twice in one request; choose one answer",
                code="duplicate_call",
                pointer=f"/results/{index}/call_id",
            )


def _answered(
    find: Work[RunRow],
    answers: Sequence[tuple[str, Answer]],
    tools: Registry,
    now_ms: int,
) -> Work[RunRow]:
    """Put the answers into the run's inbox; return the run as it is then."""
    row = yield from find
    calls = calls_of(*(yield from tool_calls.locked(row.tenant, row.id)))
    wanted = [(require_awaited(calls, call_id, answer), answer) for call_id, answer in answers]
    for call, answer in wanted:
        if call.answer is not None:
            continue
        tool = tools.get(call.tool)
        said = letter_of(call, answer, now_ms, terminal=tool is not None and tool.terminal)
        letter = Letter(LETTER, said, "client_tool", now_ms)
        if (yield from runs.deliver(row.tenant, row.id, letter)) is None:
            raise ConflictError(f"run {row.id} is over", code="call_not_awaited")
    return (yield from runs.find(row.tenant, row.id))
