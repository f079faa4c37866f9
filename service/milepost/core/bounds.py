"""A run's own bounds on what it may take: tokens, money, calls."""

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.core.agents import Limits
from milepost.core.events import BudgetExceeded, BudgetWarning
from milepost.core.state import State
from milepost.core.usage import NANOS_PER_MICRO

OWN = "run"
"""What the run's own bounds are called where an event names a budget."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How much of one bound is taken."""

    limit: str
    spent: int
    bound: int


def exceeded(state: State, limits: Limits, *, begun: int = 0) -> BudgetExceeded | None:
    """Return the bound that leaves nothing for another model call, None if all leave something.

    So many are `begun` that are not over yet.
    """
    for measure in _measures(state, limits, begun):
        if measure.spent >= measure.bound:
            return BudgetExceeded(OWN, measure.limit, measure.spent, measure.bound)
    return None


def warnings(state: State, limits: Limits) -> tuple[BudgetWarning, ...]:
    """Return a warning for each bound that is nearly reached, and was not warned of yet."""
    return tuple(
        BudgetWarning(OWN, measure.limit, measure.spent, measure.bound)
        for measure in _measures(state, limits)
        if measure.limit not in state.warned and measure.spent >= limits.warn_at * measure.bound
    )


def _measures(state: State, limits: Limits, begun: int = 0) -> Iterator[Measure]:
    usage = state.usage + state.children
    if limits.max_model_calls is not None:
        calls = usage.model_calls + usage.unknown_calls + begun
        yield Measure("max_model_calls", calls, limits.max_model_calls)
    if limits.max_tokens is not None:
        yield Measure("max_tokens", usage.input_tokens + usage.output_tokens, limits.max_tokens)
    if limits.max_cost_usd_micros is not None:
        micros = usage.cost_nanos // NANOS_PER_MICRO
        yield Measure("max_cost_usd_micros", micros, limits.max_cost_usd_micros)
