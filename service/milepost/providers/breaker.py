"""A provider that leaves a model alone which keeps failing."""

from collections.abc import AsyncGenerator
from functools import partial
from math import ceil

from milepost.core.errors import ProviderError
from milepost.core.model import CacheHit, Delta, ModelRequest, Provider
from milepost.providers.circuits import Circuits, Entry
from milepost.providers.closing import closing
from milepost.providers.trouble import CIRCUIT_OPEN, in_trouble, is_own_limit


class Breaking:
    """Asks `inner` as long as the circuit called `name` is closed, and refuses at once else.

    Only what says that the vendor is in trouble counts as a failure: neither a request or a key
    that it refuses, nor a limit of our own. Who leaves early has learned nothing.
    """

    def __init__(self, inner: Provider, circuits: Circuits, *, name: str) -> None:
        self._inner = inner
        self._circuits = circuits
        self._name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Raises `ProviderError` with the time to come back if it is open."""
        entry = await self._circuits.enter(self._name)
        if entry.wait_s:
            raise self._open(entry)
        cached = False
        settle = partial(self._circuits.leave, self._name, entry)
        try:
            async with closing(self._inner.stream(request)) as deltas:
                async for delta in deltas:
                    cached = cached or isinstance(delta, CacheHit)
                    yield delta
            if not cached:  # A kept reply says nothing about its vendor.
                settle = partial(self._circuits.succeed, self._name)
        except ProviderError as error:
            if in_trouble(error) and not is_own_limit(error):
                settle = partial(self._circuits.fail, self._name)
            raise
        finally:
            await settle()

    def _open(self, entry: Entry) -> ProviderError:
        return ProviderError(
            f"{self._name} failed too often in a row and is left alone; come back in"
            f" {ceil(entry.wait_s)} s",
            code=CIRCUIT_OPEN,
            retryable=True,
            retry_after_s=entry.wait_s,
        )
