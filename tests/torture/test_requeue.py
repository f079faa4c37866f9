"""How long runs stand still is told apart by what else kept them from going on."""

from typing import Any

from tests.torture.history import Entry, History, Run
from tests.torture.plan import Plan
from tests.torture.requeue import Requeue, requeues
from tests.torture.timeline import Life, Timeline

PLAN = Plan("postgres", 1, 1.0, 1, 1, {})
KILLED_S = 100.0


def a_life(number: int, **changes: Any) -> Life:
    """Return a worker that lives all the time, but for what is said."""
    life = Life(f"worker-{number}", number, born_s=0.0, skew_s=0.0, ready_s=1.0)
    for name, value in changes.items():
        setattr(life, name, value)
    return life


def a_run(run_id: str, *said: tuple[float, int, str, dict[str, Any]]) -> Run:
    """Return a run with this log: when, in which epoch, what."""
    log = [
        Entry(seq, epoch, kind, round(at_s * 1000), data)
        for seq, (at_s, epoch, kind, data) in enumerate(said, 1)
    ]
    return Run(run_id, "ses_1", "completed", 1, None, None, log)


def began(at_s: float, epoch: int, pid: int) -> tuple[float, int, str, dict[str, Any]]:
    return at_s, epoch, "run.started", {"worker": f"w-{pid}-wrk_1"}


def resumed(at_s: float, epoch: int, pid: int) -> tuple[float, int, str, dict[str, Any]]:
    return at_s, epoch, "run.resumed", {"worker": f"w-{pid}-wrk_1", "why": "crash"}


TAKEN_OVER = a_run("run_1", began(99.0, 1, 1), resumed(102.0, 2, 2))


def found(*others: Run, workers: int = 2, **changes: Any) -> Requeue:
    """Return what is said of the run that the second worker took over from the first.

    There are so many workers besides that one, and the same is changed of all of them.
    """
    dead = a_life(1, killed_s=KILLED_S, ended_s=KILLED_S)
    timeline = Timeline([dead, *(a_life(number, **changes) for number in range(2, workers + 2))])
    runs = {run.id: run for run in (TAKEN_OVER, *others)}
    [told] = [
        each for each in requeues(History(runs, []), timeline, PLAN) if each.run_id == "run_1"
    ]
    return told


def on_its_last_try(run_id: str, pid: int, until_s: float) -> Run:
    """Return a run that a worker has in hand for the third time, until it gets on."""
    crashed = [began(10.0, 1, pid), resumed(20.0, 2, pid), resumed(30.0, 3, pid)]
    return a_run(run_id, *crashed, (until_s, 3, "message.completed", {}))


def test_a_run_that_is_taken_over_waited_since_its_worker_was_killed() -> None:
    waited = Requeue("run_1", 2_000, first=True, counts=True, apart=False, killed_s=KILLED_S)

    assert found() == waited


def test_a_worker_with_a_run_on_its_last_try_is_none_that_takes_over() -> None:
    busy = on_its_last_try("run_2", 2, until_s=101.9)

    assert found(busy, workers=1).apart
    assert not found(busy, workers=2).apart
    assert found(busy, on_its_last_try("run_3", 3, until_s=200.0), workers=2).apart


def test_a_run_that_got_on_is_on_its_last_try_no_more() -> None:
    assert not found(on_its_last_try("run_2", 2, until_s=50.0), workers=1).apart


def test_without_a_worker_that_lived_on_nothing_is_said_of_the_rest() -> None:
    told = found(ready_s=KILLED_S + 1.9)

    assert (told.counts, told.apart) == (False, False)
