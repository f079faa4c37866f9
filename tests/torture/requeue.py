"""How long a dead worker's runs stood still: from its death to the claim by another one."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.live.frames import AT_REST
from milepost.store.queue import LAST_TRY, PROGRESS
from tests.torture.blocking import Blocked, blocked, holder, true_s
from tests.torture.checks import CLAIMS
from tests.torture.history import Entry, History, Run
from tests.torture.plan import Plan
from tests.torture.timeline import Life, Span, Timeline


@dataclass(frozen=True, slots=True)
class Requeue:
    """A run that went on under another worker, `waited_ms` after its own was killed at `killed_s`.

    `first`: it had not crashed before, or had got on since.
    `counts`: a sweeper and a worker lived on, and nothing else was broken. `apart`: each worker
    that lived on had a run on its last try in hand, beside which it takes none that has crashed.
    `heirs` are the others, and `heir` is the one that took it.
    """

    run_id: str
    waited_ms: float
    first: bool
    counts: bool
    apart: bool
    killed_s: float
    heir: str
    heirs: tuple[str, ...] = ()


_LET_GO = PROGRESS | AT_REST | {"run.retrying"}
"""After these a run is on its last try no more, or in nobody's hands."""

LastTry = tuple[Life, Span]
"""The worker that had a run on its last try in hand, and for how long."""


@dataclass(frozen=True, slots=True)
class _Busy:
    """What kept workers from taking over that nothing was done to."""

    last_tries: Sequence[LastTry]
    blocked: Sequence[Blocked]


def requeues(history: History, timeline: Timeline, plan: Plan) -> list[Requeue]:
    """Return every run that was taken over from a worker that was killed."""
    runs = history.runs.values()
    busy = _Busy(
        [each for run in runs for each in _last_tries(run, timeline)], blocked(history, timeline)
    )
    return [each for run in runs for each in _of_run(run, timeline, plan, busy)]


def _last_tries(run: Run, timeline: Timeline) -> Iterator[LastTry]:
    """Yield from when to when the run was on its last try, and with whom."""
    for claim, crashes in _claims(run):
        life = holder(claim, timeline)
        if crashes < LAST_TRY or life is None:
            continue
        until = (
            true_s(entry, life)
            for entry in run.log
            if entry.epoch == claim.epoch and entry.type in _LET_GO
        )
        yield life, Span(true_s(claim, life), next(until, life.ended_s))


def _claims(run: Run) -> Iterator[tuple[Entry, int]]:
    """Yield the run's claims, each with how often the run had crashed by then and not got on.

    Who hands a run over in order makes it get on no more than a crash does.
    """
    crashes, before = 0, 0
    for claim in run.of(*CLAIMS):
        if claim.type == "run.resumed":
            crashes = 0 if _progressed(run, before) else crashes
            crashes += claim.said["why"] == "crash"
        before = claim.epoch
        yield claim, crashes


def _of_run(run: Run, timeline: Timeline, plan: Plan, busy: _Busy) -> Iterator[Requeue]:
    for (before, crashes), (after, _) in itertools.pairwise(_claims(run)):
        if after.type != "run.resumed" or after.said["why"] != "crash":
            continue
        died = holder(before, timeline)
        lives_on = holder(after, timeline)
        if died is None or lives_on is None or died.killed_s is None or died.ended_s is None:
            continue
        troubled = any(each.overlaps(died.born_s, died.killed_s) for each in died.troubles)
        if troubled or died.killed_s < true_s(before, died):
            continue
        waited_ms = (true_s(after, lives_on) - died.killed_s) * 1000
        first = crashes == 0 or _progressed(run, before.epoch)
        until_s = died.killed_s + plan.bound_ms / 1000
        heirs = _heirs(timeline, plan, died.killed_s, busy.blocked)
        free = [each for each in heirs if _is_idle(each, died.killed_s, until_s, busy.last_tries)]
        counts = _counts(timeline, plan, died.killed_s) and bool(heirs)
        yield Requeue(
            run.id, waited_ms, first, counts, counts and not free, died.killed_s, lives_on.member,
            tuple(each.member for each in free),
        )  # fmt: skip


def _progressed(run: Run, epoch: int) -> bool:
    return any(entry.epoch == epoch and entry.type in PROGRESS for entry in run.log)


def _counts(timeline: Timeline, plan: Plan, killed_s: float) -> bool:
    """Say whether there was a sweeper with a steady lease, and a database."""
    until_s = killed_s + plan.bound_ms / 1000
    if any(outage.overlaps(killed_s - plan.lease_s, until_s) for outage in timeline.outages):
        return False
    return any(life.undisturbed(killed_s, until_s) for life in timeline.lives)


def _heirs(
    timeline: Timeline, plan: Plan, killed_s: float, blocked: Sequence[Blocked]
) -> list[Life]:
    """Return the workers that were there when the lease had lapsed, and worked on."""
    until_s = killed_s + plan.bound_ms / 1000
    swept_s = killed_s + plan.lease_s * 2 / 3  # No lease has less left than that.
    return [
        life
        for life in timeline.lives
        if life.member.startswith("worker")
        and life.undisturbed(swept_s, until_s)
        and _is_idle(life, swept_s, until_s, blocked)
    ]


def _is_idle(life: Life, began_s: float, ended_s: float, busy: Sequence[tuple[Life, Span]]) -> bool:
    """Say whether the worker was not at anything of that kind between the two."""
    return not any(whose is life and span.overlaps(began_s, ended_s) for whose, span in busy)
