"""What a call may take: estimated before it is made, and fitted to what is left."""

from dataclasses import replace
from decimal import Decimal

import pytest

from milepost.core.messages import Image, Message
from milepost.core.model import THINKING_TOKENS_MAX, ModelRequest, ToolSchema
from milepost.providers.pricing import Pricing
from milepost.providers.tariff import Rate, plain_tariff
from milepost.providers.tokens import IMAGE_TOKENS
from milepost.runtime.demands import (
    ANSWER_TOKENS,
    ANSWER_TOKENS_MIN,
    MODEL_CALL_MS,
    ModelDemand,
    ToolDemand,
    model_demand,
    priced_by,
    unpriced,
)
from milepost.store.amounts import Amounts, Bounds

CHEAP = plain_tariff(Decimal(1), Decimal(2), None, None)  # a thousand nanos in, two out, a token
DEAR = plain_tariff(Decimal(3), Decimal(6), None, None)
PRICES = Pricing(own={"own/cheap": CHEAP, "own/dear": DEAR})


def a_demand(prompt: int = 100, answer: int = 1_000) -> ModelDemand:
    return ModelDemand(prompt, answer, priced_by(PRICES, ["own/cheap"]))


def a_request(**changes: object) -> ModelRequest:
    return ModelRequest("acme", "m", (Message("user", "a" * 400),), **changes)  # type: ignore[arg-type]  # the test's own


def test_a_prompt_is_its_messages_its_tools_and_its_images() -> None:
    plain = model_demand(a_request(), priced_by(PRICES, ["own/cheap"]))
    tool = ToolSchema("add", "Add.", {"type": "object"})
    pictured = ModelRequest(
        "acme", "m", (Message("user", "a" * 400, images=(Image("https://x.example/1"),)),), (tool,)
    )

    full = model_demand(pictured, priced_by(PRICES, ["own/cheap"]))

    assert plain.prompt_tokens == 100
    assert full.prompt_tokens > 100 + IMAGE_TOKENS


@pytest.mark.parametrize(("asked", "room"), [(None, ANSWER_TOKENS), (50, 50)])
def test_an_answer_has_the_room_that_the_agent_gives_it_or_a_default(
    asked: int | None, room: int
) -> None:
    demand = model_demand(a_request(tokens_max=asked), priced_by(PRICES, ["own/cheap"]))

    assert demand.answer_in(demand.fit(Bounds())) == room


def test_where_nothing_is_bounded_a_call_takes_what_it_may() -> None:
    assert a_demand().fit(Bounds()) == Amounts(
        tokens=1_100, cost_nanos=2_100_000, model_calls=1, active_ms=MODEL_CALL_MS
    )


@pytest.mark.parametrize(
    ("left", "answer"),
    [
        (Bounds(tokens=600), 500),
        (Bounds(cost_nanos=600_000), 250),
        (Bounds(tokens=600, cost_nanos=600_000), 250),
        (Bounds(tokens=90), ANSWER_TOKENS_MIN),
        (Bounds(cost_nanos=0), ANSWER_TOKENS_MIN),
        (Bounds(tokens=10**9, cost_nanos=10**12), 1_000),
    ],
)
def test_an_answer_is_kept_short_enough_for_what_is_left_but_not_useless(
    left: Bounds, answer: int
) -> None:
    demand = a_demand()

    assert demand.answer_in(demand.fit(left)) == answer


def test_an_agent_that_wants_less_than_the_minimum_gets_less() -> None:
    demand = a_demand(answer=10)

    assert demand.answer_in(demand.fit(Bounds(tokens=0))) == 10


def test_what_costs_nothing_is_not_kept_short_for_money() -> None:
    demand = ModelDemand(100, 1_000, lambda _in, _out: 0)

    assert demand.answer_in(demand.fit(Bounds(cost_nanos=0))) == 1_000


@pytest.mark.parametrize("left_ms", [-5, 0, 40, None])
def test_a_call_takes_no_more_time_than_is_left_but_some(left_ms: int | None) -> None:
    taken = 7_000 if left_ms is None else max(1, left_ms)

    assert ToolDemand(7_000).fit(Bounds(active_ms=left_ms)) == Amounts(
        tool_calls=1, active_ms=taken
    )


def test_of_models_that_may_answer_the_dearest_counts() -> None:
    price = priced_by(PRICES, ["own/cheap", "own/dear", "own/unheard-of"])

    assert price(100, 10) == 360_000


@pytest.mark.parametrize(
    ("wanted", "room"), [("8000", 8_000), ("9" * 40, THINKING_TOKENS_MAX), ("high", 0), (None, 0)]
)
def test_what_a_model_may_think_with_has_room_beside_its_answer(
    wanted: str | None, room: int
) -> None:
    request = a_request(reasoning_effort=wanted)

    demand = model_demand(request, priced_by(PRICES, ["own/cheap"]))

    assert demand.answer_tokens == ANSWER_TOKENS + room


def test_a_prompt_may_be_written_into_a_cache_and_an_answer_be_all_thought() -> None:
    writing = plain_tariff(Decimal(1), Decimal(2), None, Decimal("1.25"))
    thinking = replace(CHEAP, always=replace(CHEAP.always, reasoning=Rate(5 * 10**9)))
    prices = Pricing(own={"own/writing": writing, "own/thinking": thinking})

    assert priced_by(prices, ["own/writing"])(100, 10) == 145_000
    assert priced_by(prices, ["own/thinking"])(100, 10) == 150_000


def test_a_model_without_a_price_is_told_with_the_remedy() -> None:
    failure = unpriced(PRICES, ["own/cheap", "own/unheard-of"])

    assert failure is not None
    assert failure.code == "unpriced_model"
    assert "own/unheard-of" in failure.message
    assert "prices file" in failure.message
    assert unpriced(PRICES, ["own/cheap", "demo/offline"]) is None


@pytest.mark.parametrize(
    ("bounds", "tool", "model"),
    [
        (Bounds(), False, False),
        (Bounds(tool_calls=0), True, False),
        (Bounds(active_ms=0), True, True),
        (Bounds(tokens=0), False, True),
        (Bounds(model_calls=0, tool_calls=0), True, True),
    ],
)
def test_a_budget_concerns_the_calls_that_it_bounds(
    bounds: Bounds, tool: bool, model: bool
) -> None:
    assert (ToolDemand(1).concerns(bounds), a_demand().concerns(bounds)) == (tool, model)
