"""A run's own bounds: when they are reached, and when it is nearly so."""

import pytest

from milepost.core.agents import Limits
from milepost.core.bounds import exceeded, warnings
from milepost.core.events import BudgetExceeded, BudgetWarning
from milepost.core.state import State
from milepost.core.usage import Usage

USED = Usage(
    input_tokens=70,
    output_tokens=20,
    model_calls=2,
    unknown_calls=1,
    cost_nanos=5_500,
    saved_input_tokens=999,
    saved_output_tokens=999,
    saved_cost_nanos=999_999,
)


@pytest.mark.parametrize(
    ("limits", "limit", "spent"),
    [
        (Limits(max_tokens=90), "max_tokens", 90),
        (Limits(max_model_calls=3), "max_model_calls", 3),
        (Limits(max_cost_usd_micros=5), "max_cost_usd_micros", 5),
    ],
)
def test_a_bound_is_reached_when_all_of_it_is_spent(limits: Limits, limit: str, spent: int) -> None:
    assert exceeded(State(usage=USED), limits) == BudgetExceeded("run", limit, spent, spent)


@pytest.mark.parametrize(
    "limits",
    [Limits(), Limits(max_tokens=91), Limits(max_model_calls=4), Limits(max_cost_usd_micros=6)],
)
def test_a_bound_that_leaves_something_is_not(limits: Limits) -> None:
    assert exceeded(State(usage=USED), limits) is None


def test_what_the_cache_saved_counts_for_nothing() -> None:
    saved = Usage(saved_input_tokens=10**9, saved_cost_nanos=10**12)

    assert exceeded(State(usage=saved), Limits(max_tokens=1, max_cost_usd_micros=1)) is None


def test_a_bound_that_is_nearly_reached_is_warned_of_once() -> None:
    limits = Limits(max_tokens=100, warn_at=0.9)

    assert warnings(State(usage=USED), limits) == (BudgetWarning("run", "max_tokens", 90, 100),)
    assert warnings(State(usage=USED, warned=frozenset({"max_tokens"})), limits) == ()
    assert warnings(State(usage=USED), Limits(max_tokens=101, warn_at=0.9)) == ()
