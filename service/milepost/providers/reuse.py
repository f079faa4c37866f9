"""Whether a request went out on a connection that had been used before, as aiohttp tells it."""

from types import SimpleNamespace

import aiohttp


class Way:
    """The connection that one request goes out on. `kept`: it served another request before."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = False


def telling_reuse() -> aiohttp.TraceConfig:
    """Return what a session needs, so that the `Way` in a `trace_request_ctx` is told."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_tell)
    return trace


async def _tell(
    _: aiohttp.ClientSession,
    context: SimpleNamespace,
    __: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    if isinstance(way := context.trace_request_ctx, Way):
        way.kept = True
