"""Clients that start runs and read their streams, in a process of their own.

`python -m tests.benchmarks.load --port 8000 --at-once 64 --seconds 4` prints one line of JSON. A
client keeps its connection; each stream is read to its end and checked.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import orjson
import uvloop

from tests.benchmarks.streams import BadStreamError, check

RUNS_MAX = 1_000_000
PATIENCE_S = 30.0

_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Load:
    """What the clients saw: times in milliseconds, CPU time and duration in seconds."""

    runs: int
    events: int
    duration_s: float
    first_p50_ms: float
    first_p99_ms: float
    run_p50_ms: float
    run_p99_ms: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Runs a second."""
        return self.runs / self.duration_s


@dataclass(slots=True)
class Tally:
    """What is still to be started, and how long what has ended took."""

    runs_left: int
    until_s: float
    events: int = 0
    first_s: list[float] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)

    def take(self) -> bool:
        """Say whether one more run is to be started, and count it."""
        if self.runs_left <= 0 or time.perf_counter() >= self.until_s:
            return False
        self.runs_left -= 1
        return True


class Client(asyncio.Protocol):
    """Starts a run, reads its stream to the end, and starts the next. `left` tells how it went."""

    def __init__(self, request: bytes, tally: Tally) -> None:
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._tally = tally
        self._transport: asyncio.Transport | None = None
        self._received: list[bytes] = []
        self._sent_s = 0.0
        self._first_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is no subclass of it
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the others, unless this client left by itself."""
        if not self.left.done():
            said = b"".join(self._received)[-500:]
            self.left.set_exception(BadStreamError(f"the connection broke ({exc}) after {said!r}"))

    def data_received(self, data: bytes) -> None:
        """Take in a piece; the first one behind the head is the first event."""
        self._received.append(data)
        if not self._first_s:
            received = b"".join(self._received)
            if not received.startswith(b"HTTP/1.1 200 ") or len(received) > _head_size(received):
                self._first_s = time.perf_counter()
        if data.endswith(_LAST_CHUNK) or not self._received[0].startswith(b"HTTP/1.1 200 "):
            self._finish()

    def _next(self) -> None:
        assert self._transport is not None
        if not self._tally.take():
            self.left.set_result(None)
            self._transport.close()
            return
        self._received.clear()
        self._first_s = 0.0
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)

    def _finish(self) -> None:
        now = time.perf_counter()
        try:
            self._tally.events += check(b"".join(self._received))
        except BadStreamError as error:
            self.left.set_exception(error)
            return
        self._tally.first_s.append(self._first_s - self._sent_s)
        self._tally.run_s.append(now - self._sent_s)
        self._next()


def _head_size(received: bytes) -> int:
    end = received.find(b"\r\n\r\n")
    return end + 4 if end >= 0 else len(received)


def make_request(port: int, agent: str) -> bytes:
    """Return the whole request that starts a run and streams it."""
    body = orjson.dumps({"agent": agent, "input": "What is 17 plus 25?", "stream": True})
    head = (
        f"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"accept: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def put(port: int, *, at_once: int, seconds: float, runs: int = RUNS_MAX) -> Load:
    """Keep `at_once` runs going until the time is up or `runs` were started, and see them out."""
    loop = asyncio.get_running_loop()
    request = make_request(port, "bench")
    began, began_cpu_s = time.perf_counter(), time.process_time()
    tally = Tally(runs, began + seconds)
    async with asyncio.timeout(seconds + PATIENCE_S):
        connections = [
            loop.create_connection(lambda: Client(request, tally), "127.0.0.1", port)
            for _ in range(min(at_once, runs))
        ]
        clients = [client for _, client in await asyncio.gather(*connections)]
        await asyncio.gather(*(client.left for client in clients))
    duration_s = time.perf_counter() - began
    return Load(
        runs=len(tally.run_s),
        events=tally.events,
        duration_s=duration_s,
        first_p50_ms=percentile(tally.first_s, 0.50) * 1000,
        first_p99_ms=percentile(tally.first_s, 0.99) * 1000,
        run_p50_ms=percentile(tally.run_s, 0.50) * 1000,
        run_p99_ms=percentile(tally.run_s, 0.99) * 1000,
        cpu_s=time.process_time() - began_cpu_s,
    )


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _main() -> None:
    parser = argparse.ArgumentParser(description="Start runs and check their streams")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--at-once", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--runs", type=int, default=RUNS_MAX)
    options = parser.parse_args()
    try:
        load = uvloop.run(
            put(options.port, at_once=options.at_once, seconds=options.seconds, runs=options.runs)
        )
    except BadStreamError as error:
        sys.exit(f"a stream is wrong: {error}")
    print(orjson.dumps(asdict(load)).decode())


if __name__ == "__main__":
    _main()
