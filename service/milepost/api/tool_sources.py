"""`/v1/tool_sources`: tools that a tenant declares itself, beside those of the installation."""

from functools import partial
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import FIELD_ERRORS_MAX, field_error, read_json
from milepost.api.paging import allow, json_response, listed, page
from milepost.api.problems import BodyError
from milepost.api.replays import asked, earlier_of, once
from milepost.api.requests import caller
from milepost.core.errors import ConflictError, InvalidError, ToolError
from milepost.live.frames import rfc3339
from milepost.runtime.journal import Ports
from milepost.runtime.tool_source import (
    SOURCE,
    Source,
    encode_listing,
    encode_source,
    require_own_secrets,
)
from milepost.runtime.toolsets import Toolsets
from milepost.store import alone, audit, tool_sources
from milepost.store.audit import AuditRow
from milepost.store.tool_sources import ToolSourceRow
from milepost.store.work import Work

SOURCES_MAX = 100


class ToolSourceError(BodyError):
    """The fields are there, and no tools can be made of them."""

    code = "invalid_tool_source"


class ToolSources:
    """Tool sources, over a store. All of it needs the scope admin: a source may use secrets."""

    def __init__(self, ports: Ports, toolsets: Toolsets) -> None:
        self._ports = ports
        self._toolsets = toolsets

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/tool_sources", self.create, methods=["POST"]),
            Route("/v1/tool_sources", self.search, methods=["GET"]),
            Route("/v1/tool_sources/{source_id}", self.get, methods=["GET"]),
            Route("/v1/tool_sources/{source_id}", self.delete, methods=["DELETE"]),
        ]

    async def create(self, request: Request) -> Response:
        """Keep a source, once it has shown that it has tools: its server is asked for them."""
        allow(request)
        principal = caller(request, "admin")
        said, raw = await read_json(request)
        source = _parsed(said)
        require_own_secrets(source)
        source_id, now, store = self._ports.new_id("tsr"), self._ports.clock(), self._ports.store
        wish = asked(request, raw, source_id, now)
        find = partial(tool_sources.find, principal.tenant)
        if (made := await earlier_of(store, wish, find)) is None:
            row = await self._tried(principal, source, source_id, now)
            act = self._act("tool_source.created", principal, row)
            made = await store.write(once(wish, kept(row, act), find))
        self._toolsets.forget(principal.tenant)
        headers = made.headers(Location=f"/v1/tool_sources/{made.resource.id}")
        return json_response(show_source(made.resource), 201, headers)

    async def search(self, request: Request) -> Response:
        """List sources, the newest first."""
        allow(request, "limit", "after", "order")
        principal = caller(request, "admin")
        stretch = page(request, of="tsr")
        found = await self._ports.store.read(tool_sources.search(principal.tenant, stretch))
        return listed(found, stretch, show_source, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one source."""
        allow(request)
        principal = caller(request, "admin")
        return json_response(show_source(await self._find(request, principal)))

    async def delete(self, request: Request) -> Response:
        """Take a source and its tools away; calls that are being made may come to nothing."""
        allow(request)
        principal = caller(request, "admin")
        row = await self._find(request, principal)
        act = self._act("tool_source.deleted", principal, row)
        work = tool_sources.delete(row.tenant, row.id)
        await self._ports.store.write(audit.written_down(work, act))
        self._toolsets.forget(principal.tenant)
        return Response(status_code=204)

    async def _find(self, request: Request, principal: Principal) -> ToolSourceRow:
        source_id = request.path_params["source_id"]
        return await self._ports.store.read(tool_sources.find(principal.tenant, source_id))

    async def _tried(
        self, principal: Principal, source: Source, source_id: str, now_ms: int
    ) -> ToolSourceRow:
        """Return the row to keep. Raises what keeps the source from having tools of its own."""
        try:
            said, tools = await self._toolsets.trial(principal.tenant, source)
        except ToolError as error:
            raise InvalidError(
                f"the source cannot be asked for its tools: {error}",
                code="tool_source_unreachable",
            ) from error
        names = [tool.name for tool in tools]
        for name in names:
            self._toolsets.require_free(name)
            if names.count(name) > 1:
                raise InvalidError(
                    f"two tools are called {name!r}; rename one", code="invalid_tool_source"
                )
        return ToolSourceRow(
            id=source_id,
            tenant=principal.tenant,
            name=source.name,
            kind=source.kind,
            spec=encode_source(source),
            listing=encode_listing(said),
            tools=orjson.dumps(names).decode(),
            created_ms=now_ms,
        )

    def _act(self, action: str, principal: Principal, row: ToolSourceRow) -> AuditRow:
        return act_of(self._ports, principal, action, row.id, {"name": row.name, "kind": row.kind})


def show_source(row: ToolSourceRow) -> dict[str, Any]:
    """Return the source as clients read it: secrets by their names alone."""
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "tools": orjson.loads(row.tools),
        "spec": orjson.loads(row.spec),
        "created_at": rfc3339(row.created_ms),
    }


def _parsed(said: Any) -> Source:
    try:
        return SOURCE.validate_python(said)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places = [field_error(each, said) for each in found[:FIELD_ERRORS_MAX]]
        fits = all(each["type"] == "value_error" for each in found)
        raise (ToolSourceError if fits else BodyError)(places, total=len(found)) from error


def kept(row: ToolSourceRow, act: AuditRow) -> Work[ToolSourceRow]:
    """Keep the source if none of its tools has the name of another source's."""
    yield from alone.counting(row.tenant, "tool_sources")
    present = yield from tool_sources.tools(row.tenant)
    if len(present) >= SOURCES_MAX:
        raise ConflictError(
            f"there are {len(present)} tool sources, and {SOURCES_MAX} may be; delete one first",
            code="too_many_tool_sources",
        )
    owners = {tool: name for name, tools in present for tool in orjson.loads(tools)}
    if row.name not in {name for name, _ in present}:
        for tool in orjson.loads(row.tools):
            if tool in owners:
                raise ConflictError(
                    f"the source {owners[tool]!r} has a tool {tool!r} already; call yours"
                    " otherwise",
                    code="tool_exists",
                )
    return (yield from audit.written_down(tool_sources.add(row), act))
