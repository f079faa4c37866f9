"""What came of many seeds, for people."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.world import Outcome

SHOWN_MAX = 3


@dataclass(slots=True)
class Tally:
    """What came of seeds; `wrong` has the traces of those that broke something."""

    seeds: int = 0
    cpu_s: float = 0.0
    virtual_s: float = 0.0
    steps: int = 0
    befell: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _cpu_at_s: float = field(default_factory=time.process_time)

    def add(self, outcome: Outcome) -> None:
        """Count one."""
        now_s = time.process_time()
        self.cpu_s, self._cpu_at_s = self.cpu_s + now_s - self._cpu_at_s, now_s
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.steps += outcome.steps
        self.befell.update(outcome.befell)
        self.counted.update(outcome.counted)
        if outcome.violation is not None:
            self.wrong.append(outcome.told())

    def join(self, other: "Tally") -> None:
        """Count what another one has counted."""
        self.seeds += other.seeds
        self.cpu_s += other.cpu_s
        self.virtual_s += other.virtual_s
        self.steps += other.steps
        self.befell.update(other.befell)
        self.counted.update(other.counted)
        self.wrong += other.wrong


@dataclass(frozen=True, slots=True)
class Hunt:
    """A mutant, the first seed that sees it, and what it tells; None if no seed does."""

    mutant: str
    seed: int | None
    told: str


def report(tally: Tally, hunts: Sequence[Hunt]) -> str:
    """Return the report, as Markdown."""
    return "\n".join((*_summary(tally), *_mutants(hunts), *_wrong(tally)))


def _summary(tally: Tally) -> Iterator[str]:
    rate = tally.seeds / tally.cpu_s if tally.cpu_s else 0.0
    runs = sum(count for name, count in tally.counted.items() if name.startswith("run."))
    yield "# Simulation of the protocol\n"
    yield f"- {tally.seeds} seeds, {len(tally.wrong)} of them with a violation"
    yield f"- {rate:.0f} simulations a second of processor time"
    yield f"- {tally.virtual_s / 3600:.1f} hours of virtual time, {tally.steps} callbacks"
    yield f"- {runs} runs finished, {tally.counted['claims']} claims"
    yield from _table("What befell them", tally.befell)
    yield from _table("What was done", tally.counted)


def _table(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield f"\n## {title}\n\n| | count |\n|---|---:|"
    for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        yield f"| {name} | {count} |"


def _mutants(hunts: Sequence[Hunt]) -> Iterator[str]:
    if not hunts:
        return
    seen = sum(hunt.seed is not None for hunt in hunts)
    yield f"\n## Mutants: {seen} of {len(hunts)} seen\n\n| mutant | first seed | what it tells |"
    yield "|---|---:|---|"
    for hunt in hunts:
        told = hunt.told.splitlines()[0][:160].replace("|", "/") if hunt.told else ""
        shown = "never" if hunt.seed is None else hunt.seed
        yield f"| {hunt.mutant.replace('_', ' ')} | {shown} | {told} |"


def _wrong(tally: Tally) -> Iterator[str]:
    for trace in tally.wrong[:SHOWN_MAX]:
        yield f"\n## A violation\n\n```\n{trace}\n```"
