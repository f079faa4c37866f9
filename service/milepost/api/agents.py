"""`/v1/agents`: what agents there are, and every version that they have had."""

import re
from collections.abc import Collection
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.bodies import parse, read_body, read_json
from milepost.api.conditions import amend, compares_versions, etag, version_meant
from milepost.api.paging import allow, json_response, listed, metadata, moment_ms, page
from milepost.api.replays import asked, earlier_of, once
from milepost.api.requests import caller
from milepost.core.agents import Agent
from milepost.core.errors import InvalidError
from milepost.live.frames import rfc3339
from milepost.providers.catalog import Catalog
from milepost.runtime.agent_spec import (
    AgentSpec,
    agent_of,
    require_known,
    revisable_spec,
    show_spec,
)
from milepost.runtime.definitions import decode_definition, encode_definition
from milepost.runtime.journal import Ports
from milepost.runtime.toolsets import Toolsets
from milepost.store import agents
from milepost.store.agents import AgentFilter, AgentRow, VersionRow

_VERSION = re.compile(r"[0-9]{1,9}")


class Agents:
    """Agents, over a store; they may name the tools, providers and guardrails of this process."""

    def __init__(
        self, ports: Ports, toolsets: Toolsets, providers: Catalog, rails: Collection[str]
    ) -> None:
        self._ports = ports
        self._toolsets = toolsets
        self._providers = providers
        self._rails = rails

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/agents", self.create, methods=["POST"]),
            Route("/v1/agents", self.search, methods=["GET"]),
            Route("/v1/agents/{agent}", self.get, methods=["GET"]),
            Route("/v1/agents/{agent}", self.change, methods=["PATCH"]),
            Route("/v1/agents/{agent}", self.delete, methods=["DELETE"]),
            Route("/v1/agents/{agent}/versions", self.versions, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Make an agent, at version 1."""
        allow(request)
        principal = caller(request, "agents:write")
        spec, raw = await read_body(request, AgentSpec)
        agent_id, now, store = self._ports.new_id("agt"), self._ports.clock(), self._ports.store
        wish = asked(request, raw, agent_id, now)
        find = partial(agents.find, principal.tenant)
        if (made := await earlier_of(store, wish, find)) is None:
            agent = await self._checked(principal.tenant, spec)
            creation = agents.create(
                principal.tenant,
                agent.name,
                encode_definition(agent),
                agent_id=agent_id,
                now_ms=now,
            )
            made = await store.write(once(wish, creation, find))
        row = made.resource
        headers = made.headers(Location=f"/v1/agents/{row.id}", ETag=etag(row))
        return json_response(show_agent(row), 201, headers)

    async def search(self, request: Request) -> Response:
        """List agents at their newest versions, the newest agent first."""
        allow(
            request, "limit", "after", "order", "created_after", "created_before", "metadata"
        )  # fmt: skip
        principal = caller(request, "runs:read")
        wanted = AgentFilter(
            created_after_ms=moment_ms(request, "created_after"),
            created_before_ms=moment_ms(request, "created_before"),
            metadata=metadata(request),
        )
        stretch = page(request, of="agt")
        found = await self._ports.store.read(agents.search(principal.tenant, wanted, stretch))
        return listed(found, stretch, show_agent, lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show an agent, found by its name or id, at its newest version."""
        allow(request)
        row = await self._find(caller(request, "runs:read"), request)
        return json_response(show_agent(row), headers={"ETag": etag(row)})

    @compares_versions
    async def change(self, request: Request) -> Response:
        """Make the agent's next version: the fields that are named change, the others stay.

        A body that changes nothing makes no version. Runs go on with the one they started with.
        """
        allow(request)
        principal = caller(request, "agents:write")
        fields, _ = await read_json(request)
        if not isinstance(fields, dict):
            raise InvalidError("the body must be an object with the fields to change")
        row = await amend(
            request,
            lambda: self._find(principal, request),
            lambda row: self._change(row, fields),
        )
        return json_response(show_agent(row), headers={"ETag": etag(row)})

    @compares_versions
    async def delete(self, request: Request) -> Response:
        """Take an agent away from new runs; those made already go on and keep their version."""
        allow(request)
        row = await self._find(caller(request, "agents:write"), request)
        expected = version_meant(request, row)
        await self._ports.store.write(
            agents.delete(row.tenant, row.id, now_ms=self._ports.clock(), expected_version=expected)
        )
        return Response(status_code=204)

    async def versions(self, request: Request) -> Response:
        """List all that the agent has been, the newest version first."""
        allow(request, "limit", "after", "order")
        row = await self._find(caller(request, "runs:read"), request)
        stretch = page(request)
        if stretch.after is not None and not _VERSION.fullmatch(stretch.after):
            raise InvalidError(
                f"{stretch.after!r} is no cursor of this list; it is a version's number",
                code="bad_cursor",
            )
        found = await self._ports.store.read(agents.versions(row.tenant, row.id, stretch))
        return listed(
            found, stretch, lambda each: _show_version(row, each), lambda each: str(each.version)
        )

    async def _find(self, principal: Principal, request: Request) -> AgentRow:
        named = request.path_params["agent"]
        return await self._ports.store.read(agents.find(principal.tenant, named))

    async def _change(self, row: AgentRow, fields: dict[str, Any]) -> AgentRow:
        if fields.get("name", row.name) != row.name:
            raise InvalidError(
                f"agent {row.name!r} keeps its name, since runs and people know it by that;"
                " make another agent instead",
                code="name_is_fixed",
                pointer="/name",
            )
        present = revisable_spec(decode_definition(row.id, row.version, row.definition))
        agent = await self._checked(row.tenant, parse(AgentSpec, {**present, **fields}))
        definition = encode_definition(agent)
        if definition == row.definition:
            return row
        return await self._ports.store.write(
            agents.revise(
                row.tenant,
                row.id,
                definition,
                now_ms=self._ports.clock(),
                expected_version=row.version,
            )
        )

    async def _checked(self, tenant: str, spec: AgentSpec) -> Agent:
        """Return the agent; raise `InvalidError` if it names what its tenant lacks."""
        tools = await self._toolsets.of(tenant)
        return require_known(agent_of(spec), tools, self._providers, self._rails)


def show_agent(row: AgentRow) -> dict[str, Any]:
    """Return the agent as clients read it."""
    newest = VersionRow(row.version, row.definition, row.changed_ms)
    shown = _show_version(row, newest)
    return {**shown, "created_at": rfc3339(row.created_ms), "updated_at": shown["created_at"]}


def _show_version(row: AgentRow, version: VersionRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "version": version.version,
        "created_at": rfc3339(version.created_ms),
        **show_spec(decode_definition(row.id, version.version, version.definition)),
    }
