"""What a campaign came to is told with what it takes to look into it."""

from tests.torture.campaign import Result
from tests.torture.plan import Plan
from tests.torture.report import page
from tests.torture.requeue import Requeue
from tests.torture.timeline import Timeline

PLAN = Plan("postgres", 1, 1.0, 1, 1, {})
LATE_MS = PLAN.bound_ms + 1


def told(waited_ms: float, *, first: bool = True, counts: bool = True, apart: bool = False) -> str:
    """Return the page about one run that was taken over, with three faults around it."""
    timeline = Timeline(began_s=1_000.0)
    timeline.log += [(1_090.0, "kill: a1"), (1_099.5, "pause: w2"), (1_101.0, "kill: w3")]
    requeue = Requeue("run_1", waited_ms, first, counts, apart, 1_100.0, "w2", ("w2", "w4"))
    return page([Result(PLAN, requeues=[requeue], timeline=timeline)], "torture")


def test_of_a_run_that_stood_still_too_long_it_is_told_what_was_done_around_it() -> None:
    page = told(LATE_MS)

    assert f"run_1 stood still for {LATE_MS:,.0f} ms from 100.000 s on; free" in page
    assert "was w2, w4, and it went on at w2:" in page
    assert "   99.500 pause: w2\n  101.000 kill: w3\n```" in page
    assert "a1" not in page


def test_of_a_run_that_was_taken_over_in_time_or_could_not_be_nothing_more_is_told() -> None:
    pages = [
        told(PLAN.bound_ms),
        told(LATE_MS, first=False),
        told(LATE_MS, counts=False),
        told(LATE_MS, apart=True),
    ]

    assert not any("stood still" in page for page in pages)
