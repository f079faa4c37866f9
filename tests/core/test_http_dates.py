"""Waiting until a moment that a server names."""

import pytest

from milepost.core.http_dates import seconds_between

NOW = "Sat, 21 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("Sat, 21 Nov 2026 10:00:30 GMT", 30.0),
        ("Saturday, 21-Nov-26 10:01:00 GMT", 60.0),
        (NOW, 0.0),
        ("Sat, 21 Nov 2026 09:59:00 GMT", 0.0),
        ("Sat, 21 Nov 2026 10:00:30 -0000", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_moment_is_as_far_away_as_the_servers_clock_says(
    moment: str, seconds: float | None
) -> None:
    assert seconds_between(NOW, moment) == seconds


def test_without_the_servers_clock_nobody_knows() -> None:
    assert seconds_between(None, NOW) is None
