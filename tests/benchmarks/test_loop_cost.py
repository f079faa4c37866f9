"""The benchmark of the loop measures what it says, however briefly."""

from tests.benchmarks.loop_cost import costs


def test_everything_that_has_a_limit_is_measured() -> None:
    found = costs(rounds=1, times=1)

    limited = [cost.name for cost in found if cost.limit_micros is not None]
    assert limited == [
        "a step, the first",
        "a step, number 500",
        "fold 2,000 events",
        "the prompt of a session of 500",
    ]
    assert all(cost.micros > 0 for cost in found)
