"""Partitions of the log: made ahead by anybody, in nobody's way, and dropped when all is over."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from milepost.core.ids import format_id
from milepost.store import log, partitions
from milepost.store.address import PostgresAddress, SqliteAddress
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.partitions import WEEKS_AHEAD, Partition, drop_before, make_ahead, missing
from milepost.store.records import NewRun
from milepost.store.removals import remove_runs
from milepost.store.store import Store
from tests.store.conftest import opened, serving
from tests.store.making import TENANT, a_finish, a_park, a_run, a_worker, an_append, claims, events

WEEK_MS = 7 * 86_400_000
# Mondays; the later one is behind all that is made ahead, whenever this is run.
NOW_MS, LATER_MS = 1_795_392_000_000, 4_099_075_200_000

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
async def postgres(postgres_address: PostgresAddress) -> AsyncIterator[Store]:
    """A store on Postgres."""
    async with opened(postgres_address) as engine, serving(Store(engine)) as store:
        yield store


@pytest.fixture
def beside(postgres_address: PostgresAddress) -> Iterator[Connection]:
    """A connection of somebody else's, in a transaction."""
    with psycopg.connect(postgres_address.url) as connection:
        yield connection
        connection.rollback()


def a_run_of(time_ms: int) -> NewRun:
    return a_run(id=format_id("run", time_ms, 1))


def place_of(connection: Connection, run_id: str) -> set[str]:
    """Return the partitions that hold the run's events."""
    asked = "SELECT DISTINCT CAST(CAST(tableoid AS regclass) AS text) FROM events WHERE run_id = %s"
    return {str(name) for (name,) in connection.execute(asked, [run_id])}


async def names(store: Store) -> list[str]:
    return [part.name for part in await store.read(partitions.present())]


async def test_a_new_database_has_room_for_weeks_to_come(
    postgres: Store, beside: Connection
) -> None:
    ((now_ms,),) = beside.execute("SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT)")
    found = await postgres.read(partitions.present())

    assert isinstance(now_ms, int)
    assert found[0].first == ""
    assert found[-1].until > format_id("run", now_ms + 4 * WEEK_MS, 0)
    assert [part.first for part in found[1:]] == [part.until for part in found[:-1]]


async def test_the_weeks_to_come_are_made_once(postgres: Store) -> None:
    made = await make_ahead(postgres, LATER_MS)

    assert len(made) == WEEKS_AHEAD + 1
    assert await make_ahead(postgres, LATER_MS + WEEK_MS - 1) == []
    assert await make_ahead(postgres, LATER_MS + WEEK_MS) == ["events_21000111"]
    assert (await names(postgres))[-len(made) - 1 :] == [*made, "events_21000111"]


async def test_many_that_make_them_at_once_make_each_of_them_once(
    postgres_address: PostgresAddress, postgres: Store
) -> None:
    async with opened(postgres_address) as other:
        stores = (postgres, Store(other)) * 4
        made = await asyncio.gather(*(make_ahead(store, LATER_MS) for store in stores))

    assert sorted(len(names) for names in made) == [*[0] * 7, WEEKS_AHEAD + 1]


async def test_whoever_finds_somebody_at_it_does_not_wait(
    postgres: Store, beside: Connection
) -> None:
    beside.execute("SELECT pg_advisory_xact_lock(%s)", [partitions._LOCK])

    assert await make_ahead(postgres, LATER_MS) == []

    beside.rollback()
    assert len(await make_ahead(postgres, LATER_MS)) == WEEKS_AHEAD + 1


async def test_a_run_has_all_its_events_in_the_partition_of_its_week(
    postgres: Store, beside: Connection
) -> None:
    await make_ahead(postgres, LATER_MS)
    run = a_run_of(LATER_MS + WEEK_MS)
    await postgres.create(run)
    (claim,) = await claims(postgres, await a_worker(postgres))
    await postgres.append(an_append(claim))

    assert place_of(beside, run.id) == {"events_20991130"}
    assert len(await events(postgres, run.id)) == 3


async def test_a_run_of_a_week_that_nobody_made_is_taken_and_moves_when_it_is_made(
    postgres: Store, beside: Connection
) -> None:
    run = a_run_of(LATER_MS)
    await postgres.create(run)
    other = a_run_of(LATER_MS - WEEK_MS)
    await postgres.create(other)
    assert place_of(beside, run.id) == {"events_default"}
    beside.rollback()

    await make_ahead(postgres, LATER_MS)

    assert place_of(beside, run.id) == {"events_20991123"}
    assert place_of(beside, other.id) == {"events_default"}
    assert len(await events(postgres, run.id)) == 1


async def test_a_week_of_too_many_strays_stays_where_it_is_and_keeps_no_other_from_being_made(
    postgres: Store, beside: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MOVED_MAX", 0)
    run = a_run_of(LATER_MS)
    await postgres.create(run)

    made = await make_ahead(postgres, LATER_MS)

    assert made == [part.name for part in missing([Partition("", "", "")], LATER_MS)][1:]
    assert place_of(beside, run.id) == {"events_default"}


async def test_writers_go_on_while_partitions_are_made(postgres: Store, beside: Connection) -> None:
    beside.execute(
        "INSERT INTO events (run_id, seq, tenant, append_id, type, data)"
        " VALUES ('run_0', 1, 'acme', 'a', 'run.queued', '{}')"
    )

    assert await make_ahead(postgres, LATER_MS)

    beside.commit()
    assert await postgres.read(log.heads(["run_0"])) == {"run_0": 1}


async def test_one_that_would_have_to_wait_gives_up_and_leaves_nothing(
    postgres: Store, beside: Connection
) -> None:
    beside.execute("LOCK TABLE events_default IN ACCESS SHARE MODE")  # as a backup does, for hours

    with pytest.raises(DatabaseUnavailableError, match="lock timeout"):
        await make_ahead(postgres, LATER_MS)

    left = beside.execute("SELECT to_regclass('events_20991123')").fetchone()
    beside.rollback()
    assert left == (None,)
    assert len(await make_ahead(postgres, LATER_MS)) == WEEKS_AHEAD + 1


async def test_a_log_that_is_one_table_is_left_as_it_is(
    sqlite_address: SqliteAddress, postgres: Store, beside: Connection
) -> None:
    beside.execute("ALTER TABLE events RENAME TO parted")
    beside.execute("CREATE TABLE events (LIKE parted INCLUDING ALL)")
    beside.commit()

    assert await make_ahead(postgres, LATER_MS) == []
    assert await drop_before(postgres, LATER_MS) == partitions.Dropped((), {})
    async with opened(sqlite_address) as engine:
        assert await make_ahead(Store(engine), LATER_MS) == []
        assert await drop_before(Store(engine), LATER_MS) == partitions.Dropped((), {})


async def test_a_partition_goes_once_all_its_runs_are_gone(postgres: Store) -> None:
    await make_ahead(postgres, LATER_MS)
    worker = await a_worker(postgres)
    over, waits = a_run_of(LATER_MS), a_run_of(LATER_MS + WEEK_MS)
    scheduled = a_run(id=format_id("run", LATER_MS + WEEK_MS, 2), scheduled_ms=LATER_MS * 2)
    for run in (over, waits, scheduled):
        await postgres.create(run)
    taken = {claim.run_id: claim for claim in await claims(postgres, worker)}
    await postgres.append(a_finish(taken[over.id]))
    await postgres.append(a_park(taken[waits.id]))
    past = await partitions.past(postgres, LATER_MS + 3 * WEEK_MS)
    await postgres.write(remove_runs(TENANT, [over.id], past=past))
    assert len(await postgres.read(log.read_all(TENANT, over.id))) == 3

    dropped = await drop_before(postgres, LATER_MS + 3 * WEEK_MS)

    assert dropped.gone[-2:] == ("events_20991123", "events_20991207")
    assert dropped.kept == {"events_20991130": (waits.id, scheduled.id)}
    assert await postgres.read(log.read_all(TENANT, over.id)) == []
    assert len(await events(postgres, waits.id)) == 3
    assert (await names(postgres))[:2] == ["events_20991130", "events_20991214"]


async def test_a_week_that_is_not_quite_past_is_kept(postgres: Store) -> None:
    await make_ahead(postgres, LATER_MS)

    dropped = await drop_before(postgres, LATER_MS + WEEK_MS - 1)

    assert "events_20991123" in await names(postgres)
    assert "events_20991123" not in dropped.gone


async def test_dropping_does_not_wait_for_readers(postgres: Store, beside: Connection) -> None:
    beside.execute("LOCK TABLE events IN ACCESS SHARE MODE")

    with pytest.raises(DatabaseUnavailableError, match="lock timeout"):
        await drop_before(postgres, LATER_MS)


def test_what_is_missing_is_what_no_partition_reaches_into() -> None:
    found = [Partition("before", "", format_id("run", NOW_MS + WEEK_MS, 0)[:16])]

    assert missing([], NOW_MS) == []
    assert [part.name for part in missing(found, NOW_MS)][:2] == [
        "events_20261130",
        "events_20261207",
    ]
