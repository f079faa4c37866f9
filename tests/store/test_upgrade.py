"""Upgrades: a database and its logs as earlier versions left them, and two versions beside each
other.

`tests/store/upgrade/` has what earlier versions' services left in their database when they were
killed: see `record.py` there.
"""

import asyncio
import contextlib
import dataclasses
import os
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from milepost.core.codec import EVENTS, decode
from milepost.core.events import Event
from milepost.core.evolve import evolve
from milepost.core.state import State, transcript
from milepost.store.address import Address, PostgresAddress, SqliteAddress
from milepost.store.migrate import OLDEST_SCHEMA, migrate
from milepost.store.migrations import newest
from tests.databases import database, named
from tests.journeys.processes import Installation, Server, assert_sound, installed, types
from tests.store.earlier import commit_before, migrated_to, unpacked

RECORDED = {path.stem: path for path in sorted(Path(__file__).with_name("upgrade").glob("*.sql"))}
# The first migrations since the versions that run beside this one.
FIRST_SINCE = ("0016_say_which_code_may_use_it.py", "0020_conversations_that_last.py")
MAIL = "Send an email to ann@example.com about lunch saying see you at noon"
RUNS = 30
LEFT = ("queued", "running", "waiting", "blocked")
OLD = "Who are you?"  # takes a second or so to be answered

Logs = dict[str, list[tuple[str, bytes]]]


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    """A database that has never been migrated."""
    if request.param == "sqlite":
        yield SqliteAddress(tmp_path / "milepost.db")
        return
    server = request.getfixturevalue("postgres_url")
    with database(server) as name:
        yield PostgresAddress(named(server, name))


@pytest.fixture
async def installation(fresh: Address, tmp_path: Path) -> AsyncIterator[Installation]:
    """Processes on that database."""
    environment = {
        "MILEPOST_DATABASE_URL": url_of(fresh),
        "MILEPOST_LEASE_S": "2",
        "MILEPOST_SWEEP_S": "0.3",
        "MILEPOST_LOG_LEVEL": "warning",
        "PYTHONWARNINGS": "error",
        "PATH": os.environ["PATH"],
    }
    async with installed(tmp_path, environment) as installation:
        yield installation


def url_of(address: Address) -> str:
    return address.sqlalchemy_url if isinstance(address, SqliteAddress) else address.url


def fill(address: Address, recorded: Path) -> dict[str, str]:
    """Put into the database what was recorded; return how each run stands."""
    asked = "SELECT id, status FROM runs"
    if isinstance(address, SqliteAddress):
        with contextlib.closing(sqlite3.connect(address.path)) as file:
            file.executescript(recorded.read_text())
            return dict(file.execute(asked).fetchall())
    with psycopg.connect(address.url) as connection:
        connection.execute(recorded.read_bytes())
        return dict(connection.execute(asked).fetchall())


def logs_in(recorded: Path) -> Logs:
    """Return the types and data of the recorded events by their runs."""
    memory = sqlite3.connect(":memory:")
    columns = "run_id, seq, tenant, epoch, append_id, type, time_ms, data"
    memory.execute(f"CREATE TABLE events ({columns})")
    for line in recorded.read_text().splitlines():
        if line.startswith("INSERT INTO events "):
            memory.execute(line)
    logs: Logs = defaultdict(list)
    for run_id, kind, data in memory.execute(
        "SELECT run_id, type, data FROM events ORDER BY run_id, seq"
    ):
        logs[run_id].append((kind, data.encode()))
    memory.close()
    return logs


@pytest.mark.parametrize("schema", RECORDED)
async def test_a_service_goes_on_where_an_earlier_version_left_off(
    fresh: Address, installation: Installation, schema: str
) -> None:
    migrated_to(fresh, schema)
    was = fill(fresh, RECORDED[schema])
    logs = logs_in(RECORDED[schema])

    server = await installation.start()
    listed = (await server.http.get("/v1/runs", params={"limit": 100})).json()["data"]
    assert {run["id"] for run in listed} == was.keys() == logs.keys()
    assert {*was.values()} == {"completed", "cancelled", *LEFT}

    (question,) = (await server.http.get("/v1/approvals?status=pending")).json()["data"]
    assert (await server.decide(question["id"], decision="approve")).status_code == 200
    for run_id, log in logs.items():
        events = await server.whole(run_id)
        assert_sound(events)
        written = [kind for kind, _ in log]
        assert types(events)[: len(written)] == written
        if was[run_id] in LEFT:
            assert types(events)[-1] == "run.completed"
        else:
            assert types(events) == written
        trace = (await server.http.get(f"/v1/runs/{run_id}/trace")).json()
        assert trace["spans"]

    first = next(run for run in listed if was[run["id"]] == "completed")
    turn = await server.create("What is 1 + 2?", agent="demo", session_id=first["session_id"])
    assert types(await server.whole(turn["id"]))[-1] == "run.completed"


@pytest.mark.parametrize("fresh", ["postgres"], indirect=True)
async def test_a_service_works_on_the_oldest_schema_that_it_says_it_can(
    fresh: Address, installation: Installation
) -> None:
    migrated_to(fresh, OLDEST_SCHEMA)

    server = await installation.start(MILEPOST_MIGRATE="false")

    asked = await server.create(MAIL, agent="demo")
    await server.until(asked["id"], "run.waiting")
    (question,) = await server.pending(asked["id"])
    await server.decide(question["id"], decision="approve")
    assert types(await server.whole(asked["id"]))[-1] == "run.completed"


@pytest.mark.parametrize("first_since", FIRST_SINCE)
@pytest.mark.parametrize("fresh", ["postgres"], indirect=True)
async def test_the_version_before_works_beside_this_one_while_the_database_is_migrated(
    fresh: Address, installation: Installation, tmp_path: Path, first_since: str
) -> None:
    try:
        code = unpacked(commit_before(first_since), tmp_path / "before")
    except LookupError as error:
        pytest.skip(f"the version before is in the history of git alone, and here is none: {error}")
    old = await installation.start(**code)
    under_way = [await old.create(OLD, agent="demo") for _ in range(4)]

    assert isinstance(fresh, PostgresAddress)
    await asyncio.to_thread(migrate, fresh)
    last = drop_last_partition(fresh)
    new = await installation.start()
    pairs = [(old, new), (new, old)]
    runs = [(await old.run(run["id"]), pairs[0]) for run in under_way]
    for number in range(RUNS):
        here, there = pairs[number % 2]
        said = MAIL if number % 3 == 0 else f"What is {number} + 1?"
        runs.append((await here.create(said, agent="demo"), (here, there)))
    for run, servers in runs:
        await see_through(run["id"], *servers)

    assert {str(server.process.pid) for server in (old, new)} == workers_on(fresh)
    assert last in partitions_of(fresh), "what was missing has been made by the new one"
    assert await old.stop() == 0, "it drains, and nothing is left to it"


async def see_through(run_id: str, here: Server, there: Server) -> None:
    """Watch a run from the one process until it has completed; say yes at the other if it asks."""
    async for event in there.events(run_id):
        if event.type == "approval.requested":
            (question,) = await there.pending(run_id)
            answer = await here.decide(question["id"], decision="approve")
            assert answer.status_code == 200, answer.text
    events = await there.whole(run_id)
    assert_sound(events)
    assert types(events)[-1] == "run.completed"


def partitions_of(address: PostgresAddress) -> list[str]:
    """Return the names of the log's partitions, but for the default one."""
    asked = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'events'::regclass"
    with psycopg.connect(address.url) as connection:
        return sorted(name for (name,) in connection.execute(asked) if name[-1].isdigit())


def drop_last_partition(address: PostgresAddress) -> str:
    last = max(name for name in partitions_of(address) if "before" not in name)
    with psycopg.connect(address.url) as connection:
        connection.execute(f"DROP TABLE {last}".encode())
    return last


def workers_on(address: PostgresAddress) -> set[str]:
    """Return the processes that runs were begun by."""
    asked = "SELECT data FROM events WHERE type IN ('run.started', 'run.resumed')"
    with psycopg.connect(address.url) as connection:
        begun = [orjson.loads(data)["worker"] for (data,) in connection.execute(asked)]
    return {worker.rpartition("-wrk_")[0].rpartition("-")[2] for worker in begun}


@pytest.mark.parametrize("schema", RECORDED)
def test_the_first_shape_of_an_event_is_still_read(schema: str) -> None:
    """What has a default today may be missing: some version wrote before there was such a field."""
    for log in logs_in(RECORDED[schema]).values():
        stripped = [(kind, without_defaults(kind, orjson.loads(data))) for kind, data in log]

        assert folded(stripped).ended == folded_as_written(log).ended


@pytest.mark.parametrize("schema", RECORDED)
def test_what_a_later_version_adds_is_passed_over(schema: str) -> None:
    for log in logs_in(RECORDED[schema]).values():
        later = [
            each
            for kind, data in log
            for each in ((kind, {**orjson.loads(data), "later": 1}), ("later.happened", {}))
        ]

        assert folded(later) == folded_as_written(log)


def test_the_recordings_hold_what_an_upgrade_may_meet() -> None:
    for path in RECORDED.values():
        kinds = {kind for log in logs_in(path).values() for kind, _ in log}
        assert {"message.completed", "tool_call.completed", "tool_call.denied"} <= kinds
        assert {"approval.requested", "approval.decided", "run.cancelled"} <= kinds
    assert sum(path.stat().st_size for path in RECORDED.values()) < 300_000
    assert max(RECORDED) <= OLDEST_SCHEMA <= newest()


def without_defaults(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return only what an event of this type cannot do without."""
    needed = {
        field.name
        for field in dataclasses.fields(EVENTS[kind])
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    if "cause" in needed:
        needed.add("for")  # its name in the log
    return {name: value for name, value in data.items() if name in needed}


def folded_as_written(log: list[tuple[str, bytes]]) -> State:
    return folded([(kind, orjson.loads(data)) for kind, data in log])


def folded(log: list[tuple[str, dict[str, Any]]]) -> State:
    state = State()
    for kind, data in log:
        event: Event | None = decode(kind, orjson.dumps(data))
        state = evolve(state, event) if event else state
    transcript(state)
    return state
