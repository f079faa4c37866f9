"""Counts of calls: exact within their time, once for each call, and forgotten after it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from milepost.core.effects import CountCall
from milepost.core.messages import ToolCall
from milepost.core.policy import Counted, RatePer
from milepost.runtime.rates import TALLIES_MIN, OwnRates, tally_of
from tests.clock import Clock

MINUTE = Counted("pay", "tenant", 60, 1_000)


@dataclass(frozen=True, slots=True)
class Whose:
    """For whom calls are made."""

    agent_id: str = "agt_1"
    session_id: str = "ses_1"
    user: str | None = None
    run_id: str = "run_1"


async def counted(
    rates: OwnRates, call_id: str, whose: Whose | None = None, wanted: Sequence[Counted] = (MINUTE,)
) -> int:
    """Count a call; return the first of what was counted."""
    effect = CountCall(ToolCall(call_id, "pay", {}), tuple(wanted))
    return (await rates.count(whose or Whose(), effect))[wanted[0].key]


async def test_a_call_is_counted_once_and_keeps_its_place() -> None:
    rates = OwnRates(Clock().ms)

    counts = [await counted(rates, call_id) for call_id in ("a", "b", "a", "c", "b")]

    assert counts == [1, 2, 1, 3, 2]


async def test_what_is_older_than_the_time_is_not_counted() -> None:
    clock = Clock()
    rates = OwnRates(clock.ms)
    await counted(rates, "a")
    clock.now += 59.999
    assert await counted(rates, "b") == 2

    clock.now += 0.001

    assert await counted(rates, "c") == 2


async def test_no_more_is_counted_than_matters() -> None:
    rates, few = OwnRates(Clock().ms), [Counted("pay", "tenant", 60, 3)]

    counts = [await counted(rates, str(place), wanted=few) for place in range(6)]

    assert counts == [1, 2, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("per", "counts"),
    [
        ("tenant", [1, 2, 3, 4]),
        ("agent", [1, 1, 2, 3]),
        ("session", [1, 2, 1, 3]),
        ("user", [1, 2, 3, 1]),
        ("run", [1, 1, 1, 1]),
    ],
)
async def test_calls_are_counted_for_whom_the_rule_says(per: RatePer, counts: list[int]) -> None:
    rates, wanted = OwnRates(Clock().ms), [Counted("pay", per, 60, 9)]
    callers = [
        Whose(run_id="1"),
        Whose(agent_id="agt_2", run_id="2"),
        Whose(session_id="ses_2", run_id="3"),
        Whose(user="ann", run_id="4"),
    ]

    assert [await counted(rates, "a", each, wanted) for each in callers] == counts


async def test_what_is_past_is_forgotten_for_all() -> None:
    clock = Clock()
    rates, per_run = OwnRates(clock.ms), [Counted("pay", "run", 60, 9)]
    for place in range(TALLIES_MIN):
        await counted(rates, "a", Whose(run_id=str(place)), per_run)
    clock.now += 60

    await counted(rates, "a", Whose(run_id="later"), per_run)

    assert len(rates._marks) == 1


def test_names_of_tallies_tell_apart_what_is_counted_for_whom() -> None:
    names = {
        tally_of(Whose(user=user), Counted("pay", per, 60, 9))
        for per in ("tenant", "agent", "session", "user", "run")
        for user in (None, "ann")
    }

    assert len(names) == 6
