"""Group commit: what gathered while one transaction committed goes out in the next.

Nothing lingers to gather more: waiting 5 ms for company costs a third of the throughput.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from milepost.store.cancellation import heed_cancellation
from milepost.store.engine import DatabaseUnavailableError, Engine, Told, nobody
from milepost.store.work import Work

In = TypeVar("In")
Out = TypeVar("Out")

GROUP_MAX = 64
AWAY_MAX = 2


class Lane(Generic[In, Out]):
    """A queue of items of one kind, written a group at a time.

    `batch` makes the work for a group, `keys` what two items of one group must not share. A group
    that fails is written again one by one, so that each learns its own fate. `told` is whom the
    store tells whether the database did what it was asked.
    """

    def __init__(
        self,
        engine: Engine,
        batch: Callable[[Sequence[In]], Work[list[Out]]],
        keys: Callable[[In], Sequence[object]],
        told: Told = nobody,
    ) -> None:
        self._engine = engine
        self._batch = batch
        self._keys = keys
        self._told = told
        self._waiting: deque[tuple[In, asyncio.Future[Out]]] = deque()
        self._some = asyncio.Event()

    async def submit(self, item: In) -> Out:
        """Return what the item's group gave for it, once that is durable."""
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._some.set()
        return await future

    async def run(self) -> None:
        """Write groups until cancelled; who still waits then is told, the group in hand too."""
        group: list[tuple[In, asyncio.Future[Out]]] = []
        try:
            while True:
                await self._some.wait()
                while self._waiting:
                    group = self._gather()
                    await self._write(group)
                self._some.clear()
        finally:
            for _, future in (*group, *self._waiting):
                future.cancel()

    def _gather(self) -> list[tuple[In, "asyncio.Future[Out]"]]:
        """Take the next group, in order; an item that shares a key with one of it waits."""
        group: list[tuple[In, asyncio.Future[Out]]] = []
        taken: set[object] = set()
        left: deque[tuple[In, asyncio.Future[Out]]] = deque()
        while self._waiting and len(group) < GROUP_MAX:
            item, future = self._waiting.popleft()
            keys = self._keys(item)
            if taken.isdisjoint(keys):
                group.append((item, future))
            else:
                left.append((item, future))
            taken.update(keys)
        self._waiting.extendleft(reversed(left))
        return group

    async def _write(self, group: list[tuple[In, "asyncio.Future[Out]"]]) -> None:
        try:
            work = self._batch([item for item, _ in group])
            await self._engine.write_each(work, [future for _, future in group])
            self._told(None)
        except Exception as error:
            heed_cancellation()
            if isinstance(error, DatabaseUnavailableError):
                self._told(error)
            if len(group) > 1:
                await self._write_each(group)
            else:
                _fail(group[0][1], error)

    async def _write_each(self, group: list[tuple[In, "asyncio.Future[Out]"]]) -> None:
        """Write the group one by one, until it is clear that the database is away.

        One item can be to blame for one answer that does not come, not for several in a row.
        """
        away = 0
        for number, (item, future) in enumerate(group):
            await self._write([(item, future)])
            error = _absence(future)
            away = away + 1 if error else 0
            if away == AWAY_MAX:
                for _, left in group[number + 1 :]:
                    _fail(left, DatabaseUnavailableError(str(error)))
                return


def _absence(future: "asyncio.Future[Out]") -> DatabaseUnavailableError | None:
    error = None if future.cancelled() else future.exception()
    return error if isinstance(error, DatabaseUnavailableError) else None


def _fail(future: "asyncio.Future[Out]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
