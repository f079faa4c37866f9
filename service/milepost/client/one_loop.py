"""The one event loop on which a client's connections are."""

import asyncio


class OneLoop:
    """The event loop of a client's first request: a connection is of no use on any other.

    It would fail there now and then, and in words about locks, not about clients.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def require(self) -> None:
        """Raise `RuntimeError` on another event loop."""
        here = asyncio.get_running_loop()
        self._loop = self._loop or here
        if self._loop is not here:
            raise RuntimeError(
                "this client's connections are on another event loop; make one client for each"
            )
