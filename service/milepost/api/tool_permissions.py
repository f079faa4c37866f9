"""`/v1/tool_permissions`: to whom a tenant permits which tools."""

from typing import Annotated

import orjson
from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.bodies import Body, read_body
from milepost.api.conditions import amend, compares_versions, etag
from milepost.api.paging import allow, json_response
from milepost.api.requests import caller
from milepost.live.frames import rfc3339_or_none
from milepost.runtime.journal import Ports
from milepost.runtime.tenant_permissions import TenantPermissions
from milepost.runtime.toolsets import Toolsets
from milepost.store import audit, permissions
from milepost.store.audit import AuditRow
from milepost.store.permissions import PermissionsRow
from milepost.store.work import Work
from milepost.tools import Registry
from milepost.tools.definition import SCOPE_PREFIX

ENTRIES_MAX = 1_000

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
Permitted = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\s\x00](?:[^\x00]*[^\s\x00])?$")
]


class ToolPermissionsBody(Body):
    """What `PUT /v1/tool_permissions` takes: the whole map."""

    permissions: Annotated[
        dict[ToolName, Annotated[list[Permitted], Field(max_length=ENTRIES_MAX)]],
        Field(max_length=ENTRIES_MAX),
    ]

    @field_validator("permissions")
    @classmethod
    def _name_somebody(cls, permissions: dict[str, list[str]]) -> dict[str, list[str]]:
        for tool, listed in permissions.items():
            if SCOPE_PREFIX in listed:
                raise ValueError(f"{tool} is permitted to a scope without a name; say scope:<name>")
        return permissions


class ToolPermissions:
    """A tenant's own map. It narrows what the tools themselves permit, and widens nothing.

    Names that no tool has are kept, and told: a tool may come later, or come back, and must not be
    open to everybody until then.
    """

    def __init__(self, ports: Ports, known: TenantPermissions, toolsets: Toolsets) -> None:
        self._ports = ports
        self._known = known
        self._toolsets = toolsets

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/tool_permissions", self.get, methods=["GET"]),
            Route("/v1/tool_permissions", self.put, methods=["PUT"]),
        ]

    async def get(self, request: Request) -> Response:
        """Show the map."""
        allow(request)
        principal = caller(request, "admin")
        row = await self._ports.store.read(permissions.get(principal.tenant))
        return _shown(row, await self._toolsets.of(principal.tenant))

    @compares_versions
    async def put(self, request: Request) -> Response:
        """Put another map in the place of the present one, as a whole."""
        allow(request)
        principal = caller(request, "admin")
        body, _ = await read_body(request, ToolPermissionsBody)
        said = orjson.dumps(body.permissions, option=orjson.OPT_SORT_KEYS).decode()
        row = await amend(
            request,
            lambda: self._ports.store.read(permissions.get(principal.tenant)),
            lambda row: self._ports.store.write(_kept(row, said, self._act(principal, said))),
        )
        self._known.forget(principal.tenant)
        return _shown(row, await self._toolsets.of(principal.tenant))

    def _act(self, principal: Principal, said: str) -> AuditRow:
        return act_of(
            self._ports,
            principal,
            "tool_permissions.changed",
            "tools",
            {"permissions": orjson.Fragment(said)},
        )


def _kept(row: PermissionsRow, said: str, act: AuditRow) -> Work[PermissionsRow]:
    """Keep the map and write down who said so; what changes nothing makes no version."""
    if row.version and row.permissions == said:
        return row
    changed = yield from permissions.replace(row, said, act.time_ms)
    yield from audit.add(act)
    return changed


def _shown(row: PermissionsRow, tools: Registry) -> Response:
    listed = orjson.loads(row.permissions)
    shown = {
        "permissions": listed,
        "unknown": sorted(name for name in listed if name not in tools),
        "updated_at": rfc3339_or_none(row.updated_ms),
    }
    return json_response(shown, headers={"ETag": etag(row)})
