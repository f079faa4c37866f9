"""`/v1/audit`: who decided what, and who made or took back which key."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import allow, listed, moment_ms, page, words
from milepost.api.requests import caller
from milepost.live.frames import rfc3339
from milepost.runtime.journal import Ports
from milepost.store import audit, keys
from milepost.store.audit import AuditFilter, AuditRow


class Audit:
    """The audit trail, over a store: it is written where things are done, and only read here."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/audit", self.search, methods=["GET"])]

    async def search(self, request: Request) -> Response:
        """List acts, the newest first."""
        allow(
            request, "limit", "after", "order", "actor", "action", "target", "created_after",
            "created_before",
        )  # fmt: skip
        principal = caller(request, "admin")
        wanted = AuditFilter(
            actor=words(request, "actor"),
            action=words(request, "action"),
            target=words(request, "target"),
            after_ms=moment_ms(request, "created_after"),
            before_ms=moment_ms(request, "created_before"),
        )
        stretch = page(request, of="aud")
        found = await self._ports.store.read(audit.search(principal.tenant, wanted, stretch))
        actors = {row.actor for row in found}
        names = await self._ports.store.read(keys.names(principal.tenant, actors))
        return listed(found, stretch, lambda row: show_act(row, names), lambda row: row.id)


def show_act(row: AuditRow, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the act as clients read it; `names` are those of keys."""
    return {
        "id": row.id,
        "actor": row.actor,
        "actor_name": names.get(row.actor, row.actor),
        "action": row.action,
        "target": row.target,
        "details": orjson.loads(row.details),
        "created_at": rfc3339(row.time_ms),
    }
