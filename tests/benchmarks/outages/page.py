"""What was measured, as a page of docs/evidence."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from tests.benchmarks.outages.campaign import Outcome
from tests.benchmarks.outages.outage import Measured
from tests.torture.report import percentile

TOLD_MAX = 6


def page(outcomes: Sequence[Outcome], command: str, machine: str, took_s: float) -> str:
    """Return the report."""
    lines = [*_head(command, machine, took_s)]
    for outcome in outcomes:
        lines += ["", *_of(outcome)]
    return "\n".join(lines) + "\n"


def _head(command: str, machine: str, took_s: float) -> Iterator[str]:
    yield from (
        "# Outages",
        "",
        "What breaks is broken, again and again, one at a time, under a handful of clients that",
        "start runs, read them to their end, and start the next. A pause is how long the client",
        "that waited longest was told nothing from the fault on: no text, no event and no answer.",
        "It has in it what is always waited for; the row of nothing tells how long that is.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, `{command}`, {took_s:,.0f} s",
        f"- {machine}",
        f"- load {os.getloadavg()[1]:.1f} in the five minutes before the end",
        "- lease 2 s and sweep 0.5 s, not the 15 and 5 s of an installation, so that much could be",
        "  killed in little time; processes that start are forked from one that has all imports",
        "- who is not ready is asked by nobody, as behind a balancer",
        "- all requests to Postgres but those that judge pass a proxy, which can break the way",
    )


def _of(outcome: Outcome) -> Iterator[str]:
    yield from (f"## {outcome.name}", "")
    if outcome.untried:
        yield f"Not measured: {outcome.untried}."
        return
    yield f"{outcome.origin}. {outcome.runs:,} runs, {outcome.effects:,} effects in the tools'"
    if outcome.violations:
        yield f"ledger: **{len(outcome.violations)} broken promises**."
        yield ""
        yield from (f"- {said}" for said in outcome.violations)
    else:
        yield "ledger, each run's log and each effect looked at: nothing lost, nothing done twice."
    yield from ("", "| What was broken | Times | Pause, p50 | worst | Besides | What clients met |")
    yield "|---|---:|---:|---:|---|---|"
    yield from (_row(measured) for measured in outcome.rows)


def _row(measured: Measured) -> str:
    besides = ", ".join(
        f"{name}: {_seconds(percentile(each, 0.5))}, worst {_seconds(max(each))}"
        for name, each in measured.besides.items()
    )
    return (
        f"| {measured.name} | {len(measured.pauses)} | {_seconds(percentile(measured.pauses, 0.5))}"
        f" | {_seconds(max(measured.pauses))} | {besides or '-'} | {_told(measured.told)} |"
    )


def _told(told: Counter[str]) -> str:
    shown = [f"{name} {count:,}" for name, count in told.most_common(TOLD_MAX) if count]
    return ", ".join(shown) or "nothing"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s"
