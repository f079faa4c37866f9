"""Clients that follow runs which wait for a person, and read nothing, in a process of their own.

`python -m tests.benchmarks.idle --port 8000 --streams 500` says `settled` once the runs wait, opens
the streams when it is sent a line, says `open`, and leaves with the next line. The runs are those
in the file that `--runs` names, an id a line, or else a new one.
"""

import argparse
import asyncio
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from tests.benchmarks.load import make_request

AT_ONCE = 50
PATIENCE_S = 300.0
WARM_UP_STREAMS = 20
READ_BYTES = 65_536
FILES_BESIDE = 1_000

_WAITS = b"event: run.waiting\n"
_RUN_ID = re.compile(rb'"run_id":"(run_\w+)"')


async def idle(port: int, streams: int, run_ids: Sequence[str] = ()) -> None:
    """Open the streams when told, those of each run in turn, and close them when told."""
    async with asyncio.timeout(PATIENCE_S):
        requests = [_request(port, run_id) for run_id in run_ids or await make(port, 1)]
        for _, warm in await _open(port, [requests[0]] * WARM_UP_STREAMS):
            warm.close()
    _tell("settled")
    async with asyncio.timeout(PATIENCE_S):
        opened = await _open(port, [requests[n % len(requests)] for n in range(streams)])
    _tell("open")
    for _, writer in opened:
        writer.close()


async def make(port: int, runs: int) -> list[str]:
    """Start so many runs and see them wait; return their ids."""
    run_ids = []
    for began, writer in await _open(port, [make_request(port, "waiting")] * runs):
        writer.close()
        matched = _RUN_ID.search(began)
        assert matched is not None, began
        run_ids.append(matched[1].decode())
    return run_ids


def _request(port: int, run_id: str) -> bytes:
    return (
        f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        "accept: text/event-stream\r\n\r\n"
    ).encode()


def allow_files(streams: int) -> None:
    """Let this process, and those that it starts, have so many connections open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = streams + FILES_BESIDE
    assert most == resource.RLIM_INFINITY or wanted <= most, f"only {most} files may be open"
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _tell(word: str) -> None:
    """Say how far we are, and wait for leave to go on; nothing else is to happen meanwhile."""
    print(word, flush=True)
    sys.stdin.readline()


async def _open(port: int, requests: Sequence[bytes]) -> list[tuple[bytes, asyncio.StreamWriter]]:
    opened: list[tuple[bytes, asyncio.StreamWriter]] = []
    for first in range(0, len(requests), AT_ONCE):
        some = requests[first : first + AT_ONCE]
        opened += await asyncio.gather(*(_waiting(port, request) for request in some))
    return opened


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
    parser.add_argument("--runs", type=Path)
    options = parser.parse_args()
    allow_files(options.streams)
    run_ids = options.runs.read_text().split() if options.runs else []
    uvloop.run(idle(options.port, options.streams, run_ids))


if __name__ == "__main__":
    _main()
