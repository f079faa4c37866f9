"""Tokens and money: sums, and how they are shown."""

import dataclasses
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.codec import dollars, usage_read, usage_shown
from milepost.core.usage import Usage

NAMES = [each.name for each in dataclasses.fields(Usage)]
USAGES = st.builds(Usage, **dict.fromkeys(NAMES, st.integers(0, 2**50)))


@given(USAGES, USAGES)
def test_a_sum_is_the_sum_of_every_number(a: Usage, b: Usage) -> None:
    both = a + b

    assert all(getattr(both, name) == getattr(a, name) + getattr(b, name) for name in NAMES)
    assert a + Usage() == a


@given(USAGES)
def test_what_is_shown_can_be_read_again(usage: Usage) -> None:
    assert usage_read(usage_shown(usage)) == usage


def test_usage_of_another_version_is_read_as_far_as_it_is_known() -> None:
    assert usage_read({"input_tokens": 3, "audio_tokens": 9}) == Usage(input_tokens=3)


@given(st.integers(-(2**63), 2**63))
def test_dollars_are_exact(nanos: int) -> None:
    assert Decimal(dollars(nanos)) == Decimal(nanos).scaleb(-9)


@pytest.mark.parametrize(
    ("nanos", "text"),
    [(0, "0"), (1, "0.000000001"), (1_500_000_000, "1.5"), (-20_000_000_000, "-20")],
)
def test_dollars_are_written_without_needless_zeros(nanos: int, text: str) -> None:
    assert dollars(nanos) == text


def test_a_small_call_is_not_rounded_to_nothing() -> None:
    shown = usage_shown(Usage(cost_nanos=499))

    assert shown["cost_usd_micros"] == 0
    assert shown["cost_nanos"] == 499
    assert shown["cost_usd"] == "0.000000499"
