"""The API as one ASGI application: every route, behind one edge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from milepost.api.access import Access
from milepost.api.agents import Agents
from milepost.api.approvals import Approvals
from milepost.api.artifacts import Artifacts
from milepost.api.audit import Audit
from milepost.api.batches import Batches
from milepost.api.budgets import Budgets
from milepost.api.cache import Cache
from milepost.api.call_ledger import CallLedger
from milepost.api.channels import Channels
from milepost.api.edge import Edge
from milepost.api.grants import Grants
from milepost.api.keys import Keys
from milepost.api.links import ApprovalLinks
from milepost.api.memories import Memories
from milepost.api.paging import json_response
from milepost.api.policies import Policies
from milepost.api.queue import Queue
from milepost.api.request_limit import RequestLimit
from milepost.api.requests import caller
from milepost.api.retention import Retention
from milepost.api.run_forks import RunForks
from milepost.api.run_replays import RunReplays
from milepost.api.runs import Runs
from milepost.api.schedules import Schedules
from milepost.api.secrets import Secrets
from milepost.api.session_events import SessionEvents
from milepost.api.session_exports import SessionExports
from milepost.api.session_forks import SessionForks
from milepost.api.session_memory import SessionMemory
from milepost.api.session_state import SessionStates
from milepost.api.sessions import Sessions
from milepost.api.steers import Steers
from milepost.api.storage import Storage
from milepost.api.stream import Streams
from milepost.api.tool_calls import ToolCalls
from milepost.api.tool_permissions import ToolPermissions
from milepost.api.tool_results import ClientTools
from milepost.api.tool_sources import ToolSources
from milepost.api.tools import Tools
from milepost.api.traces import Traces
from milepost.api.usage import UsageSums
from milepost.api.users import Users
from milepost.api.webhooks import Webhooks
from milepost.core.confirmations import ConfirmationParser
from milepost.core.errors import MilepostError
from milepost.providers.cache import ReplyCache
from milepost.providers.catalog import Catalog
from milepost.providers.pricing import Pricing
from milepost.runtime.budgets import TenantBudgets
from milepost.runtime.journal import Ports
from milepost.runtime.judging import Judging
from milepost.runtime.links import Links
from milepost.runtime.secrets import Vault
from milepost.runtime.stored_rates import StoredRates
from milepost.runtime.tenant_permissions import TenantPermissions
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.runtime.toolsets import Toolsets
from milepost.runtime.vectors import Vectors
from milepost.store import queue
from milepost.telemetry.export import Exporter
from milepost.telemetry.metrics import CONTENT_TYPE
from milepost.tools.egress import Guard


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the API is made of."""

    ports: Ports
    streams: Streams
    toolsets: Toolsets
    permissions: TenantPermissions
    budgets: TenantBudgets
    providers: Catalog
    cache: ReplyCache
    rails: frozenset[str]
    access: Access
    vault: Vault
    pricing: Pricing
    policies: TenantPolicies
    links: Links
    guard: Guard
    slots: int
    busy: Callable[[], int]
    leased: Callable[[], bool]
    parser: ConfirmationParser
    exporter: Exporter | None = None
    vectors: Vectors | None = None
    service_name: str = "milepost"
    kept_max_s: float | None = None
    limit: RequestLimit | None = None
    pages: Sequence[Route] = ()


class Resource(Protocol):
    """One kind of thing that is served."""

    @property
    def routes(self) -> list[Route]:
        """What is served."""


class Api:
    """Serves all resources until it is drained."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._draining = False
        self.routes = self._routes()
        # A slash too many is another path: a redirect would lose the body, and is in no contract.
        router = Router(self.routes, redirect_slashes=False)
        self._edge = Edge(router, parts.access, parts.ports.new_id, parts.limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._edge(scope, receive, send)

    @property
    def probes(self) -> Edge:
        """What a process without clients serves: whether it lives, is ready, and what it counts."""
        return Edge(Router(self._probe_routes()), self._parts.access, self._parts.ports.new_id)

    def drain(self) -> None:
        """Say from now on that this process is not ready, so that balancers look elsewhere."""
        self._draining = True

    def _routes(self) -> list[BaseRoute]:
        parts = self._parts
        judging = Judging(parts.ports.store, parts.toolsets, parts.policies.of)
        approvals = Approvals(parts.ports, judging, parts.policies, parts.streams)
        resources: tuple[Resource, ...] = (
            # The first, since a request is held against one route after the other.
            Runs(parts.ports, parts.streams, parts.exporter),
            Agents(parts.ports, parts.toolsets, parts.providers, parts.rails),
            RunReplays(parts.ports, judging, parts.pricing),
            RunForks(parts.ports, parts.exporter),
            Steers(parts.ports),
            CallLedger(parts.ports),
            Batches(parts.ports, parts.streams),
            Schedules(parts.ports),
            ClientTools(parts.ports, parts.toolsets),
            Sessions(parts.ports),
            SessionEvents(parts.ports, parts.streams),
            SessionForks(parts.ports),
            SessionExports(parts.ports),
            SessionStates(parts.ports),
            SessionMemory(parts.ports),
            Memories(parts.ports, parts.vectors),
            ToolPermissions(parts.ports, parts.permissions, parts.toolsets),
            Tools(parts.ports, parts.toolsets),
            ToolCalls(parts.ports, parts.toolsets, parts.exporter),
            ToolSources(parts.ports, parts.toolsets),
            Artifacts(parts.ports),
            Channels(parts.ports, parts.toolsets, parts.parser, parts.exporter),
            approvals,
            ApprovalLinks(parts.ports, parts.links, approvals),
            Traces(parts.ports, parts.service_name),
            UsageSums(parts.ports),
            Budgets(parts.ports, parts.budgets),
            Grants(parts.ports, parts.policies),
            Policies(parts.ports, parts.policies, judging, StoredRates(parts.ports.store)),
            Queue(parts.ports, parts.slots, parts.busy),
            Cache(parts.ports, parts.cache),
            Keys(parts.ports, parts.access),
            Users(parts.ports, parts.access),
            Retention(parts.ports, parts.kept_max_s),
            Storage(parts.ports),
            Secrets(parts.ports, parts.vault),
            Webhooks(parts.ports, parts.vault, parts.guard),
            Audit(parts.ports),
        )
        return [
            *(route for resource in resources for route in resource.routes),
            *self._probe_routes(),
            Route("/openapi.yaml", self._contract, methods=["GET"]),
            *self._parts.pages,
        ]

    def _probe_routes(self) -> list[BaseRoute]:
        return [
            Route("/healthz", self._health, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
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

    async def _metrics(self, request: Request) -> Response:
        """Show the metrics of this process, and how many runs the whole installation has.

        No tenant's own key may read that unless it was made for it.
        """
        caller(request, "metrics:read")
        parts = self._parts
        parts.ports.metrics.set_slots(parts.slots, parts.busy())
        parts.ports.metrics.set_lease(held=parts.leased())
        load = await parts.ports.store.read(queue.load())
        return Response(parts.ports.metrics.render(load), media_type=CONTENT_TYPE)

    async def _contract(self, _: Request) -> Response:
        """Show the contract."""
        return Response(contract(), media_type="application/yaml")


def contract() -> bytes:
    """Return `openapi.yaml`, which the wheel carries inside the package."""
    packaged = Path(str(files("milepost"))) / "openapi.yaml"
    checkout = Path(__file__).resolve().parents[3] / "openapi.yaml"
    return (packaged if packaged.is_file() else checkout).read_bytes()
