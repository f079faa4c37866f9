"""How long a dead worker's runs stood still: from its death to the claim by another one."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from milepost.store.queue import PROGRESS
from tests.torture.checks import CLAIMS
from tests.torture.history import Entry, History, Run
from tests.torture.plan import Plan
from tests.torture.timeline import Life, Timeline


@dataclass(frozen=True, slots=True)
class Requeue:
    """A run that went on under another worker. `first`: it had not just crashed before.

    `counts`: a sweeper lived, a worker had room, and nothing else was broken.
    """

    run_id: str
    waited_ms: float
    first: bool
    counts: bool


def requeues(history: History, timeline: Timeline, plan: Plan) -> list[Requeue]:
    """Return every run that was taken over from a worker that was killed."""
    return [each for run in history.runs.values() for each in _of_run(run, timeline, plan)]


def _of_run(run: Run, timeline: Timeline, plan: Plan) -> Iterator[Requeue]:
    claims = run.of(*CLAIMS)
    for before, after in itertools.pairwise(claims):
        if after.type != "run.resumed" or after.said["why"] != "crash":
            continue
        died = _life(timeline, before)
        lives_on = _life(timeline, after)
        if died is None or lives_on is None or died.killed_s is None or died.ended_s is None:
            continue
        troubled = any(each.overlaps(died.born_s, died.killed_s) for each in died.troubles)
        if troubled or died.killed_s < _true_s(before, died):
            continue
        waited_ms = (_true_s(after, lives_on) - died.killed_s) * 1000
        first = before.said.get("why") != "crash" or _progressed(run, before.epoch)
        yield Requeue(run.id, waited_ms, first, _counts(timeline, plan, died.killed_s))


def _life(timeline: Timeline, claim: Entry) -> Life | None:
    return timeline.life_of(claim.said["worker"], claim.time_ms / 1000)


def _true_s(entry: Entry, life: Life) -> float:
    """Return when an event was written, by the orchestrator's clock."""
    return entry.time_ms / 1000 - life.skew_s


def _progressed(run: Run, epoch: int) -> bool:
    return any(entry.epoch == epoch and entry.type in PROGRESS for entry in run.log)


def _counts(timeline: Timeline, plan: Plan, killed_s: float) -> bool:
    """Say whether there was a sweeper with a steady lease, a worker to go on, and a database."""
    until_s = killed_s + plan.bound_ms / 1000
    if any(outage.overlaps(killed_s - plan.lease_s, until_s) for outage in timeline.outages):
        return False
    swept_s = killed_s + plan.lease_s * 2 / 3  # No lease has less left than that.
    return any(life.undisturbed(killed_s, until_s) for life in timeline.lives) and any(
        life.undisturbed(swept_s, until_s)
        for life in timeline.lives
        if life.member.startswith("worker")
    )
