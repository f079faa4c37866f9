"""Transactions of a service's own database, for the tools that write there."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from milepost.core.errors import FencedError, MilepostError, ToolError
from milepost.runtime.transactions import Opened
from milepost.store import log
from milepost.store.engine import CollisionError, DatabaseRefusedError, DatabaseUnavailableError
from milepost.store.records import Append
from milepost.store.store import Store
from milepost.store.transaction import OpenTransaction, StatementRefusedError


class StoredTransactions:
    """As many at once as the database bears."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = asyncio.Semaphore(store.engine.transactions_max)

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait until one may be opened."""
        return self._turns

    @asynccontextmanager
    async def open(self, limit_s: float) -> AsyncIterator[Opened]:
        """Open one, once the database is there; what is left without a commit is rolled back."""
        begin = self._store.outlasting(self._begin)
        try:
            async with AsyncExitStack() as stack:
                yield _Opened(self._store, await begin(stack, limit_s))
        except (DatabaseUnavailableError, DatabaseRefusedError) as error:
            raise _nothing_done(error) from error

    async def _begin(self, stack: AsyncExitStack, limit_s: float) -> OpenTransaction:
        return await stack.enter_async_context(self._store.transaction(limit_s))


class _Opened:
    """One transaction; a statement that was refused is the end of it."""

    def __init__(self, store: Store, opened: OpenTransaction) -> None:
        self._store = store
        self._opened = opened
        self._refused: StatementRefusedError | None = None

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run a statement of a tool's."""
        self._require_sound()
        try:
            return await self._opened.execute(sql, parameters)
        except StatementRefusedError as error:
            self._refused = error
            raise ToolError(str(error)) from error

    async def append(self, item: Append) -> tuple[int, tuple[str, ...]]:
        """Write an iteration in it, and commit."""
        self._require_sound()
        try:
            [written] = await self._opened.work(log.append([item]))
        except CollisionError as error:
            raise FencedError(f"run {item.run_id} was taken over; stop writing to it") from error
        except StatementRefusedError as error:
            raise ToolError(str(error)) from error
        try:
            await self._opened.commit()
        except DatabaseUnavailableError as error:
            # The commit may have landed, and only the log can tell.
            if await self._store.landed(item):
                return item.inbox_seen, ()
            raise _nothing_done(error) from error
        except StatementRefusedError as error:
            raise ToolError(str(error)) from error
        return written

    def _require_sound(self) -> None:
        """A database that has refused a statement takes no more, and commits nothing."""
        if self._refused is not None:
            raise ToolError(
                f"{self._refused}; nothing of the transaction is done. Have no statement fail: say"
                " ON CONFLICT, or look first"
            )


def _nothing_done(error: MilepostError) -> ToolError:
    return ToolError(f"nothing was written: {error}", retryable=error.retryable)
