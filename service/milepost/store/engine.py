"""What a database is to the rest of the store: a place where work is done."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from milepost.core.errors import MilepostError, UnavailableError
from milepost.store.dialect import DialectName
from milepost.store.transaction import OpenTransaction
from milepost.store.work import Work

T = TypeVar("T")


def tell_each(told: Sequence["asyncio.Future[T]"], results: Sequence[T]) -> None:
    """Give each its result, but for those who have given up. Raises before it has told anybody."""
    assert len(told) == len(results), "work gives a result for each"
    for future, result in zip(told, results, strict=True):
        if not future.done():
            future.set_result(result)


Told = Callable[[Exception | None], None]
"""Takes what became of something that the database was asked: None, or why it did not do it."""


def nobody(_: Exception | None) -> None:
    """Tell nobody: who asks notices by itself."""


class CollisionError(MilepostError):
    """A row with this key is there already; the transaction was rolled back."""

    code = "collision"


class DatabaseUnavailableError(UnavailableError):
    """The database did not answer, or the connection broke. A commit under way may have landed."""

    code = "database_unavailable"


class DatabaseRefusedError(MilepostError):
    """The database does not take this statement or this value, and will not take it again."""

    code = "database_refused"


class Engine(Protocol):
    """A database. Each piece of work has a connection for itself while it runs, and no longer."""

    @property
    def dialect(self) -> DialectName:
        """Say which of the two databases this is."""

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing, each statement on the newest state."""

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction: durable when this returns, without trace when it raises.

        Raises `CollisionError` when a key exists, `DatabaseUnavailableError` when the connection
        broke or the server takes no writes just now, and `DatabaseRefusedError` for what no
        repetition mends.
        """

    async def write_each(self, work: Work[list[T]], told: Sequence["asyncio.Future[T]"]) -> None:
        """Do work as `write` does, and tell each of these what it gave for it, as soon as may be.

        One who waits for such a future goes on a turn of the event loop sooner than one who would
        be told by the caller of `write`. Where this raises, nobody was told.
        """

    @property
    def transactions_max(self) -> int:
        """How many transactions may stay open at once without holding up all others."""

    def transaction(self, limit_s: float) -> AbstractAsyncContextManager[OpenTransaction]:
        """Give a transaction that stays open between statements, for a little more than `limit_s`.

        Whoever leaves it without a commit has it rolled back.
        """

    async def scrub(self) -> bool:
        """Leave nothing of what was deleted where only the database looks; say whether it could.

        SQLite keeps old pages in its journal until it is written back. What Postgres keeps is for
        its own vacuum to remove.
        """

    async def close(self) -> None:
        """Let go of every connection."""
