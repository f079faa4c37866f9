"""Transactional calls: what a tool writes in the run's database commits with its completion."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Protocol

from milepost.core.effects import CallTool
from milepost.core.errors import ToolError
from milepost.core.events import Custom, Event, Failure, ToolCallCompleted, ToolCallFailed
from milepost.core.json import Json, clean_text
from milepost.runtime.journal import Journal, folded
from milepost.store.records import Append
from milepost.tools import ToolContext
from milepost.tools.artifacts import Artifact, collecting
from milepost.tools.emitting import Emitter
from milepost.tools.pending import Stash, Stashed, stashing
from milepost.tools.transaction import Transaction

NOT_COMMITTED = "not_committed"


class Opened(Protocol):
    """A transaction that is open."""

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run a statement of a tool's. Raises `ToolError`."""

    async def append(self, item: Append) -> tuple[int, tuple[str, ...]]:
        """Write an iteration in it, and commit.

        Raises `FencedError`, and `ToolError` where nothing of the transaction was done.
        """


class Transactions(Protocol):
    """Opens transactions in the database that runs are kept in."""

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Wait until one may be opened without holding up all others."""

    def open(self, limit_s: float) -> AbstractAsyncContextManager[Opened]:
        """Open one for `limit_s`, and a moment. Raises `ToolError` where that cannot be done."""


Run = Callable[[ToolContext], Awaitable[list[Event]]]
"""Runs the tool with this context; returns its result, or why there is none."""

Show = Callable[[list[Event]], Awaitable[Iterable[Event]]]
"""Returns the events of a call as they are to be written down."""


class Transacting:
    """The transactional calls of one run, under one claim.

    Locks are taken in one order: a turn, the journal, the database. Whoever drives the run writes
    under the journal's lock, too, so that neither waits for what the other holds.
    """

    def __init__(self, journal: Journal, transactions: Transactions) -> None:
        self._journal = journal
        self._transactions = transactions

    async def call(
        self, effect: CallTool, context: ToolContext, limit_s: float, run: Run, show: Show
    ) -> list[Event]:
        """Run the tool in a transaction; return what there is to write down still.

        That is nothing once it is committed, and else why nothing of it was done.
        """
        async with self._transactions.turn(), self._journal.lock:
            try:
                async with self._transactions.open(limit_s) as opened:
                    return await self._within(opened, effect, context, run, show)
            except ToolError as error:
                why = clean_text(f"{effect.call.name} failed: {error}")
                failure = Failure(NOT_COMMITTED, why, retryable=error.retryable)
                return [ToolCallFailed(effect.call.id, failure)]

    async def _within(
        self, opened: Opened, effect: CallTool, context: ToolContext, run: Run, show: Show
    ) -> list[Event]:
        told: list[Event] = []

        def tell(name: str, value: Json) -> None:
            told.append(Custom(effect.call.id, name, value))

        emitter = Emitter(tell)
        tx = Transaction(opened.execute, asyncio.get_running_loop())
        try:
            with collecting(_refuse_artifact) as emissions, stashing(_no_stash()) as stash:
                events = await run(
                    replace(
                        context,
                        tx=tx,
                        emit=emitter,
                        emit_artifact=emissions.emit,
                        stash_pending=stash.put,
                    )
                )
        finally:
            emitter.close()
            tx.close()
        if not any(isinstance(event, ToolCallCompleted) for event in events):
            return events
        shown = [*(await show([*told, *events]))]
        try:
            await self._commit(opened, shown)
        except ToolError as error:
            raise tx.told(error) from error
        return []

    async def _commit(self, opened: Opened, events: Sequence[Event]) -> None:
        """Write the events and commit. Who is cancelled meanwhile learns first what came of it."""
        journal = self._journal
        happened = journal.stamp(*events)
        state = folded(journal.state, happened)
        writing = asyncio.ensure_future(journal.append(happened, state=state, write=opened.append))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})
            if not writing.cancelled():
                writing.exception()  # The cancellation goes first.
            raise


def _refuse_artifact(_: Artifact, __: bytes | None) -> None:
    raise ToolError(
        "a transactional tool leaves no artifacts: their contents are kept in transactions of their"
        " own; emit them in another tool"
    )


def _no_stash() -> Stash:
    return Stash(room=True, pass_on=_refuse_stash)


def _refuse_stash(_: Stashed) -> None:
    raise ToolError(
        "a transactional tool puts nothing off: what waits is kept in a transaction of its own; put"
        " it off in another tool"
    )
