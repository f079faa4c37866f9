"""`/v1/admin/storage`: what takes the space."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.paging import allow, json_response
from milepost.api.requests import caller
from milepost.runtime.journal import Ports
from milepost.store import storage
from milepost.store.storage import TableSize


class Storage:
    """Sizes, over a store. Needs the scope admin, as all that concerns the whole installation."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [Route("/v1/admin/storage", self.get, methods=["GET"])]

    async def get(self, request: Request) -> Response:
        """Show what the tables take, the largest first, and how much of it is the caller's."""
        allow(request)
        principal = caller(request, "admin")
        store = self._ports.store
        size = await store.read(storage.measure(store.engine.dialect))
        counts = await store.read(storage.counts(principal.tenant))
        tables = sorted(size.tables, key=_bytes_of, reverse=True)
        return json_response(
            {
                "database": store.engine.dialect,
                "total_bytes": size.total_bytes,
                "free_bytes": size.free_bytes,
                "tables": [_show(table) for table in tables],
                "tenant": {
                    each.name: {"count": each.count, "at_least": each.at_least} for each in counts
                },
            }
        )


def _bytes_of(table: TableSize) -> int:
    return (table.table_bytes or 0) + (table.index_bytes or 0)


def _show(table: TableSize) -> dict[str, Any]:
    return {
        "name": table.name,
        "rows_estimate": table.rows,
        "table_bytes": table.table_bytes,
        "index_bytes": table.index_bytes,
    }
