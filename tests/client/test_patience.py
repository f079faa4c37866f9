"""How long a client waits."""

import pytest

from milepost.client import Patience


@pytest.mark.parametrize(("failures", "wait_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0)])
def test_waits_double(failures: int, wait_s: float) -> None:
    assert Patience(wait_s=0.5).wait_after(failures) == wait_s


def test_no_wait_of_its_own_is_longer_than_the_bound() -> None:
    assert Patience(wait_s=0.5, wait_s_max=20.0).wait_after(50) == 20.0


def test_what_the_server_asks_for_is_where_it_begins() -> None:
    assert Patience(wait_s=0.5).wait_after(1, 1.5) == 1.5
    assert Patience(wait_s=0.5).wait_after(2, 1.5) == 3.0


def test_a_server_may_ask_for_more_than_our_own_bound_but_not_for_days() -> None:
    patience = Patience(wait_s_max=20.0, asked_s_max=120.0)

    assert patience.wait_after(1, 60.0) == 60.0
    assert patience.wait_after(1, 86_400.0) == 120.0
