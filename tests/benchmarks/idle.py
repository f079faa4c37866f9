"""Clients that follow a run which waits for a person, and read nothing, in a process of their own.

`python -m tests.benchmarks.idle --port 8000 --streams 500` says `settled` once the run waits, opens
the streams when it is sent a line, says `open`, and leaves with the next line.
"""

import argparse
import asyncio
import re
import sys

import uvloop

from tests.benchmarks.load import make_request

AT_ONCE = 50
PATIENCE_S = 30.0
WARM_UP_STREAMS = 20
READ_BYTES = 65_536

_WAITS = b"event: run.waiting\n"
_RUN_ID = re.compile(rb'"run_id":"(run_\w+)"')


async def idle(port: int, streams: int) -> None:
    """Open the streams when told, and close them when told."""
    writers: list[asyncio.StreamWriter] = []
    async with asyncio.timeout(PATIENCE_S):
        began, writer = await _waiting(port, make_request(port, "waiting"))
        writer.close()
        matched = _RUN_ID.search(began)
        assert matched is not None, began
        request = (
            f"GET /v1/runs/{matched[1].decode()}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            "accept: text/event-stream\r\n\r\n"
        ).encode()
        for warm in await _open(port, request, WARM_UP_STREAMS):
            warm.close()
        _tell("settled")
        writers = await _open(port, request, streams)
    _tell("open")
    for writer in writers:
        writer.close()


def _tell(word: str) -> None:
    """Say how far we are, and wait for leave to go on; nothing else is to happen meanwhile."""
    print(word, flush=True)
    sys.stdin.readline()


async def _open(port: int, request: bytes, count: int) -> list[asyncio.StreamWriter]:
    writers: list[asyncio.StreamWriter] = []
    while len(writers) < count:
        some = min(AT_ONCE, count - len(writers))
        opened = await asyncio.gather(*(_waiting(port, request) for _ in range(some)))
        writers += [writer for _, writer in opened]
    return writers


async def _waiting(port: int, request: bytes) -> tuple[bytes, asyncio.StreamWriter]:
    """Send the request and read its stream until the run waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    received = b""
    while _WAITS not in received:
        piece = await reader.read(READ_BYTES)
        assert piece, f"the stream ended: {received!r}"
        received += piece
    return received, writer


def _main() -> None:
    parser = argparse.ArgumentParser(description="Hold streams of a waiting run open")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    options = parser.parse_args()
    uvloop.run(idle(options.port, options.streams))


if __name__ == "__main__":
    _main()
