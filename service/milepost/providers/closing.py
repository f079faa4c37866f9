"""Leaving a stream of deltas for good."""

from collections.abc import AsyncGenerator, AsyncIterator

from milepost.core.model import Delta


class closing:  # noqa: N801 - reads as a statement
    """Close `deltas` at the end of the block, however it is left, and its connection with it.

    `contextlib.aclosing` for what a provider returns, which is a generator in practice only.
    """

    __slots__ = ("_deltas",)

    def __init__(self, deltas: AsyncIterator[Delta]) -> None:
        self._deltas = deltas

    async def __aenter__(self) -> AsyncIterator[Delta]:
        """Give the deltas."""
        return self._deltas

    async def __aexit__(self, *_: object) -> None:
        """Leave them."""
        if isinstance(self._deltas, AsyncGenerator):
            await self._deltas.aclose()
