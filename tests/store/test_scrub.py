"""What was deleted leaves the journal of SQLite, and its file."""

from milepost.store import schema
from milepost.store.address import SqliteAddress
from milepost.store.engine import Engine
from milepost.store.engine_sqlite import connect
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.api.searching import database_files_with
from tests.store.conftest import opened, serving
from tests.store.making import a_run, finished

SAID = "Zanzibar9041"


def forgotten() -> Work[None]:
    yield Statement(schema.runs.delete())()


async def test_there_is_nothing_to_do_where_the_database_does_it_by_itself(engine: Engine) -> None:
    assert await engine.scrub() is True


async def test_the_journal_is_emptied(sqlite_address: SqliteAddress) -> None:
    url = f"sqlite:///{sqlite_address.path}"
    async with opened(sqlite_address) as engine, serving(Store(engine)) as store:
        await finished(store, a_run(metadata=SAID))
        await store.write(forgotten())
        before = database_files_with(url, SAID)

        done = await engine.scrub()

        assert done is True
        assert before == {"milepost.db-wal"}
        assert database_files_with(url, SAID) == set()


async def test_whoever_reads_is_not_waited_for_long(sqlite_address: SqliteAddress) -> None:
    async with opened(sqlite_address) as engine, serving(Store(engine)) as store:
        await finished(store)
        reader = connect(sqlite_address.path)
        reader.execute("BEGIN").close()
        reader.execute("SELECT count(*) FROM runs").fetchall()

        busy = await engine.scrub()
        await finished(store)
        reader.execute("ROLLBACK").close()
        reader.close()

        assert busy is False
        assert await engine.scrub() is True
