"""`python -m tests.torture`: the long form, bounded in time, with a report at its end.

Faults and runs are divided between the databases. What is found wrong makes the exit code 1; the
folder of a campaign with violations, with its logs and its ledger, is kept.
"""

import argparse
import asyncio
import logging
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tests.torture.campaign import Result, campaign
from tests.torture.plan import AT_ONCE, GAP_S, DatabaseName, FaultName, Plan
from tests.torture.report import missed, page

# How much of the faults and of the runs is done on SQLite, where a single process does everything
# and each of its deaths stops all.
SQLITE_FAULTS = 0.25
SQLITE_RUNS = 0.1
DATABASES: dict[str, tuple[DatabaseName, ...]] = {
    "postgres": ("postgres",),
    "sqlite": ("sqlite",),
    "both": ("postgres", "sqlite"),
}


def main() -> int:
    """Run the campaigns that were asked for; return the exit code."""
    options = _options()
    # It warns of each connection that it loses.
    logging.getLogger("milepost.client").setLevel(logging.ERROR)
    results: list[Result] = []
    options.report.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["python", "-m", "tests.torture", *sys.argv[1:]])
    for plan in _plans(options):
        results.append(_tortured(plan))
        # What one campaign has shown is not lost with the next.
        options.report.write_text(page(results, command))
    sys.stdout.write(options.report.read_text())
    return int(any(result.violations for result in results))


def _tortured(plan: Plan) -> Result:
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{plan.database}-", dir="/var/tmp"))
    _tell(f"torturing {plan.database} in {folder}")
    result = asyncio.run(campaign(plan, folder))
    for short in missed(result):
        _tell(f"not reached in time: {short}")
    if result.violations:
        _tell(f"{len(result.violations)} violations; see {folder}")
    else:
        shutil.rmtree(folder)
    return result


def _tell(said: str) -> None:
    sys.stderr.write(f"torture: {said}\n")
    sys.stderr.flush()


def _plans(options: argparse.Namespace) -> list[Plan]:
    databases = DATABASES[options.database]
    if len(databases) == 1:
        return [_plan(options, databases[0], 1.0, 1.0)]
    return [
        _plan(options, "postgres", 1.0 - SQLITE_FAULTS, 1.0 - SQLITE_RUNS),
        _plan(options, "sqlite", SQLITE_FAULTS, SQLITE_RUNS),
    ]


def _plan(options: argparse.Namespace, database: DatabaseName, share: float, runs: float) -> Plan:
    """Return the plan for one database: `share` of the faults, `runs` of the runs."""
    common: dict[FaultName, int] = {
        "kill": options.kills, "pause": options.pauses, "drain": options.drains,
    }  # fmt: skip
    faults: dict[FaultName, int] = {name: round(count * share) for name, count in common.items()}
    if database == "postgres":
        faults |= {
            "database restart": options.restarts,
            "redis kill": options.redis,
            "redis flush": options.redis,
            "partition": options.partitions,
        }
    return Plan(
        database=database,
        seed=options.seed,
        minutes=options.minutes,
        runs=round(options.runs * runs),
        resumes=round(options.resumes * runs),
        faults=faults,
        at_once=options.at_once,
        gap_s=options.gap,
        pooled=options.pgbouncer and database == "postgres",
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--database", choices=sorted(DATABASES), default="both")
    parser.add_argument("--minutes", type=float, default=30.0, help="at most, on each database")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--resumes", type=int, default=10_000, help="of streams, by their clients")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--pauses", type=int, default=300)
    parser.add_argument("--drains", type=int, default=40)
    parser.add_argument("--restarts", type=int, default=30, help="of Postgres, immediate")
    parser.add_argument("--redis", type=int, default=25, help="times killed, and times flushed")
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="clients")
    parser.add_argument("--gap", type=float, default=GAP_S, help="seconds between two faults")
    parser.add_argument("--pgbouncer", action="store_true", help="before Postgres")
    parser.add_argument("--report", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
