"""SQLite: one writer thread that commits what gathered together, and a few readers.

A deferred transaction that reads first and then writes fails at once under another writer, whatever
the busy timeout; so all writes go through one connection, and each begins IMMEDIATE.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from milepost.core.errors import ConfigurationError
from milepost.store.dialect import DialectName
from milepost.store.engine import (
    CollisionError,
    DatabaseRefusedError,
    DatabaseUnavailableError,
    tell_each,
)
from milepost.store.transaction import OpenTransaction
from milepost.store.transaction_sqlite import SqliteTransaction
from milepost.store.work import Call, Rows, Work

T = TypeVar("T")

READERS = 4
# They look for single rows; with the writer's share each, a process would grow for hours.
READER_CACHE_KB = 2_048
BUSY_TIMEOUT_MS = 30_000
SCRUB_TIMEOUT_MS = 100
GROUP_MAX = 64
WAL_RETRY_S = 0.01
_KEY_EXISTS = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_ROWID,
    }
)

PRAGMAS = (
    f"busy_timeout = {BUSY_TIMEOUT_MS}",
    "synchronous = FULL",  # NORMAL forgets the last commits on a power cut
    "foreign_keys = ON",
    "secure_delete = ON",  # what a tenant erases is gone from the file, too
    "cache_size = -16384",
    "temp_store = MEMORY",  # what a savepoint may have to bring back is no matter for a file
)


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection that leaves transactions to us."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()
        _use_wal(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if not _is_read_only(error):
            raise
        raise ConfigurationError(
            f"{path} can be read and not written, or its folder; let this user write to both, or"
            " name another database with --database-url"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _is_read_only(error: sqlite3.Error) -> bool:
    """Say so of all its kinds: what makes them more exact is in the higher bytes."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. Two that switch at once collide, and no busy timeout applies then."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            if _is_read_only(error) or time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_S)
        else:
            return


def run(connection: sqlite3.Connection, work: Work[T]) -> T:
    """Drive work to its end on this connection; raise what it raises."""
    sent: Any = None
    while True:
        try:
            asked = work.send(sent)
        except StopIteration as finished:
            result: T = finished.value
            return result
        if isinstance(asked, Call):
            sent = _execute(connection, asked)
        else:
            sent = [_execute(connection, call) for call in asked]


def transact(connection: sqlite3.Connection, work: Work[T]) -> T:
    """Drive work in a transaction of its own."""
    with translated():
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = run(connection, work)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result


class translated:  # noqa: N801 - reads as a statement
    """Turn the driver's errors into the store's."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        match error:
            case sqlite3.IntegrityError() if error.sqlite_errorcode in _KEY_EXISTS:
                raise CollisionError(f"the database refused a row: {error}") from error
            case sqlite3.OperationalError() | sqlite3.InternalError():
                raise DatabaseUnavailableError(f"SQLite: {error}") from error
            case _ if type(error) is sqlite3.DatabaseError:  # the file is damaged, or is none
                raise DatabaseUnavailableError(f"SQLite: {error}") from error
            case sqlite3.Error():
                raise DatabaseRefusedError(f"SQLite: {error}") from error
            case _:
                return


def _execute(connection: sqlite3.Connection, call: Call) -> Rows:
    text, parameters = call.rendered("sqlite")
    cursor = connection.execute(text, parameters)
    rows = cursor.fetchall()
    cursor.close()
    return rows


class _Job:
    """A piece of work and where its result goes, and each of its parts."""

    __slots__ = ("error", "future", "parts", "result", "work")

    def __init__(
        self,
        work: Work[Any],
        future: "asyncio.Future[Any]",
        parts: "Sequence[asyncio.Future[Any]]" = (),
    ) -> None:
        self.work = work
        self.future = future
        self.parts = parts
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
            return
        try:
            if self.parts:
                tell_each(self.parts, self.result)
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.result)


class _Scrub:
    """Writes the journal back into the file and empties it, unless somebody reads from it."""

    def __init__(self, future: "asyncio.Future[bool]") -> None:
        self._future = future

    def serve(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute(f"PRAGMA busy_timeout = {SCRUB_TIMEOUT_MS}").close()
            cursor = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            ((busy, *_),) = cursor.fetchall()
            cursor.close()
        except sqlite3.Error:
            busy = 1
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").close()
        loop = self._future.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._tell, not busy)

    def _tell(self, done: bool) -> None:
        if not self._future.done():
            self._future.set_result(done)


_Aside = SqliteTransaction | _Scrub
"""What the writer does by itself, between two commits."""


class SqliteEngine:
    """One file, one process. `path` is the database file."""

    dialect: DialectName = "sqlite"
    transactions_max = 1

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed = False
        self._jobs: queue.SimpleQueue[_Job | _Aside | None] = queue.SimpleQueue()
        with translated():
            connection = connect(path)  # here, so that it is the caller who learns if it fails
        self._writer = threading.Thread(
            target=self._write_all, args=(connection,), name="sqlite-writer", daemon=True
        )
        self._writer.start()
        self._local = threading.local()
        self._reading: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(READERS, "sqlite-reader")

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing, in a reader's thread."""
        self._require_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def write(self, work: Work[T]) -> T:
        """Do work in the writer's next transaction."""
        self._require_open()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, future))
        return await future

    async def write_each(self, work: Work[list[T]], told: Sequence["asyncio.Future[T]"]) -> None:
        """Do work in the writer's next transaction, and tell each its part of the result."""
        self._require_open()
        future: asyncio.Future[list[T]] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(work, future, told))
        await future

    @contextlib.asynccontextmanager
    async def transaction(self, limit_s: float) -> AsyncIterator[OpenTransaction]:
        """Give a transaction in which the writer does nothing else."""
        self._require_open()
        opened = SqliteTransaction(limit_s, run, translated)
        self._jobs.put(opened)
        try:
            await opened.begin()
            yield opened
        finally:
            opened.leave()

    async def scrub(self) -> bool:
        """Write the journal back and empty it, between two of the writer's transactions."""
        self._require_open()
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Scrub(future))
        return await future

    async def close(self) -> None:
        """Finish what was handed in, then close."""
        self._closed = True
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._writer.join)
        self._readers.shutdown()
        for connection in self._reading:
            connection.close()

    def _require_open(self) -> None:
        if self._closed:
            raise DatabaseUnavailableError("SQLite: the file was closed; the process is stopping")

    def _read(self, work: Work[T]) -> T:
        with translated():
            return run(self._reader(), work)

    def _reader(self) -> sqlite3.Connection:
        """Return the thread's connection, opened when it is first needed."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path)
            connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KB}").close()
            self._reading.append(connection)
        return connection

    def _write_all(self, connection: sqlite3.Connection) -> None:
        while (job := self._jobs.get()) is not None:
            behind: list[_Aside | None] = []
            if isinstance(job, _Job):
                jobs, behind = self._gather(job)
                self._commit(connection, jobs)
                _settle(jobs)
            else:
                behind.append(job)
            for other in behind:
                if other is None:
                    connection.close()
                    return
                other.serve(connection)
        connection.close()

    def _gather(self, first: _Job) -> tuple[list[_Job], list[_Aside | None]]:
        """Take what piled up during the last commit: waiting for more would only cost time.

        Also returned is what ended the pile: a transaction that stays open, or the engine's end.
        """
        jobs = [first]
        while len(jobs) < GROUP_MAX:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if not isinstance(job, _Job):
                return jobs, [job]
            jobs.append(job)
        return jobs, []

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Commit all in one transaction; what fails is undone alone."""
        if len(jobs) == 1:
            _commit_alone(connection, jobs[0])
            return
        try:
            with translated():
                connection.execute("BEGIN IMMEDIATE")
                for job in jobs:
                    _attempt(connection, job)
                connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # the thread must live to say so
                    connection.execute("ROLLBACK")
            for job in jobs:
                job.error = job.error or error


def _commit_alone(connection: sqlite3.Connection, job: _Job) -> None:
    """Commit one job: without a savepoint, each of whose two statements waits for the loop."""
    try:
        job.result = transact(connection, job.work)
    except Exception as error:
        job.error = error


def _attempt(connection: sqlite3.Connection, job: _Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        with translated():
            job.result = run(connection, job.work)
    except Exception as error:
        job.error = error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _settle(jobs: list[_Job]) -> None:
    """Tell the event loops, each once."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, theirs in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle_each, theirs)


def _settle_each(jobs: list[_Job]) -> None:
    for job in jobs:
        job.settle()
