"""Leaving a stream of deltas for good."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from milepost.core.model import Delta


@asynccontextmanager
async def closing(deltas: AsyncIterator[Delta]) -> AsyncIterator[AsyncIterator[Delta]]:
    """Close `deltas` at the end of the block, however it is left, and its connection with it.

    `contextlib.aclosing` for what a provider returns, which is a generator in practice only.
    """
    try:
        yield deltas
    finally:
        if isinstance(deltas, AsyncGenerator):
            await deltas.aclose()
