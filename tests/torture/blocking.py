"""When workers stood still because a tool blocked their event loop."""

from collections.abc import Iterator

from tests.torture.checks import CLAIMS
from tests.torture.history import Entry, History, Run
from tests.torture.timeline import Life, Span, Timeline

Blocked = tuple[Life, Span]
"""A worker, and for how long it did nothing else."""


def blocked(history: History, timeline: Timeline) -> list[Blocked]:
    """Return who was blocked when, as the calls in the runs' logs tell it, in their order."""
    found = [each for run in history.runs.values() for each in _of_run(run, timeline)]
    return sorted(found, key=lambda each: each[1].began_s)


def note(found: list[Blocked], timeline: Timeline) -> None:
    """Write down beside the faults who was blocked when."""
    for life, span in found:
        assert span.ended_s is not None
        seconds = span.ended_s - span.began_s
        timeline.log.append((span.began_s, f"blocked: {life.member} for {seconds:.1f} s"))
    timeline.log.sort()


def true_s(entry: Entry, life: Life) -> float:
    """Return when a process wrote an event, by the orchestrator's clock."""
    return entry.time_ms / 1000 - life.skew_s


def holder(claim: Entry, timeline: Timeline) -> Life | None:
    """Return the process that claimed a run."""
    return timeline.life_of(claim.said["worker"], claim.time_ms / 1000)


def _of_run(run: Run, timeline: Timeline) -> Iterator[Blocked]:
    lives = {claim.epoch: holder(claim, timeline) for claim in run.of(*CLAIMS)}
    calls = {
        entry.said["call_id"]: entry.said["arguments"]["block_ms"] / 1000
        for entry in run.of("tool_call.requested")
        if entry.said["name"] == "block"
    }
    for entry in run.of("tool_call.started"):
        life, seconds = lives.get(entry.epoch), calls.get(entry.said["call_id"])
        if life is not None and seconds is not None:
            began_s = true_s(entry, life)
            until_s = began_s + seconds
            yield (
                life,
                Span(began_s, until_s if life.ended_s is None else min(until_s, life.ended_s)),
            )
