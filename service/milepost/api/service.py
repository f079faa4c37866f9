"""The API as one ASGI application: every route, behind one edge."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from milepost.api.access import Access
from milepost.api.edge import Edge
from milepost.api.paging import json_response
from milepost.api.runs import Runs
from milepost.api.stream import Streams
from milepost.core.errors import MilepostError
from milepost.providers.catalog import Catalog
from milepost.runtime.journal import Ports
from milepost.store import queue
from milepost.telemetry.export import Exporter
from milepost.tools import Registry


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the API is made of."""

    ports: Ports
    streams: Streams
    tools: Registry
    providers: Catalog
    access: Access
    slots: int
    busy: Callable[[], int]
    exporter: Exporter | None = None


class Api:
    """Serves all resources until it is drained."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._draining = False
        self._edge = Edge(Router(self._routes()), parts.access, parts.ports.new_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._edge(scope, receive, send)

    def drain(self) -> None:
        """Say from now on that this process is not ready, so that balancers look elsewhere."""
        self._draining = True

    def _routes(self) -> list[BaseRoute]:
        parts = self._parts
        resources = [Runs(parts.ports, parts.streams)]
        return [
            Route("/healthz", self._health, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/openapi.yaml", self._contract, methods=["GET"]),
            *(route for resource in resources for route in resource.routes),
        ]

    async def _health(self, _: Request) -> Response:
        """Say that the process turns."""
        return json_response({"status": "ok"})

    async def _ready(self, _: Request) -> Response:
        """Say whether requests should come here: not while draining, nor without a database."""
        if self._draining:
            return json_response({"status": "draining"}, 503)
        try:
            await self._parts.ports.store.read(queue.load())
        except MilepostError as error:
            return json_response({"status": "unavailable", "why": error.code}, 503)
        return json_response({"status": "ready"})

    async def _metrics(self, _: Request) -> Response:
        """Show the metrics of this process, and the runs of the whole installation."""
        parts = self._parts
        parts.ports.metrics.set_slots(parts.slots, parts.busy())
        load = await parts.ports.store.read(queue.load())
        return Response(
            parts.ports.metrics.render(load), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def _contract(self, _: Request) -> Response:
        """Show the contract."""
        return Response(contract(), media_type="application/yaml")


def contract() -> bytes:
    """Return `openapi.yaml`, which the wheel carries inside the package."""
    packaged = Path(str(files("milepost"))) / "openapi.yaml"
    checkout = Path(__file__).resolve().parents[3] / "openapi.yaml"
    return (packaged if packaged.is_file() else checkout).read_bytes()
