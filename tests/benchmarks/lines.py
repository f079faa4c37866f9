"""`python -m tests.benchmarks.lines --sessions 1000`: five speak at once in each of many sessions.

Once for every `if_active`, and once with all of them mixed: over two APIs and two workers on
Postgres, and over one process on SQLite. It ends at the first message that is lost, doubled or out
of turn, and else tells what was done.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles

from tests import devservices
from tests.benchmarks import systems
from tests.journeys.crowd import ROUNDS, Looked, Round, fleet, look, talk

HEAD = (
    f"{'':<9}{'messages':>9}{'accepted':>9}{'runs':>7}{'said to one':>12}{'replaced':>9}"
    f"{'s':>7}{'a second':>9}{'p50 ms':>8}{'p99 ms':>8}"
)


def main(arguments: Sequence[str]) -> None:
    """Let the crowds speak, and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lines", description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--on", choices=("both", "postgres", "sqlite"), default="both")
    options = parser.parse_args(arguments)
    with devservices._scratch_directory(in_memory=True) as folder:
        if options.on != "sqlite":
            with devservices.postgres() as postgres:
                assert postgres, "there is no Postgres on this machine"
                with systems.database(postgres.url) as database:
                    _speak("Postgres, 2 APIs, 2 workers", database.url, folder, options.sessions)
        if options.on != "postgres":
            url = f"sqlite:///{folder}/milepost.db"
            _speak("SQLite, 1 process", url, folder, options.sessions)


def _speak(where: str, database_url: str, folder: Path, sessions: int) -> None:
    print(f"{where}, {sessions:,} sessions\n{HEAD}", flush=True)
    asyncio.run(_rounds(database_url, folder, sessions))


async def _rounds(database_url: str, folder: Path, sessions: int) -> None:
    async with fleet(database_url, folder) as apis:
        for name, strategies in ROUNDS.items():
            done = await talk(apis, name, sessions, strategies)
            looked = look(database_url, done)
            if looked.violations:
                raise SystemExit("\n".join(looked.violations))
            print(_shown(done, looked), flush=True)


def _shown(done: Round, looked: Looked) -> str:
    spread = quantiles(done.waits_ms, n=100)
    said = len(done.waits_ms)
    return (
        f"{done.name:<9}{said:>9,}{done.accepted:>9,}{looked.runs:>7,}{looked.steered:>12,}"
        f"{looked.replaced:>9,}{done.quiet_s:>7.0f}{said / done.quiet_s:>9.0f}"
        f"{spread[49]:>8.0f}{spread[98]:>8.0f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
