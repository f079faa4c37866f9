"""What a model call costs, by a list of one's own or that of genai-prices: never the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from milepost.core.usage import Usage
from milepost.providers.tariff import CALL_NANOS_MAX, Tariff, make_tariff, plain_tariff

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

FREE = frozenset({"demo", "direct"})
MODELS_MAX = 10_000
_NOTHING = plain_tariff(Decimal(0), Decimal(0), None, None)


def _now() -> datetime:
    return datetime.now(UTC)


class Pricing:
    """Prices calls in nano-dollars, in microseconds once a model is known.

    A provider is looked up by its base URL where `base_urls` has one, since a name says nothing:
    a server of one's own may call itself `openai` and serve `gpt-4o`. Else by its name. What is in
    `own`, by `provider/model`, goes before the list.
    """

    def __init__(
        self,
        base_urls: Mapping[str, str] | None = None,
        *,
        own: Mapping[str, Tariff] | None = None,
        free: frozenset[str] = FREE,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._base_urls = dict(base_urls or {})
        self._own = dict(own or {})
        self._free = free
        self._now = now
        self._price_list: DataSnapshot | None = None
        self._tariffs: dict[tuple[str, str], Tariff | None] = {}

    def load(self) -> None:
        """Read the price list, which takes a fifth of a second, before the first call needs it."""
        self._price_list = self._price_list or _read_price_list()

    def cost_nanos(self, provider: str, model: str, *requests: Usage) -> int | None:
        """Return what one call costs, or None where the model has no known price.

        Nearly every call is one request. Where it is several, each is priced by its own prompt:
        together they may reach a rate for long prompts that none of them reaches.

        `input_tokens` includes the cached ones, `output_tokens` the reasoning, as OpenAI counts.
        """
        key = (provider, model)
        if key not in self._tariffs:
            if len(self._tariffs) >= MODELS_MAX:
                self._tariffs.clear()
            self._tariffs[key] = self._find(provider, model)
        tariff = self._tariffs[key]
        if tariff is None:
            return None
        return min(sum(tariff.cost_nanos(each, self._now) for each in requests), CALL_NANOS_MAX)

    def knows(self, model: str) -> bool:
        """Say whether it is known what a call of `provider/model` costs."""
        provider, _, name = model.partition("/")
        return self.cost_nanos(provider, name, Usage()) is not None

    def _find(self, provider: str, model: str) -> Tariff | None:
        if (own := self._own.get(f"{provider}/{model}")) is not None:
            return own
        if provider in self._free:
            return _NOTHING
        price_list = self._price_list = self._price_list or _read_price_list()
        base_url = self._base_urls.get(provider)
        name = None if base_url else provider
        try:
            _, info = price_list.find_provider_model(model, None, name, base_url)
        except LookupError:
            return None
        return make_tariff(info)


def _read_price_list() -> DataSnapshot:
    """Import late, for it takes 160 ms. What else in the process may update prices is no matter."""
    from genai_prices.data import providers  # noqa: PLC0415 - the reason is above
    from genai_prices.data_snapshot import DataSnapshot  # noqa: PLC0415

    return DataSnapshot(providers=providers, from_auto_update=False)
