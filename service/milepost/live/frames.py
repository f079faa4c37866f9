"""Events as the bytes that clients are sent: encoded once, whoever listens."""

import functools
from datetime import UTC, datetime
from typing import Any

import orjson

TERMINAL = frozenset(
    {"run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired"}
)
# After these a run needs no worker: it is over, or waits for somebody.
AT_REST = TERMINAL | {"run.waiting"}


@functools.lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def rfc3339(time_ms: int) -> str:
    """Return Unix milliseconds as RFC 3339 in UTC."""
    seconds, millis = divmod(time_ms, 1000)
    return f"{_second(seconds)}.{millis:03d}Z"


def rfc3339_or_none(time_ms: int | None) -> str | None:
    """Return the time as `rfc3339` does, or None for what has not happened."""
    return None if time_ms is None else rfc3339(time_ms)


class Frame:
    """A durable event, encoded: `body` is its JSON object, `sse` its server-sent event."""

    __slots__ = ("_payload", "_sse", "body", "seq", "type")

    def __init__(self, run_id: str, seq: int, kind: str, time_ms: int, data: bytes) -> None:
        self.seq = seq
        self.type = kind
        self.body = (
            (
                f'{{"type":"{kind}","seq":{seq},"time":"{rfc3339(time_ms)}","run_id":"{run_id}","data":'
            ).encode()
            + data
            + b"}"
        )
        self._sse: bytes | None = None
        self._payload: dict[str, Any] | None = None

    @property
    def terminal(self) -> bool:
        """Say whether nothing comes after this."""
        return self.type in TERMINAL

    @property
    def sse(self) -> bytes:
        """The whole event as a stream carries it."""
        if self._sse is None:
            self._sse = self.sse_within("")
        return self._sse

    def sse_within(self, stream: str) -> bytes:
        """Return the whole event as a longer stream carries it, with `stream` before its id."""
        head = f"id: {stream}{self.seq}\nevent: {self.type}\ndata: ".encode()
        return b"".join((head, self.body, b"\n\n"))

    @property
    def payload(self) -> dict[str, Any]:
        """The event's own data, decoded."""
        if self._payload is None:
            self._payload = orjson.loads(self.body)["data"]
        return self._payload


def sent_event(kind: str, body: bytes, event_id: int | None = None) -> bytes:
    """Return a server-sent event whose JSON is `body`; with an id, streams go on from there."""
    place = "" if event_id is None else f"id: {event_id}\n"
    return b"".join((f"{place}event: {kind}\ndata: ".encode(), body, b"\n\n"))


def ephemeral(kind: str, run_id: str, data: dict[str, Any], event_id: str | None) -> bytes:
    """Return an event that is not in the log, as a stream carries it."""
    head = f"id: {event_id}\nevent: {kind}\ndata: " if event_id else f"event: {kind}\ndata: "
    body = orjson.dumps({"type": kind, "run_id": run_id, "data": data})
    return b"".join((head.encode(), body, b"\n\n"))
