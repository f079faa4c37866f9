"""Requests that wait for a run: for how long they want to, and for what."""

import asyncio
import re

from starlette.requests import Request

from milepost.api.cursors import Cursor
from milepost.api.paging import integer
from milepost.api.requests import principal_of
from milepost.api.stream import Selection, Tail
from milepost.runtime.journal import Ports

WAIT_S_MAX = 120


def wait_s(request: Request, default: int = 0) -> int:
    """Return for how long the client wants to wait: `Prefer: wait=30` (RFC 7240) or `?wait=30`."""
    asked = integer(request, "wait", default, low=0, high=WAIT_S_MAX)
    preferences = ", ".join(request.headers.getlist("prefer"))
    preferred = re.search(r"(?:^|[,;\s])wait=([0-9]{1,6})\b", preferences)
    return min(int(preferred[1]), WAIT_S_MAX) if preferred else asked


async def await_run(
    ports: Ports, tenant: str, run_id: str, timeout_s: float, *, until_waiting: bool = False,
    after: int = 0,
) -> None:  # fmt: skip
    """Wait for the run's end, or for where it waits for somebody, as long as there is time.

    What its log says up to event `after` is not waited for.
    """
    selection = Selection(deltas=False, until_waiting=until_waiting)
    tail = Tail(ports.store, ports.hub, tenant, run_id, Cursor(after), selection)
    try:
        async with asyncio.timeout(timeout_s):
            async for _ in tail.pieces():
                pass
    except TimeoutError:
        return


async def attend_run(request: Request, ports: Ports, run_id: str, timeout_s: float) -> None:
    """Wait for the run's end, as long as there is time and the client is there."""
    tenant = principal_of(request).tenant
    waiting = asyncio.ensure_future(await_run(ports, tenant, run_id, timeout_s))
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((waiting, leaving), return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        waiting.cancel()
        leaving.cancel()
        await asyncio.gather(waiting, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    """Wait until the client has hung up; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
