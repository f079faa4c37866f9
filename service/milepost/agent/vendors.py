"""Providers by name: vendors with a key, and those that a file declares.

Only who names one imports this: what speaks to them takes a tenth of a second.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from milepost.core.model import Provider
from milepost.providers.building import Models, Shared, open_models
from milepost.providers.cache import ReplyCache
from milepost.providers.circuits import Circuits
from milepost.providers.declared import VENDORS, DeclaredProvider, known_vendors
from milepost.providers.providers_file import DEFAULT_FILE, read_providers
from milepost.providers.windows import InProcessWindows


@dataclass(frozen=True, slots=True)
class Vendors:
    """The declared providers, and what counts their calls."""

    declared: Mapping[str, DeclaredProvider]
    windows: InProcessWindows

    @property
    def base_urls(self) -> dict[str, str]:
        """Where each is."""
        return {name: each.base_url for name, each in self.declared.items()}

    @property
    def free(self) -> frozenset[str]:
        """Those whose calls cost nothing."""
        return frozenset(name for name, each in self.declared.items() if each.free)

    @asynccontextmanager
    async def opened(
        self, given: Mapping[str, Provider], cache: ReplyCache, circuits: Circuits
    ) -> AsyncIterator[Models]:
        """Yield them with those that are `given`, and close their connections."""
        shared = Shared(cache, self.windows, circuits)
        async with open_models(self.declared, shared, built_in=given, instructed=given) as models:
            yield models


def read_vendors(environment: Mapping[str, str], file: Path | None) -> Vendors:
    """Return what the environment and a file declare: the folder's own, unless one is named.

    Raises `ConfigurationError` for a file that cannot be used.
    """
    base_url = environment.get("OPENAI_BASE_URL") or VENDORS["openai"].base_url
    declared = known_vendors(environment, base_url)
    found = file or Path(DEFAULT_FILE)
    if file is not None or found.is_file():
        declared |= read_providers(found, environment, named_by="file=...")
    return Vendors(declared, InProcessWindows())
