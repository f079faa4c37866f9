"""`python -m tests.benchmarks.approvals`: what many questions to people cost, and that each is one.

`make bench-approvals` starts it with a Postgres that syncs every commit. It ends by itself, and
with an error if a promise is broken; how long things took is for a reader to judge.
"""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from milepost.cli.keys import create_key
from milepost.settings import Settings
from milepost.store.address import PostgresAddress
from milepost.store.migrate import migrate
from tests import devservices
from tests.benchmarks import report, systems
from tests.benchmarks.connection import Connection
from tests.benchmarks.contest import RUN, Contest, fight, park
from tests.benchmarks.copies import WAITING, multiply
from tests.benchmarks.parked import Times, claiming, inbox, times
from tests.benchmarks.systems import Database, System

_APPROVAL_ID = re.compile(rb'"approval_id":"(apr_\w+)"')
_NEXT = b"event: "
_WAITS = b"event: run.waiting\n"


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured."""

    approvals: int
    resolvers_each: int
    few: int
    many: int
    tries: int
    decisions: int


FULL = Amount(1_000, 10, 100, 100_000, 200, 200)
QUICK = Amount(100, 10, 25, 5_000, 100, 30)


@dataclass(frozen=True, slots=True)
class Crowd:
    """What the same takes with few runs that wait, and with many."""

    few: int
    many: int
    claims: tuple[Times, Times]
    inbox: tuple[Times, Times]


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and fail where a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.approvals")
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    amount = QUICK if parser.parse_args(arguments).quick else FULL
    with ExitStack() as stack:
        folder = stack.enter_context(devservices._scratch_directory(in_memory=False))
        service = stack.enter_context(devservices.postgres())
        if service is None:
            sys.exit("there is no Postgres on this machine, and this is about one")
        model_url = stack.enter_context(systems.model(folder))
        with systems.database(service.url) as database:
            print(report.machine(folder, database), end="\n\n", flush=True)
            contest = contested(amount, folder, model_url, database)
            print(_of_contest(contest), end="\n\n", flush=True)
        with systems.database(service.url) as database:
            print(_of_crowd(crowded(amount, folder, model_url, database)), end="\n\n", flush=True)
        for name, took in answered(amount, folder, model_url, service.url):
            print(f"decision to the run's next event, {name}: {_shown(took)} (aim: p50 20 ms)")
    if not contest.exact:
        sys.exit("a promise is broken: see above")


def contested(amount: Amount, folder: Path, model_url: str, database: Database) -> Contest:
    """Have everybody answer everything, over two processes."""
    keys = _keys(database.url, amount.resolvers_each)
    with _two(folder / "contest", model_url, database) as (one, other):
        ports = (one.server.port, other.server.port)

        async def contest() -> Contest:
            approvals = await park(ports[0], keys[0], amount.approvals)
            return await fight(ports, keys, approvals, database.url)

        return asyncio.run(contest())


def crowded(amount: Amount, folder: Path, model_url: str, database: Database) -> Crowd:
    """Measure claims and the inbox with few runs that wait, then with many.

    Claims are measured while no server is there to take the run first.
    """
    (key,) = _keys(database.url, 1)
    inboxes = []
    with _serving("few", folder, model_url, database) as system:
        asyncio.run(park(system.server.port, key, amount.few))
        inboxes.append(asyncio.run(inbox(system.server.port, key, amount.tries)))
    claims = [asyncio.run(claiming(PostgresAddress(database.url), amount.tries))]
    multiply(PostgresAddress(database.url), "waiting", WAITING, amount.many)
    claims.append(asyncio.run(claiming(PostgresAddress(database.url), amount.tries)))
    with _serving("many", folder, model_url, database) as system:
        inboxes.append(asyncio.run(inbox(system.server.port, key, amount.tries)))
    return Crowd(
        amount.few, amount.few + amount.many, (claims[0], claims[1]), (inboxes[0], inboxes[1])
    )


def answered(
    amount: Amount, folder: Path, model_url: str, postgres_url: str
) -> Iterator[tuple[str, Times]]:
    """Measure on each database from a decision to the next event that the run's stream brings."""
    with systems.milepost("sqlite", folder / "sqlite", model_url, None) as system:
        port = system.server.port
        yield "SQLite", asyncio.run(_answering((port, port), None, amount.decisions))
    with systems.database(postgres_url) as database:
        with _serving("alone", folder, model_url, database) as system:
            port = system.server.port
            took = asyncio.run(_answering((port, port), None, amount.decisions))
        yield "Postgres", took
    with systems.database(postgres_url) as database, devservices.redis() as redis:
        if redis is None:
            return
        with _two(folder / "two", model_url, database, redis.url) as (one, other):
            ports = (one.server.port, other.server.port)
            took = asyncio.run(_answering(ports, None, amount.decisions))
        yield "Postgres and Redis, decided in another process", took


async def _answering(ports: tuple[int, int], key: str | None, many: int) -> Times:
    """Follow runs at the first port, and answer what they ask at the second."""
    asking, deciding = [await Connection.open(port, key) for port in ports]
    took = []
    for _ in range(many):
        run = (await asking.ask("POST", "/v1/runs", RUN)).json()
        stream = await Connection.open(ports[0], key)
        await stream.follow(f"/v1/runs/{run['id']}/events")
        seen = b""
        while _WAITS not in seen:
            seen += await stream.piece()
        matched = _APPROVAL_ID.search(seen)
        assert matched is not None, seen
        began = time.perf_counter()
        answer = asyncio.create_task(
            deciding.ask(
                "POST", f"/v1/approvals/{matched[1].decode()}/decision", {"decision": "approve"}
            )
        )
        while _NEXT not in await stream.piece():
            pass
        took.append(time.perf_counter() - began)
        assert (await answer).status == 200
        await stream.close()
    await asking.close()
    await deciding.close()
    return times(took)


def _keys(database_url: str, many: int) -> list[str]:
    """Bring the database up to date, and make keys for so many people."""
    migrate(PostgresAddress(database_url))
    settings = Settings(database_url=database_url)
    return [
        create_key(
            settings, tenant="default", name=f"r{place}", scopes=["admin"], subject=f"r{place}"
        )
        for place in range(many)
    ]


def _serving(
    name: str, folder: Path, model_url: str, database: Database, redis_url: str | None = None
) -> AbstractContextManager[System]:
    return systems.milepost("postgres", folder / name, model_url, database, redis_url=redis_url)


@contextmanager
def _two(
    folder: Path, model_url: str, database: Database, redis_url: str | None = None
) -> Iterator[tuple[System, System]]:
    """Serve from two processes that share a database."""
    folder.mkdir()
    with (
        _serving("one", folder, model_url, database, redis_url) as one,
        _serving("other", folder, model_url, database, redis_url) as other,
    ):
        yield one, other


def _of_contest(contest: Contest) -> str:
    rows = (
        ("approvals", contest.approvals, ""),
        ("resolvers, all at once, two processes", contest.resolvers, ""),
        ("answered yes or no first", contest.won, contest.approvals),
        ("refused for a moment, and tried again", contest.refusals, ""),
        ("told who was first, and what they said", contest.told, contest.resolvers - contest.won),
        ("decisions in the logs", contest.decisions, contest.approvals),
        ("runs woken twice", contest.double_wakes, 0),
        ("tools run", contest.tools_run, ""),
        ("tools run without an approved digest", contest.unapproved, 0),
    )
    lines = [f"{name:<44}{found:>9,}{_must(must):>16}" for name, found, must in rows]
    lines.append(f"all of them answered in {contest.seconds:.1f} s")
    return "\n".join(lines)


def _must(must: int | str) -> str:
    return "" if must == "" else f"(must be {must:,})"


def _of_crowd(crowd: Crowd) -> str:
    head = f"{'runs that wait':<30}{crowd.few:>20,}{crowd.many:>20,}{'p99 times':>12}"
    return "\n".join(
        [
            head,
            *(
                f"{name:<30}{_shown(few):>20}{_shown(many):>20}{many.p99 / few.p99:>11.2f}x"
                for name, (few, many) in (
                    ("a claim", crowd.claims),
                    ("GET /v1/approvals?status=pending"[:29], crowd.inbox),
                )
            ),
            "p50 / p99 of the quietest of five rounds (aim: less than 2x)",
        ]
    )


def _shown(took: Times) -> str:
    return f"{took.p50:.1f} / {took.p99:.1f} ms"


if __name__ == "__main__":
    main(sys.argv[1:])
