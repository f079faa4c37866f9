"""The time that workers were at a run: waiting, queueing and being dead cost nothing."""

from milepost.core.events import RunResumed, RunRetrying, RunWaiting, StepStarted
from milepost.runtime.worked_time import WorkedTime
from tests.core.logs import QUEUED, STARTED


def test_the_time_since_the_claim_counts() -> None:
    worked = WorkedTime()
    worked.feed(QUEUED, 0)
    worked.feed(STARTED, 5_000)

    assert worked.until_ms(10) == 15_000


def test_waiting_and_queueing_cost_nothing() -> None:
    worked = WorkedTime()
    worked.feed(STARTED, 1_000)
    worked.feed(RunWaiting("approval", ("apr_1",)), 3_000)
    worked.feed(RunResumed(2, "w2", "approval"), 90_000)
    worked.feed(RunRetrying("drain"), 91_000)
    worked.feed(RunResumed(3, "w3", "drain"), 99_000)

    assert worked.until_ms(10) == 99_000 + 10_000 - 3_000


def test_who_died_had_the_run_until_its_last_word() -> None:
    worked = WorkedTime()
    worked.feed(STARTED, 1_000)
    worked.feed(StepStarted(1), 2_000)
    worked.feed(RunResumed(2, "w2", "crash"), 60_000)

    assert worked.until_ms(10) == 69_000
