"""All rows of one installation, and whether anything was lost over them."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.benchmarks.outages.outage import Measured, Often, Outage, measure
from tests.benchmarks.outages.site import Installation, Site, UnfitError, site
from tests.torture import ledger
from tests.torture.plan import DatabaseName, Plan

CLIENTS = 8
CLIENTS_OF_ONE = 4


@dataclass(slots=True)
class Outcome:
    """What came of an installation. `untried` says why there was none."""

    name: str
    origin: str = ""
    untried: str = ""
    rows: list[Measured] = field(default_factory=list)
    runs: int = 0
    effects: int = 0
    violations: list[str] = field(default_factory=list)


async def on_postgres(outages: Sequence[Outage], often: Often, folder: Path) -> Outcome:
    """Measure on two APIs and three workers with Postgres and Redis."""
    installation = _installation("Postgres and Redis", "postgres", apis=2, workers=3)
    return await _campaign(installation, outages, often, folder)


async def on_sqlite(outages: Sequence[Outage], often: Often, folder: Path) -> Outcome:
    """Measure on one process with SQLite."""
    installation = _installation("SQLite", "sqlite", apis=1, workers=0)
    return await _campaign(installation, outages, often, folder)


async def on_temporal(outages: Sequence[Outage], often: Often, folder: Path) -> Outcome:
    """Measure on an API and two workers that dispatch with Temporal."""
    program = _temporal_program()
    if program is None:
        return Outcome("Temporal", untried="there is no program 'temporal' on this machine")
    installation = _installation("Temporal", "postgres", apis=1, workers=2)
    return await _campaign(replace(installation, temporal=program), outages, often, folder)


async def _campaign(
    installation: Installation, outages: Sequence[Outage], often: Often, folder: Path
) -> Outcome:
    outcome = Outcome(installation.name)
    try:
        async with site(installation, folder) as at:
            for outage in outages:
                measured = await measure(at, outage, often)
                _tell(measured)
                outcome.rows.append(measured)
            outcome.origin = at.ground.origin
            await at.leave()
            _judge(outcome, at)
    except UnfitError as unfit:
        outcome.untried = str(unfit)
    return outcome


def _tell(measured: Measured) -> None:
    """Say how far it is, to who waits."""
    pauses = ", ".join(f"{pause:.2f}" for pause in measured.pauses)
    sys.stderr.write(f"outages: {measured.name}: {pauses}\n")


def _judge(outcome: Outcome, at: Site) -> None:
    outcome.runs = len(at.crowd.followed)
    outcome.effects = len(ledger.read(at.folder / "ledger"))
    outcome.violations = [*at.judge(), *at.fleet.surprises]


def _temporal_program() -> str | None:
    beside = Path(sys.executable).with_name("temporal")
    return str(beside) if beside.exists() else shutil.which("temporal")


def _installation(name: str, database: DatabaseName, *, apis: int, workers: int) -> Installation:
    plan = Plan(
        database=database, seed=1, minutes=0.0, runs=0, resumes=0, faults={},
        apis=apis, workers=workers, skew_s=0.0,
    )  # fmt: skip
    return Installation(name, plan, clients=CLIENTS if workers else CLIENTS_OF_ONE)
