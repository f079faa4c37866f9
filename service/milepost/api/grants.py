"""`/v1/grants`: what people have allowed for a session, and taking it back."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.acts import act_of
from milepost.api.paging import allow, choice, json_response, listed, page, words
from milepost.api.requests import approvals_reader, caller
from milepost.live.frames import rfc3339, rfc3339_or_none
from milepost.runtime.journal import Ports
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.store import audit, grants
from milepost.store.audit import AuditRow
from milepost.store.grants import GrantFilter, GrantRow
from milepost.store.work import Work


class Grants:
    """Grants, over a store. They are made by decisions on approvals, and by nothing else."""

    def __init__(self, ports: Ports, known: TenantPolicies) -> None:
        self._ports = ports
        self._known = known

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/grants", self.search, methods=["GET"]),
            Route("/v1/grants/{grant_id}", self.get, methods=["GET"]),
            Route("/v1/grants/{grant_id}", self.revoke, methods=["DELETE"]),
        ]

    async def search(self, request: Request) -> Response:
        """List grants, the newest first."""
        allow(request, "limit", "after", "order", "session_id", "tool", "active")
        principal = approvals_reader(request)
        active = choice(request, "active", ("true", "false"))
        wanted = GrantFilter(
            session_id=words(request, "session_id"),
            tool=words(request, "tool"),
            active=None if active is None else active == "true",
        )
        stretch = page(request, of="grt")
        found = await self._ports.store.read(grants.search(principal.tenant, wanted, stretch))
        now = self._ports.clock()
        return listed(found, stretch, lambda row: show_grant(row, now), lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one grant."""
        allow(request)
        principal = approvals_reader(request)
        grant_id = request.path_params["grant_id"]
        row = await self._ports.store.read(grants.find(principal.tenant, grant_id))
        return json_response(show_grant(row, self._ports.clock()))

    async def revoke(self, request: Request) -> Response:
        """Take a grant back: from now on people are asked again. Twice changes nothing."""
        allow(request)
        principal = caller(request, "approvals:decide")
        now = self._ports.clock()
        act = act_of(self._ports, principal, "grant.revoked", request.path_params["grant_id"], {})
        row = await self._ports.store.write(_revoked(act))
        self._known.forget(principal.tenant)
        return json_response(show_grant(row, now))


def _revoked(act: AuditRow) -> Work[GrantRow]:
    row, is_new = yield from grants.revoke(act.tenant, act.target, act.actor, act.time_ms)
    if is_new:
        yield from audit.add(act)
    return row


def show_grant(row: GrantRow, now_ms: int) -> dict[str, Any]:
    """Return a grant as clients read it."""
    return {
        "id": row.id,
        "session_id": row.session_id,
        "tool": row.tool,
        "digest": row.digest,
        "approval_id": row.approval_id,
        "granted_by": row.granted_by,
        "created_at": rfc3339(row.created_ms),
        "expires_at": rfc3339(row.expires_ms),
        "revoked_by": row.revoked_by,
        "revoked_at": rfc3339_or_none(row.revoked_ms),
        "active": row.holds(now_ms),
    }
