"""Sessions of Postgres: what is set in those that are ours, and what is done without in others.

Behind a pooler that lends a session for one transaction, as PgBouncer does, whatever is left in a
session is found by strangers, and missing in the next transaction. Such a pooler answers for itself
when a connection is opened, so the process that answers later is another one: that gives it away.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus

from milepost.store.prepared import Prepared

CONNECT_TIMEOUT_S = 5
TCP_USER_TIMEOUT_MS = 15_000
KEEPALIVE_S = 5
LOCK_TIMEOUT = "3s"
# The server has said by then that it is too late: what does not come until now never will. The
# keepalives do not tell so where a proxy lives and the server behind it is gone.
ANSWER_S = 60.0
THREAD_ANSWER_S = 10.0
# How often a wait looks whether it was interrupted, as the driver's own do.
_LOOK_S = 0.1

T = TypeVar("T")

_TIMEOUTS = {
    # A frozen client must not hold its locks for ever, nor wait for another's.
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": LOCK_TIMEOUT,
    "statement_timeout": "30s",
}
_PLANNING = {
    # Every statement has its index, and a plan from when a table was small is kept while the table
    # grows: one that reads all of it must not be chosen then (measured: a run took 150 ms instead
    # of 6 after 100,000 others).
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Where there is no other way, versions before 18 reckon with a cost of ten thousand million for
    # it: enough to have the statement compiled, which takes a hundred times what it does.
    "jit": "off",
}


class _Pipeline(psycopg.AsyncPipeline):
    """One that ends with a Sync, and nothing behind it.

    The driver's sends a Flush after that where answers are still to come. The server takes it for a
    sign of life that needs no answer, and stops its clock for idle transactions (found in Postgres
    18's tcop/postgres.c, and by freezing a client): who is frozen would hold its locks for ever.
    """

    def _exit_gen(self) -> PQGen[None]:
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            # Of a connection that is gone the driver would wait for an answer by the number that
            # its socket had, which may be another connection's by now: that one would wait, too.
            if self.pgconn.status != ConnStatus.BAD:
                yield from self._fetch_gen(flush=False)


class Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """One for the event loop, which hangs up on a server that does not answer within `answer_s`.

    Nothing is `prepared` unless the session `is_ours`: what another one keeps is a stranger's, too.
    It is `idle_since_s`, by the monotonic clock, while nobody uses it.
    """

    answer_s = ANSWER_S
    is_silent = False
    is_ours = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prepared = Prepared()
        self.idle_since_s = time.monotonic()

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        """Have statements share a round trip."""
        async with super().pipeline() as pipeline:
            pipeline.__class__ = _Pipeline  # The driver lets nobody choose.
            yield pipeline

    async def wait(
        self,
        gen: PQGen[T],
        interval: float = _LOOK_S,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's
    ) -> T:
        """Wait for an answer, for `timeout` if the driver has a bound of its own."""
        limit_s = self.answer_s if timeout is None else timeout
        until_s = time.monotonic() + limit_s
        try:
            return await super().wait(gen, interval, limit_s)
        except psycopg.OperationalError:
            if timeout is None and time.monotonic() >= until_s:
                self.is_silent = True
                self.pgconn.finish()
            raise


class ThreadConnection(psycopg.Connection[tuple[Any, ...]]):
    """One for a thread, whose work is short: it hangs up on a silent server, too."""

    def wait(self, gen: PQGen[T], interval: float = _LOOK_S, timeout: float | None = None) -> T:
        """Wait for an answer, for `timeout` if the driver has a bound of its own."""
        limit_s = THREAD_ANSWER_S if timeout is None else timeout
        until_s = time.monotonic() + limit_s
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.OperationalError:
            if timeout is None and time.monotonic() >= until_s:
                self.pgconn.finish()
            raise


def _set(settings: Mapping[str, str], *, local: bool) -> str:
    each = (f"set_config('{name}', '{to}', {local})" for name, to in settings.items())
    return f"SELECT {', '.join(each)}"


_CLAIM = f"{_set(_TIMEOUTS | _PLANNING, local=False)} WHERE pg_backend_pid() = %s".encode()
_SET_TIMEOUTS = _set(_TIMEOUTS, local=True)


def parameters(url: str) -> dict[str, Any]:
    """Return what a connection to `url` is opened with, in the event loop and in threads alike.

    Nothing here is for the session: PgBouncer refuses to pass it on.
    """
    return {
        "conninfo": url,
        "autocommit": True,  # BEGIN and COMMIT are ours, so that they can share round trips
        "connect_timeout": CONNECT_TIMEOUT_S,
        "tcp_user_timeout": TCP_USER_TIMEOUT_MS,
        # Whoever only waits for an answer sends nothing, and the time-out above never begins: of a
        # server whose machine is gone nobody would know for the two hours of the kernel's default.
        "keepalives_idle": KEEPALIVE_S,
        "keepalives_interval": KEEPALIVE_S,
        "keepalives_count": 3,
        "application_name": "milepost",
    }


async def claim(connection: Connection) -> None:
    """Take the session for ours, or rely on nothing that would have to stay in it."""
    # When the driver rolls back, it gives up all that is prepared: so it is to prepare nothing.
    connection.prepare_threshold = None
    answer = await connection.execute(_CLAIM, [connection.info.backend_pid])
    connection.is_ours = bool(await answer.fetchall())


def connect(url: str) -> ThreadConnection:
    """Open a connection for a thread, with a session that is ours if there is such a one."""
    connection = ThreadConnection.connect(**parameters(url))
    try:
        answer = connection.execute(_CLAIM, [connection.info.backend_pid], prepare=False)
        if not answer.fetchall():
            connection.prepare_threshold = None
    except BaseException:
        connection.close()
        raise
    return connection


def first_statements(*, is_ours: bool) -> tuple[str, ...]:
    """Return what every transaction begins with, behind its BEGIN.

    Where the session is not ours, that is the time-outs. Plans need no setting there: none is kept,
    since nothing is prepared.
    """
    return () if is_ours else (_SET_TIMEOUTS,)
