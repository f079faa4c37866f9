"""Postgres over psycopg: statements that do not depend on one another share a round trip."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from milepost.core.errors import OverloadedError
from milepost.store.cancellation import heed_cancellation, told_to_stop
from milepost.store.dialect import DialectName
from milepost.store.engine import (
    CollisionError,
    DatabaseRefusedError,
    DatabaseUnavailableError,
    tell_each,
)
from milepost.store.hurry import hurrying
from milepost.store.postgres_pipeline import Written, exchange
from milepost.store.postgres_pool import HotPool
from milepost.store.postgres_session import Connection, claim, first_statements, parameters
from milepost.store.transaction import OpenTransaction
from milepost.store.transaction_postgres import PostgresTransaction
from milepost.store.work import Call, Work

T = TypeVar("T")

POOL_MIN = 2
POOL_MAX = 10
POOL_WAIT_S = 10.0
# Before each attempt to connect the pool waits twice as long as before the last: after an outage of
# minutes it would stay away for minutes more, in a process whose lease, on a connection of its own,
# stands again at once. So it is to give up soon, and to begin anew.
RECONNECT_S = 4.0
ASK_S = 0.001
TRANSACTIONS_MAX = 4
# To say no costs a millisecond, too: what comes back each second would leave no time for more.
CROWD_S = 5

# A server that refuses writes, is full, starts or shuts down answers with one of these, too.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
_LIMIT_EXCEEDED = "54"  # the class of what is too large or too complex, today and tomorrow

_BEGIN: Written = ("BEGIN", {})
_COMMIT: Written = ("COMMIT", {})
_HURRY = hurrying().rendered("postgresql")


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into the store's."""
    try:
        yield
    except psycopg.errors.UniqueViolation as error:
        raise CollisionError(f"the database refused a row: {error.diag.message_detail}") from error
    except psycopg.Error as error:
        if isinstance(error, _AWAY) and (error.sqlstate or "")[:2] != _LIMIT_EXCEEDED:
            raise DatabaseUnavailableError(f"Postgres: {error}") from error
        raise DatabaseRefusedError(f"Postgres: {error}") from error


async def run(connection: Connection, work: Work[T], before: Sequence[Written] = ()) -> T:
    """Drive work to its end on this connection; `before` goes out with its first statement."""
    sent: Any = None
    while True:
        try:
            asked = work.send(sent)
        except StopIteration as finished:
            result: T = finished.value
            return result
        calls = (asked,) if isinstance(asked, Call) else asked
        written = [call.rendered("postgresql") for call in calls]
        answers = (await exchange(connection, [*before, *written]))[len(before) :]
        before = ()
        sent = answers[0] if isinstance(asked, Call) else answers


def _first(connection: Connection) -> Sequence[Written]:
    return [(text, {}) for text in first_statements(is_ours=connection.is_ours)]


class PostgresEngine:
    """A pool of connections. `url` is what libpq takes: `postgresql://...`.

    Where `waiting_max` others wait for one already, work is refused with `OverloadedError`.
    """

    dialect: DialectName = "postgresql"

    def __init__(
        self, url: str, *, pool_max: int = POOL_MAX, waiting_max: int | None = None
    ) -> None:
        options = parameters(url)
        conninfo = options.pop("conninfo")
        # Each keeps a connection to itself, and others must still find one.
        self.transactions_max = max(1, min(TRANSACTIONS_MAX, pool_max // 2))
        self._pool = HotPool(
            conninfo,
            connection_class=Connection,
            kwargs=options,
            configure=claim,
            min_size=min(POOL_MIN, pool_max),
            max_size=pool_max,
            timeout=POOL_WAIT_S,
            reconnect_timeout=RECONNECT_S,
            reconnect_failed=self._begin_anew,
            open=False,
        )
        self._waiting_max = waiting_max
        self._waiting = 0

    async def open(self) -> None:
        """Connect; raise `DatabaseUnavailableError` if that cannot be done."""
        with translated():
            await self._pool.open(wait=True, timeout=POOL_WAIT_S)

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        with translated():
            async with self._connection() as connection:
                return await self._run(connection, work)

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        return await self._write(work)

    async def _write(self, work: Work[T], *settings: Written) -> T:
        with translated():
            async with self._connection() as connection:
                begin = [_BEGIN, *_first(connection), *settings]
                result = await self._run(connection, work, begin)
                await exchange(connection, (_COMMIT,))
                return result

    async def write_each(self, work: Work[list[T]], told: Sequence["asyncio.Future[T]"]) -> None:
        """Do work in one transaction, and tell each its part of the result.

        Whoever waits for a lock of one keeps all of his own group waiting. So who is frozen with
        locks of a whole group loses them soon.
        """
        tell_each(told, await self._write(work, _HURRY))

    @asynccontextmanager
    async def transaction(self, limit_s: float) -> AsyncIterator[OpenTransaction]:
        """Give a transaction on a connection of the pool."""
        with translated():
            async with self._connection() as connection:
                opened = PostgresTransaction(connection, limit_s, run, translated)
                try:
                    await opened.begin()
                    yield opened
                finally:
                    await opened.leave()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """Give a connection.

        The pool waits with `asyncio.wait_for`, which before Python 3.12 drops a cancellation that
        comes as the wait is over (python/cpython issue 86296): a loop of turns would never end.
        """
        known = told_to_stop()
        connection = await self._wait_for_connection()
        try:
            heed_cancellation(known)
            async with connection:
                yield connection
        finally:
            await self._pool.putconn(connection)

    async def _wait_for_connection(self) -> Connection:
        """Return a connection, to be put back.

        Whoever waits is counted here: the pool counts those who gave up, too, until a connection
        comes, and makes none for one whom it refuses. After an outage it would refuse for ever.
        """
        if self._waiting_max is not None and self._waiting >= self._waiting_max:
            told = "too many wait for the database here; come back"
            raise OverloadedError(told, retry_after_s=CROWD_S)
        self._waiting += 1
        try:
            return await self._pool.getconn()
        finally:
            self._waiting -= 1

    async def _begin_anew(self, pool: AsyncConnectionPool[Connection]) -> None:
        """Have the pool connect for those who wait: it begins with that only when it is asked."""
        if self._waiting:
            with suppress(PoolTimeout):
                await pool.putconn(await pool.getconn(timeout=ASK_S))

    async def _run(
        self, connection: Connection, work: Work[T], before: Sequence[Written] = ()
    ) -> T:
        try:
            return await run(connection, work, before)
        except psycopg.errors.ReadOnlySqlTransaction:
            await connection.close()  # on a standby, where it would stay: the next finds another
            raise
        except psycopg.OperationalError:
            # What broke this one has broken its idle fellows, too; a silent one tells nobody so.
            if connection.is_silent:
                await self._pool.drain()
            elif connection.broken:
                await self._pool.check()
            raise

    async def scrub(self) -> bool:
        """Leave it to the vacuum."""
        return True

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()
