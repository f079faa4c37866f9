"""One trace across the caller, the API, the queue and the worker, over real OTLP/HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.journeys.processes import Installation

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Collector:
    """What was exported, and a bell for each export."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        """Take one export."""
        body = await request.read()
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        async with self.came:
            self.came.notify_all()
        return web.Response()

    async def named(self, *names: str) -> dict[str, Span]:
        """Return spans by name once all of these have come."""
        async with asyncio.timeout(20), self.came:
            await self.came.wait_for(lambda: {span.name for span in self.spans} >= set(names))
        return {span.name: span for span in self.spans}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Serve a collector on a free port."""
    collecting = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", collecting.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1, auto_decompress=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collecting.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collecting
    finally:
        await runner.cleanup()


async def test_the_callers_trace_goes_through_the_queue_to_the_worker(
    installation: Installation,
) -> None:
    async with collector() as collecting:
        server = await installation.start(OTEL_EXPORTER_OTLP_ENDPOINT=collecting.endpoint)
        response = await server.http.post(
            "/v1/runs",
            json={"agent": "clerk", "input": 'call look_up {"order": 7}'},
            headers={"traceparent": CALLER},
        )
        await server.whole(response.json()["id"])

        spans = await collecting.named(
            "POST /v1/runs", "invoke_agent clerk", "chat directed", "execute_tool look_up"
        )
        await server.stop()

    assert {span.trace_id.hex() for span in spans.values()} == {CALLER.split("-")[1]}
    request, agent = spans["POST /v1/runs"], spans["invoke_agent clerk"]
    assert request.parent_span_id.hex() == CALLER.split("-")[2]
    assert agent.parent_span_id == request.span_id
    assert spans["chat directed"].parent_span_id == agent.span_id
    assert spans["execute_tool look_up"].parent_span_id == agent.span_id
    assert not any(b"is blue" in body for body in collecting.bodies), "content is by opt-in only"
