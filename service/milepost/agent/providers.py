"""Who answers for the models of agents in this process: given in Python, or found by name."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from milepost.agent.per_loop import PerLoop
from milepost.core.errors import ConfigurationError
from milepost.core.model import Provider
from milepost.providers.cache import ReplyCache
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.caching import Caching
from milepost.providers.catalog import Catalog
from milepost.providers.chains import Chains
from milepost.providers.circuits import InProcessCircuits
from milepost.providers.demo import Demo
from milepost.providers.function import Answer, FunctionProvider
from milepost.providers.price_file import read_prices
from milepost.providers.pricing import FREE, Pricing
from milepost.providers.tariff import Tariff

if TYPE_CHECKING:
    from milepost.agent.vendors import Vendors

DEMO = "demo"


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers, for the runs of one event loop."""

    catalog: Catalog
    chains: Chains
    pricing: Pricing


class Providers:
    """Providers by name: those that are `given`, the offline `demo`, and then what the service has.

    What is given is a provider, or a function that answers requests. Any other name is looked up as
    the service does: vendors whose key is in the environment, a server at `OPENAI_BASE_URL`, and
    the tables of `file`, which is `milepost.toml` of the folder if it is there.

    Agents may share one: then they share its connections, its cache and its circuits. `prices` is a
    file of prices, or prices by `provider/model`, that go before the list.
    """

    def __init__(
        self,
        given: Mapping[str, Provider | Answer] | None = None,
        *,
        file: str | Path | None = None,
        prices: str | Path | Mapping[str, Tariff] | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"providers is {given!r}, and no dict; write providers={{'name': ...}}, and begin"
                " models with that name"
            )
        self._cache = InProcessCache() if cache is None else cache  # One may be empty.
        offered: dict[str, Provider | Answer] = {DEMO: Demo(word_delay_s=0), **(given or {})}
        self._given = {name: _provider(each) for name, each in offered.items()}
        self._file = None if file is None else Path(file)
        self._prices = prices if isinstance(prices, Mapping) else _read(prices)
        self._circuits = InProcessCircuits()
        self._vendors: Vendors | None = None
        self._pricing = Pricing(own=self._prices)
        self._loaded = False
        self._open = PerLoop(self._opened)
        if file is not None:
            self._look_up()

    @property
    def cache(self) -> ReplyCache:
        """Where replies are kept, and results of tools."""
        return self._cache

    def require(self, models: Iterable[str]) -> None:
        """Look up who answers for these, each `provider/model`; `ConfigurationError` for nobody."""
        wanted = {model.partition("/")[0] for model in models}
        if wanted <= self._given.keys():
            return
        vendors = self._look_up()
        known = [*self._given, *vendors.declared]
        if missing := sorted(wanted.difference(known)):
            raise ConfigurationError(
                f"there is no provider {missing[0]!r}; a model begins with one of:"
                f" {', '.join(sorted(known))}. Give it in providers={{{missing[0]!r}: ...}}, set"
                " its vendor's key, or declare it in milepost.toml",
                code="unknown_provider",
            )

    def held(self) -> AbstractAsyncContextManager[Answering]:
        """Give who answers on this loop; the last who leaves closes the connections."""
        return self._open.held()

    def _look_up(self) -> "Vendors":
        if self._vendors is None:
            # Imported late: who brings providers along needs none of it.
            from milepost.agent.vendors import read_vendors  # noqa: PLC0415 - the reason is above

            self._vendors = vendors = read_vendors(os.environ, self._file)
            free = FREE | vendors.free
            self._pricing = Pricing(vendors.base_urls, own=self._prices, free=free)
        return self._vendors

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Answering]:
        pricing = self._pricing
        await self._load(pricing)
        given = {
            name: Caching(each, self._cache, scope=f"given {name}")
            for name, each in self._given.items()
        }
        if self._vendors is None:
            catalog = Catalog(given, instructed=given)
            yield Answering(catalog, Chains(catalog, self._circuits), pricing)
            return
        async with self._vendors.opened(given, self._cache, self._circuits) as models:
            yield Answering(models.catalog, models.chains, pricing)

    async def _load(self, pricing: Pricing) -> None:
        """Read the price list where a model may be in it: in a thread, for it takes its time."""
        is_needed = self._vendors is not None or len(self._given) > 1
        if is_needed and not self._loaded:
            await asyncio.to_thread(pricing.load)
            self._loaded = True


def _provider(given: Provider | Answer) -> Provider:
    return given if isinstance(given, _Streaming) else FunctionProvider(given)


@runtime_checkable
class _Streaming(Provider, Protocol):
    """A provider, as far as that can be seen."""


def _read(prices: str | Path | None) -> dict[str, Tariff]:
    return {} if prices is None else read_prices(Path(prices), named_by="prices=...")
