"""How long runs stand still is told apart by what else kept them from going on."""

from typing import Any

from tests.torture.blocking import blocked, note
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


def blocking(run_id: str, pid: int, at_s: float) -> Run:
    """Return a run whose tool blocks its worker from then on, for three seconds."""
    called = {"call_id": "call_1_0", "name": "block", "arguments": {"block_ms": 3_000}}
    started = (at_s, 1, "tool_call.started", {"call_id": "call_1_0"})
    return a_run(run_id, began(10.0, 1, pid), (10.1, 1, "tool_call.requested", called), started)


def test_a_run_that_is_taken_over_waited_since_its_worker_was_killed() -> None:
    waited = Requeue(
        "run_1", 2_000, first=True, counts=True, apart=False, killed_s=KILLED_S,
        heir="worker-2", heirs=("worker-2", "worker-3"),
    )  # fmt: skip

    assert found() == waited


def test_a_worker_with_a_run_on_its_last_try_is_none_that_takes_over() -> None:
    busy = on_its_last_try("run_2", 2, until_s=101.9)

    assert found(busy, workers=1).apart
    assert not found(busy, workers=2).apart
    assert found(busy, on_its_last_try("run_3", 3, until_s=200.0), workers=2).apart


def test_a_run_that_was_handed_over_since_it_crashed_has_crashed_before() -> None:
    crashed = [began(90.0, 1, 3), resumed(92.0, 2, 3)]
    handed_over = (94.0, 3, "run.resumed", {"worker": "w-1-wrk_1", "why": "drain"})
    got_on: tuple[float, int, str, dict[str, Any]] = (93.0, 2, "message.completed", {})
    after = resumed(102.0, 4, 2)

    assert not found(a_run("run_1", *crashed, handed_over, after)).first
    assert found(a_run("run_1", *crashed, got_on, handed_over, after)).first


def test_a_run_that_got_on_is_on_its_last_try_no_more() -> None:
    assert not found(on_its_last_try("run_2", 2, until_s=50.0), workers=1).apart


def test_a_worker_whose_event_loop_is_blocked_takes_nothing_over() -> None:
    assert found(blocking("run_2", 3, 98.0)).heirs == ("worker-2", "worker-3")
    assert found(blocking("run_2", 3, 99.0)).heirs == ("worker-2",)
    assert found(blocking("run_2", 3, 103.0)).heirs == ("worker-2",)
    assert not found(blocking("run_2", 2, 99.0), blocking("run_3", 3, 103.0)).counts


def test_who_was_blocked_is_told_beside_the_faults_until_its_worker_died() -> None:
    timeline = Timeline([a_life(1), a_life(2, killed_s=51.0, ended_s=51.0)], began_s=40.0)
    timeline.note("kill: worker-9")
    runs = [blocking("run_1", 1, 60.0), blocking("run_2", 2, 50.0)]

    note(blocked(History({run.id: run for run in runs}, []), timeline), timeline)

    assert timeline.told(40.0, 70.0) == [
        "   10.000 blocked: worker-2 for 1.0 s",
        "   20.000 blocked: worker-1 for 3.0 s",
    ]


def test_without_a_worker_that_lived_on_nothing_is_said_of_the_rest() -> None:
    told = found(ready_s=KILLED_S + 1.9)

    assert (told.counts, told.apart) == (False, False)
