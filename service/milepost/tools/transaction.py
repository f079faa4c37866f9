"""The database transaction of a call: what a tool writes there is there with its result, or not."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from milepost.core.errors import ToolError

Row = dict[str, Any]
Execute = Callable[[str, Mapping[str, Any]], Awaitable[list[Row]]]

TIMEOUT_S = 5.0
"""How long a transactional tool has unless it says otherwise: others wait while it writes."""
TIMEOUT_S_MAX = 10.0

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Transaction:
    """Runs SQL in the run's own database, together with the event that the call has completed.

    Each statement is one; its parameters stand in it as `:name`, so that one text does for SQLite
    and for Postgres. Beginning, committing and rolling back are not for the tool: it commits when
    the tool returns and rolls back when it raises. `loop` is where `execute` has to run.
    """

    def __init__(self, execute: Execute, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._execute = execute
        self._loop = loop
        self._over = False
        self._hide: Callable[[str], str] = _as_it_is

    async def execute(self, sql: str, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """Run a statement; return its rows by the names of their columns.

        Raises ToolError for what the database refuses, and then the whole call fails.
        """
        if self._over:
            raise ToolError("the call's transaction is over; nothing more can be written in it")
        return await self._execute(sql, dict(parameters))

    def execute_blocking(self, sql: str, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """Do the same in a synchronous tool, whose thread waits meanwhile."""
        if self._loop is None:
            raise ToolError(_REMEDY)
        if _runs_here(self._loop):
            raise ToolError(
                "execute_blocking would stop the event loop that it waits for; write"
                " `await context.tx.execute(...)` in an asynchronous tool"
            )
        waiting = asyncio.run_coroutine_threadsafe(self.execute(sql, parameters), self._loop)
        return waiting.result(TIMEOUT_S_MAX * 2)

    def keep_to_itself(self, hide: Callable[[str], str]) -> None:
        """Have `hide` applied to what is told of it after the tool has returned."""
        self._hide = hide

    def told(self, error: ToolError) -> ToolError:
        """Return the error that it ended in as it may be told."""
        return ToolError(self._hide(str(error)), code=error.code, retryable=error.retryable)

    def close(self) -> None:
        """Run nothing more: the tool has returned, or its time is up."""
        self._over = True


def _as_it_is(text: str) -> str:
    return text


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _refuse(_: str, __: Mapping[str, Any]) -> list[Row]:
    raise ToolError(_REMEDY)


_REMEDY = (
    "this call has no transaction: declare the tool with effect='transactional', and have the"
    " service run it"
)
NO_TRANSACTION = Transaction(_refuse)
"""What there is where a tool has none: it says how to get one."""
