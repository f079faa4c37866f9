"""What campaigns came to, as a page: figures of faults, violations, and how soon runs went on."""

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tests.torture.campaign import Result
from tests.torture.requeue import Requeue

ROOT = Path(__file__).resolve().parents[2]
VIOLATIONS_SHOWN = 50
SHOWN_CHARS = 500
LATE_SHOWN = 3
BEFORE_S = 5.0


def page(results: Sequence[Result], command: str) -> str:
    """Return the report."""
    return "\n".join([*_head(command), *_summary(results), *_each(results)]) + "\n"


def missed(result: Result) -> list[str]:
    """Return what the plan asked for and the time did not suffice for."""
    plan = result.plan
    wanted = [("runs", plan.runs, result.runs), ("stream resumes", plan.resumes, result.resumes)]
    wanted += [(name, count, result.faults[name]) for name, count in plan.faults.items()]
    return [f"{done:,} of {count:,} {name}" for name, count, done in wanted if done < count]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _head(command: str) -> Iterator[str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    machine = (
        f"{os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}"
    )
    yield from (
        "# Torture",
        "",
        "Real `milepost` processes, killed, frozen, cut off and lied to about the time, under the",
        "load of clients that believe nothing; then every run in the database is looked at.",
        "",
        f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}",
        f"- {machine}; load {load} at the end",
        f"- `{command}`",
        "",
    )


@cache
def _commit() -> str:
    """Return what is tried: asked once, since the report itself is in the tree from then on."""
    said = subprocess.run(
        ("git", "describe", "--always", "--dirty"),
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=10,
    )  # fmt: skip
    return said.stdout.strip() or "unknown"


def _summary(results: Sequence[Result]) -> Iterator[str]:
    names = [_name(result) for result in results]
    yield from ("| | " + " | ".join(names) + " | in all |", "|---|" + "---:|" * (len(names) + 1))
    rows: list[tuple[str, list[int]]] = [
        ("runs", [result.runs for result in results]),
        ("events", [result.events for result in results]),
        ("stream resumes", [result.resumes for result in results]),
        ("effects in the tools' ledger", [result.effects for result in results]),
        ("times of schedules that came", [result.times for result in results]),
        ("questions decided at two processes at once", [result.decided for result in results]),
        ("runs that an operator sent on", [result.retried for result in results]),
    ]
    kinds = sorted({name for result in results for name in result.faults})
    rows += [(f"fault: {name}", [result.faults[name] for result in results]) for name in kinds]
    rows.append(("**violations**", [len(result.violations) for result in results]))
    for name, counts in rows:
        yield f"| {name} | " + " | ".join(f"{count:,}" for count in [*counts, sum(counts)]) + " |"
    yield ""


def _name(result: Result) -> str:
    return {"postgres": "Postgres", "sqlite": "SQLite"}[result.plan.database]


def _each(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        yield f"## {_name(result)}"
        yield ""
        if result.untried:
            yield from (f"Not tried: {result.untried}.", "")
            continue
        yield from (f"{line}  " for line in _particulars(result))
        yield ""
        yield from _requeues(result)
        yield from _violations(result)


def _particulars(result: Result) -> Iterator[str]:
    plan = result.plan
    yield (
        f"{result.origin}; seed {plan.seed}, {plan.at_once} clients at once,"
        f" {result.seconds:,.0f} s; lease {plan.lease_s:g} s, sweep {plan.sweep_s:g} s"
    )
    if plan.database == "postgres":
        yield (
            f"{plan.apis} API processes, {plan.workers} workers, the clocks of two of them wrong"
            f" by {plan.skew_s:+g} and {-plan.skew_s:+g} s"
        )
    else:
        yield "one process, killed and started again"
    yield "how runs ended: " + _counted(result.statuses)
    yield "what runs were: " + _counted(result.kinds)
    yield "what clients were told besides: " + (_counted(result.answers) or "nothing")
    yield from result.remarks
    if short := missed(result):
        yield "**not reached in time**: " + ", ".join(short)


def _counted(counter: "dict[str, int]") -> str:
    ordered = sorted(counter.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count:,}" for name, count in ordered)


def _requeues(result: Result) -> Iterator[str]:
    """Yield how long runs stood still whose worker was killed."""
    found, bound_ms = result.requeues, result.plan.bound_ms
    if result.plan.database == "sqlite":
        rows = [("from the kill to the next claim, the new process' start included", found)]
    else:
        ordinary = [each for each in found if each.counts and not each.apart]
        rows = [
            ("first crash, with a live sweeper", [each for each in ordinary if each.first]),
            ("crashed before without getting on: they rest for 1, 5 or 25 s more",
             [each for each in ordinary if not each.first]),
            ("while each worker that lived on was at some run's last try (decision 42)",
             [each for each in found if each.apart]),
            ("while more was broken: no database, or no worker that lived on and was not blocked",
             [each for each in found if not each.counts]),
        ]  # fmt: skip
        yield f"The aim: 99 of 100 first crashes within lease + sweep + 1 s, {bound_ms:,.0f} ms."
        yield ""
    yield from ("| runs taken over from killed workers | runs | p50 ms | p99 ms | max ms |",
                "|---|---:|---:|---:|---:|")  # fmt: skip
    for name, each in rows:
        yield _requeue_row(name, each)
    yield ""
    if result.plan.database == "postgres":
        yield from _late(result)


def _late(result: Result) -> Iterator[str]:
    """Yield what was done around the slowest of the first crashes that took too long."""
    bound_ms = result.plan.bound_ms
    late = [
        each
        for each in result.requeues
        if each.first and each.counts and not each.apart and each.waited_ms > bound_ms
    ]
    for each in sorted(late, key=lambda each: -each.waited_ms)[:LATE_SHOWN]:
        began_s, ended_s = each.killed_s - BEFORE_S, each.killed_s + each.waited_ms / 1000
        at_s = each.killed_s - result.timeline.began_s
        yield f"{each.run_id} stood still for {each.waited_ms:,.0f} ms from {at_s:,.3f} s on; free"
        yield f"was {', '.join(each.heirs)}, and it went on at {each.heir}:"
        yield from ("", "```text", *result.timeline.told(began_s, ended_s), "```", "")


def _requeue_row(name: str, found: Sequence[Requeue]) -> str:
    waited = [each.waited_ms for each in found]
    if not waited:
        return f"| {name} | 0 | - | - | - |"
    p50, p99 = percentile(waited, 0.50), percentile(waited, 0.99)
    return f"| {name} | {len(waited):,} | {p50:,.0f} | {p99:,.0f} | {max(waited):,.0f} |"


def _violations(result: Result) -> Iterator[str]:
    if not result.violations:
        yield from ("No violation.", "")
        return
    yield f"**{len(result.violations):,} violations**, the first of them:"
    yield ""
    yield from (f"- {said[:SHOWN_CHARS]}" for said in result.violations[:VIOLATIONS_SHOWN])
    yield ""
