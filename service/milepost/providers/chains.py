"""The providers of models that stand in for each other, made once for each list of models."""

from milepost.core.model import Provider
from milepost.providers.breaker import Breaking
from milepost.providers.catalog import Catalog
from milepost.providers.circuits import Circuits
from milepost.providers.fallback import Fallback, OnFallback

CHAINS_MAX = 1_000


class Chains:
    """Finds who answers for a list of models, each `<provider>/<model>`, the preferred one first.

    All that one model says, in whichever list it stands, counts in the same circuit.
    """

    def __init__(
        self, catalog: Catalog, circuits: Circuits, *, on_fallback: OnFallback | None = None
    ) -> None:
        self._catalog = catalog
        self._circuits = circuits
        self._on_fallback = on_fallback
        self._chains: dict[tuple[str, ...], Provider] = {}

    def of(self, models: tuple[str, ...]) -> Provider:
        """Return the provider that asks `models` in turn; of a single one, that model's own.

        Raises `InvalidError` for a model whose provider is not here.
        """
        if len(models) == 1:
            return self._provider(models[0])
        if (chain := self._chains.get(models)) is None:
            if len(self._chains) >= CHAINS_MAX:
                self._chains.clear()
            chain = self._chains[models] = self._chain(models)
        return chain

    def _chain(self, models: tuple[str, ...]) -> Provider:
        guarded = [
            (name, Breaking(self._provider(name), self._circuits, name=name)) for name in models
        ]
        return Fallback(guarded, on_fallback=self._on_fallback)

    def _provider(self, name: str) -> Provider:
        return self._catalog.get(name.partition("/")[0])
