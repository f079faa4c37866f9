"""An OpenTelemetry collector, as small as one can be: it listens on a socket and remembers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WAIT_S = 20.0
POLL_S = 0.01
PIECE = b"x" * 65_536
PIECES = 1_024


class Collector:
    """What came in. It answers a request only while its `gate` is open.

    One that `talks_on` does so for 64 MiB, unless it is left talking.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.status = 200
        self.answer = b""
        self.headers: dict[str, str] = {}
        self.talks_on = False
        self.left_talking = threading.Event()
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()

    def take(self, path: str, body: bytes) -> None:
        """Remember a request, then hold it until the gate is open."""
        self.paths.append(path)
        self.bodies.append(body)
        self.arrived.set()
        self.gate.wait(WAIT_S)

    @property
    def spans(self) -> dict[str, Span]:
        """The spans by name."""
        return {span.name: span for span in self.all_spans}

    @property
    def all_spans(self) -> list[Span]:
        """The spans in the order in which they came."""
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, object]:
        """What the first request says about its sender."""
        first = ExportTraceServiceRequest.FromString(self.bodies[0]).resource_spans[0]
        return {one.key: _plain(one.value) for one in first.resource.attributes}


def attributes_of(span: Span) -> dict[str, object]:
    """Return a span's attributes as plain values."""
    return {one.key: _plain(one.value) for one in span.attributes}


def _plain(value: AnyValue) -> object:
    if value.WhichOneof("value") == "array_value":
        return [_plain(item) for item in value.array_value.values]
    return getattr(value, value.WhichOneof("value") or "string_value")


@contextmanager
def listening() -> Iterator[Collector]:
    """Listen on a free port until the block ends."""
    collector = Collector()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, answer = collector.status, collector.answer
            collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            for name, value in collector.headers.items():
                self.send_header(name, value)
            if not collector.talks_on:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            if collector.talks_on:
                self._talk_on()

        def _talk_on(self) -> None:
            try:
                for _ in range(PIECES):
                    self.wfile.write(PIECE)
            except OSError:
                collector.left_talking.set()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        thread.start()
        yield collector
        collector.gate.set()
        server.shutdown()
        thread.join()
