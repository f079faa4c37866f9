"""What calls cost, checked against genai-prices' own arithmetic."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices.data import providers as priced_providers
from genai_prices.types import ModelInfo

from milepost.core.usage import Usage
from milepost.providers.price_file import DOLLARS_MAX
from milepost.providers.pricing import Pricing
from milepost.providers.tariff import CALL_NANOS_MAX, make_tariff, plain_tariff

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NIGHT = datetime(2026, 11, 21, 20, tzinfo=UTC)
USAGE = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=500, cache_write_tokens=100)

# Runs in its own process: any look at the network there is an exception.
OFFLINE = """
import sys
from milepost.core.usage import Usage
from milepost.providers.pricing import Pricing

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind"):
        raise SystemExit(f"the network was used: {event} {args}")

assert "genai_prices" not in sys.modules, "imported before it was needed"
sys.addaudithook(refuse)
cost = Pricing().cost_nanos("openai", "gpt-4o", Usage(input_tokens=1000))
import threading
print(cost, threading.active_count())
"""


def test_input_output_and_cached_tokens_have_their_own_prices() -> None:
    cost = Pricing().cost_nanos("anthropic", "claude-sonnet-4-5", USAGE)

    plain, read, write, output = 400 * 3_000, 500 * 300, 100 * 3_750, 100 * 15_000
    assert cost == plain + read + write + output


def test_a_long_prompt_pays_the_higher_rate_for_all_of_it() -> None:
    pricing = Pricing()

    short = pricing.cost_nanos("anthropic", "claude-sonnet-4-5", Usage(input_tokens=200_000))
    long = pricing.cost_nanos("anthropic", "claude-sonnet-4-5", Usage(input_tokens=200_001))

    assert (short, long) == (200_000 * 3_000, 200_001 * 6_000)


def test_of_several_requests_each_is_priced_by_its_own_prompt() -> None:
    pricing, each = Pricing(), Usage(input_tokens=150_000)

    cost = pricing.cost_nanos("anthropic", "claude-sonnet-4-5", each, each)

    assert cost == 300_000 * 3_000


def test_several_requests_cost_no_more_than_one_call_may() -> None:
    mad = Usage(input_tokens=10**9, output_tokens=10**9)
    tariff = plain_tariff(Decimal(DOLLARS_MAX), Decimal(DOLLARS_MAX), None, None)

    cost = Pricing(own={"own/dear": tariff}).cost_nanos("own", "dear", mad, mad)

    assert cost == CALL_NANOS_MAX


def test_a_vendor_that_counts_like_mad_leaves_sums_that_the_database_keeps() -> None:
    mad = Usage(input_tokens=10**9, output_tokens=10**9, reasoning_tokens=10**9)
    dear = Decimal(DOLLARS_MAX)

    cost = plain_tariff(dear, dear, None, None).cost_nanos(mad, lambda: NOON)

    assert cost == CALL_NANOS_MAX
    assert 1_000 * cost < 2**63


def test_a_small_call_is_not_rounded_to_nothing() -> None:
    assert Pricing().cost_nanos("openai", "gpt-5-mini", Usage(input_tokens=1)) == 250


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "no-such-model"), ("no-such-vendor", "gpt-4o"), ("local", ""), ("", "gpt-4o")],
)
def test_an_unknown_price_is_none_and_not_zero(provider: str, model: str) -> None:
    assert Pricing().cost_nanos(provider, model, USAGE) is None


def test_the_demo_is_free() -> None:
    assert Pricing().cost_nanos("demo", "anything", USAGE) == 0


def test_what_is_free_may_be_given_a_price() -> None:
    own = {"demo/offline": plain_tariff(Decimal(1), Decimal(1), None, None)}

    assert Pricing(own=own).cost_nanos("demo", "offline", Usage(input_tokens=3)) == 3_000


def test_an_address_says_more_than_a_name() -> None:
    pricing = Pricing(
        {"openai": "http://127.0.0.1:8080/v1", "fast": "https://api.groq.com/openai/v1"}
    )
    by_name = Pricing().cost_nanos("groq", "llama-3.3-70b-versatile", USAGE)

    assert pricing.cost_nanos("openai", "gpt-4o", USAGE) is None
    assert pricing.cost_nanos("fast", "llama-3.3-70b-versatile", USAGE) == by_name
    assert by_name is not None


def test_more_cached_tokens_than_input_are_no_discount() -> None:
    cost = Pricing().cost_nanos("openai", "gpt-4o", Usage(input_tokens=1, cache_read_tokens=10))

    assert cost == 10 * 1_250


def test_a_price_list_loaded_early_is_the_one_that_is_used() -> None:
    pricing = Pricing()

    pricing.load()

    assert pricing.cost_nanos("openai", "gpt-4o", Usage(input_tokens=1_000)) == 2_500_000


def test_prices_come_from_the_package_and_never_from_the_network() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, check=False, timeout=60
    )

    assert (ran.stdout, ran.stderr) == ("2500000 1\n", "")


def sold_by_tokens() -> list[tuple[str, ModelInfo]]:
    return [
        (provider.id, model)
        for provider in priced_providers
        for model in provider.models
        if make_tariff(model) is not None
    ]


@pytest.mark.parametrize("now", [NOON, NIGHT], ids=["at noon", "at night"])
def test_every_model_costs_what_genai_prices_says(now: datetime) -> None:
    differing = [
        (vendor, model.id)
        for vendor, model in sold_by_tokens()
        if ours(model, now) != theirs(vendor, model, now)
    ]

    assert len(sold_by_tokens()) > 2_000
    assert differing == []


def ours(model: ModelInfo, now: datetime) -> int | None:
    tariff = make_tariff(model)
    usage = Usage(300_000, 1_000, 2_000, 500, 100)
    return None if tariff is None else tariff.cost_nanos(usage, lambda: now)


def theirs(vendor: str, model: ModelInfo, now: datetime) -> int:
    usage = genai_prices.Usage(
        input_tokens=300_000,
        output_tokens=1_000,
        cache_read_tokens=2_000,
        cache_write_tokens=500,
        output_reasoning_tokens=100,
    )
    provider = next(known for known in priced_providers if known.id == vendor)
    price = model.calc_price(usage, provider, genai_request_timestamp=now)
    return round(price.total_price * Decimal(10**9))


def test_a_price_of_ones_own_goes_before_the_list_wherever_the_model_is_served() -> None:
    own = {"openai/gpt-4o": plain_tariff(Decimal(1), Decimal("2.5"), Decimal("0.1"), None)}
    pricing = Pricing({"openai": "http://127.0.0.1:8080/v1"}, own=own)

    cost = pricing.cost_nanos("openai", "gpt-4o", USAGE)

    assert cost == (400 + 100) * 1_000 + 500 * 100 + 100 * 2_500
    assert pricing.cost_nanos("openai", "gpt-4o-mini", USAGE) is None
