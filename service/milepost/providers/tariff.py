"""One model's prices, read once from genai-prices or a file, and kept as integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from milepost.core.usage import Usage

if TYPE_CHECKING:
    from genai_prices.types import ConditionalPrice, ModelInfo, ModelPrice, TieredPrices

NANOS_PER_DOLLAR = 10**9
CALL_NANOS_MAX = 10**6 * NANOS_PER_DOLLAR
"""No call costs more: what a vendor gone mad counts shall leave sums that 64 bits can hold."""
TOKENS_PER_PRICE = 10**6


@dataclass(frozen=True, slots=True)
class Rate:
    """Nano-dollars for a million tokens, with what holds from each size of prompt on."""

    base: int
    tiers: tuple[tuple[int, int], ...] = ()

    def at(self, input_tokens: int) -> int:
        """Return the rate for a call with that many tokens of input: it holds for all of them."""
        rate = self.base
        for start, price in self.tiers:
            if input_tokens > start:
                rate = price
        return rate


@dataclass(frozen=True, slots=True)
class Rates:
    """What each kind of token costs, and the call itself where the vendor charges for that."""

    input: Rate
    cache_read: Rate
    cache_write: Rate
    output: Rate
    reasoning: Rate
    call_nanos: int

    def cost_nanos(self, usage: Usage) -> int:
        """Return the price of one call. Cached tokens and reasoning are part of the totals."""
        size = usage.input_tokens
        plain = max(0, size - usage.cache_read_tokens - usage.cache_write_tokens)
        answer = max(0, usage.output_tokens - usage.reasoning_tokens)
        cost = (
            plain * self.input.at(size)
            + usage.cache_read_tokens * self.cache_read.at(size)
            + usage.cache_write_tokens * self.cache_write.at(size)
            + answer * self.output.at(size)
            + usage.reasoning_tokens * self.reasoning.at(size)
        )
        nanos = (cost + TOKENS_PER_PRICE // 2) // TOKENS_PER_PRICE + self.call_nanos
        return min(nanos, CALL_NANOS_MAX)


@dataclass(frozen=True, slots=True)
class Tariff:
    """A model's rates. Some change on a date or by the hour: the last that holds counts."""

    always: Rates
    conditional: tuple[tuple[Callable[[datetime], bool], Rates], ...] = ()

    def cost_nanos(self, usage: Usage, now: Callable[[], datetime]) -> int:
        """Return the price of one call that was made now."""
        return self._rates(now).cost_nanos(usage)

    def _rates(self, now: Callable[[], datetime]) -> Rates:
        if not self.conditional:
            return self.always
        moment = now()
        for holds, rates in reversed(self.conditional):
            if holds(moment):
                return rates
        return self.always


def make_tariff(info: ModelInfo) -> Tariff | None:
    """Return a model's prices, or None where it is not sold by tokens, or for nothing known."""
    if not isinstance(info.prices, list):
        rates = _rates(info.prices)
        return None if rates is None else Tariff(rates)
    listed = [(_condition(priced), _rates(priced.prices)) for priced in info.prices]
    known = [(holds, rates) for holds, rates in listed if rates is not None]
    if not known or len(known) < len(listed):
        return None
    return Tariff(known[0][1], tuple(known[1:]))


def plain_tariff(
    per_input: Decimal,
    per_output: Decimal,
    per_cache_read: Decimal | None,
    per_cache_write: Decimal | None,
) -> Tariff:
    """Return prices in dollars for a million tokens that hold always, and for calls of any size."""
    input_rate, output_rate = Rate(_nanos(per_input)), Rate(_nanos(per_output))
    return Tariff(
        Rates(
            input=input_rate,
            cache_read=_rate(per_cache_read, input_rate),
            cache_write=_rate(per_cache_write, input_rate),
            output=output_rate,
            reasoning=output_rate,
            call_nanos=0,
        )
    )


def _condition(priced: ConditionalPrice) -> Callable[[datetime], bool]:
    return (lambda _: True) if priced.constraint is None else priced.constraint.active


def _rates(price: ModelPrice) -> Rates | None:
    if price.input_mtok is None and price.output_mtok is None:
        return None
    per_thousand = price.requests_kcount
    input_rate = _rate(price.input_mtok, Rate(0))
    output_rate = _rate(price.output_mtok, Rate(0))
    return Rates(
        input=input_rate,
        # What has no price of its own is charged as what it is part of.
        cache_read=_rate(price.cache_read_mtok, input_rate),
        cache_write=_rate(price.cache_write_mtok, input_rate),
        output=output_rate,
        reasoning=_rate(price.output_reasoning_mtok, output_rate),
        call_nanos=_nanos(per_thousand) // 1000 if isinstance(per_thousand, Decimal) else 0,
    )


def _rate(price: Decimal | TieredPrices | None, otherwise: Rate) -> Rate:
    if price is None:
        return otherwise
    if isinstance(price, Decimal):
        return Rate(_nanos(price))
    return Rate(_nanos(price.base), tuple((tier.start, _nanos(tier.price)) for tier in price.tiers))


def _nanos(dollars: Decimal) -> int:
    return round(dollars * NANOS_PER_DOLLAR)
