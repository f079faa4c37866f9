"""`python -m tests.benchmarks.outages`: how long each thing that breaks keeps users waiting.

`make bench-outages` starts it with a Postgres that syncs every commit. It breaks each thing ten
times, or for a minute, and ends by itself; it prints a page for docs/evidence, and fails where
anything was lost.
"""

import argparse
import asyncio
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests import devservices
from tests.benchmarks import report
from tests.benchmarks.outages.campaign import Outcome, on_postgres, on_sqlite, on_temporal
from tests.benchmarks.outages.outage import Often
from tests.benchmarks.outages.page import page
from tests.benchmarks.outages.rows import ON_POSTGRES, ON_SQLITE, ON_TEMPORAL

TIMES = 10
ROW_S = 60.0

Campaign = Callable[[Path], Coroutine[Any, Any, Outcome]]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return 1 where a promise was broken."""
    options = _options(arguments)
    with devservices._scratch_directory(in_memory=False) as folder:
        machine = report.machine(folder, None)
    outcomes: list[Outcome] = []
    command = shlex.join(["python", "-m", "tests.benchmarks.outages", *arguments])
    began_s = time.monotonic()
    for campaign in _campaigns(Often(options.times, options.row_s), options.only):
        outcomes.append(_in_a_folder(campaign))
        # What one installation has shown is not lost with the next.
        if options.report:
            options.report.write_text(page(outcomes, command, machine, time.monotonic() - began_s))
    print(page(outcomes, command, machine, time.monotonic() - began_s))
    return int(any(outcome.violations for outcome in outcomes))


def _campaigns(often: Often, only: str) -> Iterator[Campaign]:
    """Yield a campaign for each installation that has one of the rows that are wanted."""
    for outages, campaign in (
        (ON_POSTGRES, on_postgres), (ON_SQLITE, on_sqlite), (ON_TEMPORAL, on_temporal),
    ):  # fmt: skip
        wanted = [outage for outage in outages if only in outage.name]
        if wanted:
            yield partial(campaign, wanted, often)


def _in_a_folder(campaign: Campaign) -> Outcome:
    """Carry it out in a folder that is kept if a promise is broken."""
    folder = Path(tempfile.mkdtemp(prefix="outages-", dir="/var/tmp"))
    sys.stderr.write(f"outages: in {folder}\n")
    outcome = asyncio.run(campaign(folder))
    if not outcome.violations:
        shutil.rmtree(folder)
    return outcome


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.outages", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help="that each thing is broken")
    parser.add_argument(
        "--row-s", type=float, default=ROW_S, help="seconds after which a row has enough"
    )
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--report", type=Path, help="where to write the page, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
