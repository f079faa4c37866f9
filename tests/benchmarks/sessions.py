"""`python -m tests.benchmarks.sessions`: what a run of a long session costs, and of a short one.

For each database: how long it takes from the claim of a run to the moment in which its model is
asked, in a process that has not seen the session before and in one that has; how much memory the
process has taken by then, and how many bytes the run has left in the database.
"""

import argparse
import asyncio
import contextlib
import resource
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from milepost.core.model import Delta, ModelRequest
from milepost.providers.scripted import saying
from milepost.runtime.history import History
from milepost.store import runs, schema
from milepost.store.address import Address, SqliteAddress, parse_address
from milepost.store.migrate import migrate
from milepost.store.store import Store
from milepost.tools import ToolThreads
from tests import devservices
from tests.benchmarks import report, systems
from tests.benchmarks.load import percentile
from tests.benchmarks.systems import SHOWN, SystemName
from tests.runtime.workshop import TENANT, Workshop
from tests.store.conftest import opened, serving

SIZES = (10, 100, 1_000, 10_000)
TRIES = 200
ROUNDS = 10
LATER_MAX_MS = 10.0
SAID = "Where is order 4711, which I have been waiting for since Monday?"
ANSWER = "It left our house on Tuesday and should be with you by tomorrow. " * 3
_NAMES: tuple[SystemName, ...] = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class Started:
    """What runs of a session of so many messages took to reach their models, and what else."""

    messages: int
    first_ms: float
    cold_ms: float
    warm_ms: float
    shown: int
    memory_kb: int
    stored_bytes: float


@dataclass(slots=True)
class Asked:
    """A model that notes when it was asked, and what it was shown."""

    at: float = 0.0
    shown: list[int] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Answer."""
        self.at = time.perf_counter()
        self.shown.append(len(request.messages))
        for delta in saying(ANSWER):
            assert not isinstance(delta, Exception)
            yield delta


def main(arguments: Sequence[str]) -> None:
    """Measure, and print as it comes; say so if the long session is too much slower."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sessions")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="messages")
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--only", nargs="+", choices=_NAMES, default=_NAMES)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = stack.enter_context(devservices._scratch_directory(in_memory=False))
        for name in options.only:
            database = None
            url = f"sqlite:///{folder}/milepost.db"
            if name == "postgres":
                service = stack.enter_context(devservices.postgres())
                if service is None:
                    print("no Postgres on this machine, so it is left out", file=sys.stderr)
                    continue
                database = stack.enter_context(systems.database(service.url))
                url = database.url
            print(report.machine(folder, database), end="\n\n")
            print(f"{SHOWN[name]}\n{_HEAD}", flush=True)
            address = parse_address(url)
            migrate(address)
            found = asyncio.run(_measured(address, folder, options.sizes, options.tries))
            print(_verdict(found), end="\n\n", flush=True)


async def _measured(
    address: Address, folder: Path, sizes: Sequence[int], tries: int
) -> list[Started]:
    found: list[Started] = []
    threads = ToolThreads(1)
    async with opened(address) as engine, serving(Store(engine)) as store:
        shop = Workshop(store, threads, folder / "milepost.db")
        for size in sorted(sizes):
            found.append(await _session(shop, address, size, tries))
            print(_row(found[-1]), flush=True)
    threads.close()
    return found


async def _session(shop: Workshop, address: Address, messages: int, tries: int) -> Started:
    """Make sessions of so many messages, and have a few runs in each."""
    asked = Asked()
    first: list[float] = []
    cold: list[float] = []
    warm: list[float] = []
    stored = 0
    for _ in range(ROUNDS):
        session_id, run_id = await _turn(shop, asked, None)
        repeat(address, session_id, run_id, messages // 2)
        shop.history = History(shop.store)
        first.append(await _timed(shop, asked, session_id))
        for _ in range(tries // ROUNDS):
            shop.history = History(shop.store)
            cold.append(await _timed(shop, asked, session_id))
        before = _stored(address)
        warm += [await _timed(shop, asked, session_id) for _ in range(tries // ROUNDS)]
        stored += _stored(address) - before
    return Started(
        messages,
        percentile(first, 0.5) * 1000,
        percentile(cold, 0.5) * 1000,
        percentile(warm, 0.5) * 1000,
        max(asked.shown),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        stored / len(warm),
    )


async def _timed(shop: Workshop, asked: Asked, session_id: str) -> float:
    """Return how many seconds lay between the claim of a run and its model."""
    await shop.queue(SAID, session_id=session_id)
    claim = await shop.claim()
    began = time.perf_counter()
    driven = await shop.driving(claim, shop.agent(), shop.means(asked))
    await driven.run()
    return asked.at - began


async def _turn(shop: Workshop, asked: Asked, session_id: str | None) -> tuple[str, str]:
    run = await shop.queue(SAID, session_id=session_id)
    await shop.go_on(asked)
    assert (await shop.store.read(runs.find(TENANT, run.id))).status == "completed"
    return run.session_id, run.id


@contextlib.contextmanager
def _connection(address: Address) -> Iterator[sqlite3.Connection | psycopg.Connection]:
    if isinstance(address, SqliteAddress):
        with contextlib.closing(sqlite3.connect(address.path, isolation_level=None)) as file:
            yield file
    else:
        with psycopg.connect(address.url, autocommit=True) as server:
            yield server


def repeat(address: Address, session_id: str, run_id: str, turns: int) -> None:
    """Make the session's only run be there so many times, one turn after the other."""
    with _connection(address) as database:
        for table in (schema.runs, schema.events):
            database.execute(_copying(table.name, [c.name for c in table.c], run_id, turns))
        database.execute(f"UPDATE sessions SET turns = {turns} WHERE id = '{session_id}'")
        database.execute("ANALYZE")


def _copying(table: str, names: Sequence[str], run_id: str, turns: int) -> str:
    changed = {
        "id": "original.id || '_' || copy",
        "run_id": "original.run_id || '_' || copy",
        "append_id": "original.append_id || '_' || copy",
        "turn": "copy",
    }
    chosen = ", ".join(changed.get(name, f"original.{name}") for name in names)
    key = "id" if table == "runs" else "run_id"
    return (
        f"WITH RECURSIVE copies(copy) AS (SELECT 2 UNION ALL SELECT copy + 1 FROM copies"
        f" WHERE copy < {turns}) INSERT INTO {table} ({', '.join(names)})"
        f" SELECT {chosen} FROM {table} original, copies WHERE original.{key} = '{run_id}'"
    )


def _stored(address: Address) -> int:
    """Return how many bytes the rows have that a run leaves behind."""
    counted = {
        "events": "data", "runs": "outcome", "spans": "attributes", "summaries": "content"
    }  # fmt: skip
    total = 0
    with _connection(address) as database:
        for table, column in counted.items():
            query = f"SELECT coalesce(sum(length({column})), 0), count(*) FROM {table}"
            ((size, rows),) = database.execute(query).fetchall()
            total += int(size) + 100 * int(rows)
    return total


_HEAD = (
    f"{'messages':>10}{'first run ms':>14}{'new process ms':>16}{'same process ms':>17}"
    f"{'shown':>7}{'memory MB':>11}{'bytes a run':>13}"
)


def _row(each: Started) -> str:
    return (
        f"{each.messages:>10,}{each.first_ms:>14.1f}{each.cold_ms:>16.1f}{each.warm_ms:>17.1f}"
        f"{each.shown:>7}{each.memory_kb / 1024:>11.0f}{each.stored_bytes:>13,.0f}"
    )


def _verdict(found: Sequence[Started]) -> str:
    least, most = found[0], found[-1]
    later = max(most.cold_ms - least.cold_ms, most.warm_ms - least.warm_ms)
    missed = "  MISSED" if later > LATER_MAX_MS else ""
    return (
        f"with {most.messages:,} messages a model is asked {later:.1f} ms later than with"
        f" {least.messages:,}, at most {LATER_MAX_MS:.0f}{missed}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
