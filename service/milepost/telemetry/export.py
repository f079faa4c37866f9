"""Sends spans to an OpenTelemetry collector, without anybody waiting for it.

One thread sends; callers only put down what it is to send. The place to put it is bounded, and
what does not fit, or cannot be delivered, is dropped and counted: telemetry is never worth a run.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from io import BytesIO

import requests
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from milepost.core.spans import Span
from milepost.telemetry.context import TraceContext
from milepost.telemetry.logs import logger
from milepost.telemetry.otel import readable, readable_server

QUEUE_MAX = 8_192
BATCH_MAX = 512
LINGER_S = 1.0
ATTEMPT_S = 5.0
ANSWER_BYTES_MAX = 65_536
CLOSE_S = 5.0

_log = logger("telemetry")


def _uncounted(_dropped: int) -> None:
    """Nobody wants to know."""


class _Words(logging.Handler):
    """The first thing that the SDK said of a batch: why, before it says that it gave up."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


def _take_words_of(name: str) -> _Words:
    """Hear what a logger of the SDK says, and keep it from all others: they get it from us."""
    theirs = logging.getLogger(name)
    words = _Words()
    theirs.handlers = [words]
    theirs.propagate = False
    return words


class _Refusals:
    """What collectors refuse in answers that the SDK takes for success."""

    def __init__(self, words: _Words, clock: Callable[[], float]) -> None:
        self._words = words
        self._clock = clock
        self.rejected = 0

    def __call__(self, answer: requests.Response, *_: object, **__: object) -> None:
        """Look at an answer. Raises for a redirect, which nobody follows, and for one without end.

        Whether what it was about has arrived nobody knows then.
        """
        if 300 <= answer.status_code < 400:
            answer.close()  # Nobody else sees it.
            to = answer.headers.get("location")
            raise _RedirectedError(f"{answer.status_code}, it is redirected to {to}")
        content = _cut(answer, self._clock)
        if answer.ok and len(content) <= ANSWER_BYTES_MAX:
            self._count(content)

    def _count(self, content: bytes) -> None:
        try:
            partial = ExportTraceServiceResponse.FromString(content).partial_success
        except DecodeError:
            return  # It was taken: what else is said of it is no OTLP.
        if partial.rejected_spans > 0:
            self.rejected = partial.rejected_spans
            self._words.first = partial.error_message or "the collector rejected spans"


def _cut(answer: requests.Response, clock: Callable[[], float]) -> bytes:
    """Return what it says, and have nobody read more than that: it may have no end.

    Read byte by byte: whoever asks for more waits for all of it, as long as a little comes. Raises
    where the end of a yes takes too long; a no is one without it.
    """
    content, until, late = bytearray(), clock() + ATTEMPT_S, False
    while len(content) <= ANSWER_BYTES_MAX and (byte := answer.raw.read(1, decode_content=True)):
        content += byte
        if late := clock() >= until:
            break
    answer.raw.close()
    if late and answer.ok:
        raise _EndlessError(f"it has not ended its answer within {ATTEMPT_S:g} s")
    answer.raw = BytesIO(content)
    return bytes(content)


class _EndlessError(Exception):
    """The collector talks on and on."""


class _RedirectedError(Exception):
    """The collector is elsewhere."""


class Exporter:
    """Exports over OTLP/HTTP to `endpoint`, the collector's base URL, until it is closed.

    Headers, certificates, compression and further resource attributes are the SDK's own settings
    (`OTEL_EXPORTER_OTLP_…`, `OTEL_RESOURCE_ATTRIBUTES`). `on_dropped` is told how many were lost,
    from whichever thread lost them; `clock` is monotonic and in seconds.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        service_name: str = "milepost",
        content: bool = False,
        on_dropped: Callable[[int], None] = _uncounted,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resource = Resource.create({SERVICE_NAME: service_name})
        self._content = content
        self._on_dropped = on_dropped
        url = f"{endpoint.rstrip('/')}/v1/traces"
        self._words = _take_words_of(OTLPSpanExporter.__module__)
        self._refusals = _Refusals(self._words, clock)
        session = requests.Session()
        session.hooks["response"].append(self._refusals)
        self._otlp = OTLPSpanExporter(endpoint=url, timeout=ATTEMPT_S, session=session)
        self._failing = False
        self._lost = 0
        self._lock = threading.Lock()
        self._queue: deque[Span | ReadableSpan] = deque()
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="span-export", daemon=True)
        self._thread.start()

    def export(self, spans: Iterable[Span]) -> None:
        """Have the spans sent soon, or dropped."""
        self._put(tuple(spans))

    def export_server(
        self, name: str, place: TraceContext, start_ms: int, end_ms: int, status_code: int
    ) -> None:
        """Have the span of a request sent, unless its caller does not want to see the trace.

        `name` is its method and its route, as in `POST /v1/runs`.
        """
        if place.sampled:
            times_ms = start_ms, end_ms
            self._put((readable_server(name, place, times_ms, status_code, self._resource),))

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Send what is left, for at most `timeout_s`; drop the rest."""
        with self._lock:
            self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        with self._lock:
            left = len(self._queue)
            self._queue.clear()
        self._drop(left)
        self._otlp.shutdown()  # type: ignore[no-untyped-call]  # the SDK leaves it untyped

    def _put(self, spans: tuple[Span | ReadableSpan, ...]) -> None:
        with self._lock:
            room = 0 if self._closing else QUEUE_MAX - len(self._queue)
            self._queue.extend(spans[:room])
            full_batch = len(self._queue) >= BATCH_MAX
        if full_batch:
            self._wake.set()
        self._drop(len(spans) - room)

    def _drop(self, count: int) -> None:
        if count > 0:
            with self._lock:
                self._lost += count
            self._on_dropped(count)

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(LINGER_S)
            self._wake.clear()
            closing = self._closing
            while batch := self._take():
                self._send(batch)

    def _take(self) -> list[Span | ReadableSpan]:
        with self._lock:
            size = min(len(self._queue), BATCH_MAX)
            return [self._queue.popleft() for _ in range(size)]

    def _send(self, batch: list[Span | ReadableSpan]) -> None:
        self._words.first, self._refusals.rejected = "", 0
        try:
            sent = self._otlp.export([self._readable(span) for span in batch])
        except Exception:
            _log.exception("spans could not be encoded", spans=len(batch))
            sent = SpanExportResult.FAILURE
        lost = self._refusals.rejected if sent is SpanExportResult.SUCCESS else len(batch)
        self._drop(min(lost, len(batch)))
        delivered = not lost
        if delivered is self._failing:
            self._failing = not delivered
            self._tell()

    def _tell(self) -> None:
        """Say once that spans are being lost, and once how many were."""
        with self._lock:
            waiting, lost = len(self._queue), self._lost
            self._lost = 0 if not self._failing else lost
        if self._failing:
            why = self._words.first
            _log.warning("spans are not delivered", dropped=lost, waiting=waiting, why=why)
        else:
            _log.info("spans are delivered again", dropped=lost, waiting=waiting)

    def _readable(self, span: Span | ReadableSpan) -> ReadableSpan:
        if isinstance(span, ReadableSpan):
            return span
        return readable(span, self._resource, content=self._content)
