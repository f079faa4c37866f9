"""Clients of a stream that read nothing of it, and a log that is too long for any buffer."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from milepost.core.events import ToolCallCompleted
from tests.runtime.writing import Run

EVENTS, EVENT_BYTES = 200, 50_000
EVENTS_AT_ONCE = 20
RECEIVE_BYTES = 4_096


@asynccontextmanager
async def unread(port: int, run_id: str, count: int) -> AsyncIterator[list[socket.socket]]:
    """Ask for so many streams of a run, and read nothing of them."""
    loop = asyncio.get_running_loop()
    request = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with ExitStack() as opened:
        clients = [opened.enter_context(socket.socket()) for _ in range(count)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, request)
        yield clients


async def long_log(run: Run) -> None:
    """Write megabytes of events, many in one transaction."""
    for first in range(0, EVENTS, EVENTS_AT_ONCE):
        calls = range(first, first + EVENTS_AT_ONCE)
        await run.write(*(ToolCallCompleted(f"call_{n}", "x" * EVENT_BYTES, 1) for n in calls))
