"""The eraser: erases users, and what is left of all that was erased, in every process.

What is to be done stands in the database, and each turn does a bounded part of it: where a process
dies, another one goes on. One whose database is away lets go of what it took once that is back.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import orjson

from milepost.core.errors import MilepostError
from milepost.providers.cache import ReplyCache
from milepost.runtime.cancelling import Cancellation, cancel_run
from milepost.runtime.journal import Ports
from milepost.store import erasure, erasures, leftovers
from milepost.store.engine import DatabaseUnavailableError
from milepost.store.erasure import Gone
from milepost.store.erasures import ErasureRow
from milepost.store.leftovers import Leftover
from milepost.store.records import AuditRow
from milepost.store.removals import close_sessions
from milepost.store.work import Work
from milepost.telemetry.logs import logger
from milepost.worker.turns import take_turn

ERASE_S = 0.5
TIDY_S = 1.0
FORGET_S = 5.0
STEPS_MAX = 1_000
TIDIES_MAX = 100
SOON_MS = 1_000
LATER_MS = 60_000
REMOVAL_S = 5.0

BY = "erasure"


class Eraser:
    """Runs beside whatever else a process does; two of them do no harm to one another."""

    def __init__(self, ports: Ports, cache: ReplyCache) -> None:
        self._ports = ports
        self._cache = cache
        self._log = logger("eraser")

    async def run(self) -> None:
        """Do what is to be done until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self.erase, ERASE_S))
            tasks.create_task(self._repeat(self.tidy, TIDY_S))
            tasks.create_task(self._repeat(self.forget, FORGET_S))

    # --- Users ---

    async def erase(self) -> None:
        """Go on with an erasure that nobody is at, until it has to wait or is done."""
        row = taken = await self._ports.store.write(erasures.take())
        try:
            for _ in range(STEPS_MAX):
                if row is None:
                    return
                row = await self._advance(row)
        except DatabaseUnavailableError:
            if taken is not None:
                await self._let_go(taken)
            raise
        if row is not None:
            await self._let_go(row)  # Others have their turn first, and then it goes on.

    async def _let_go(self, row: ErasureRow) -> None:
        """Let anybody go on as soon as the database is back: how far it came, that alone knows."""
        store = self._ports.store
        await store.outlasting(lambda: store.write(erasures.let_go(row)))()

    async def _advance(self, row: ErasureRow) -> ErasureRow | None:
        """Take a step; return how the erasure stands then, None if it is not to go on at once."""
        if row.stage == erasure.FILE_STAGE:
            await self._finish(row)
            return None
        done = await self._gone_on(row)
        await self._ports.hub.erase(done.step.runs)
        for run_id in done.step.busy:
            wanted = Cancellation(row.tenant, run_id, BY, "its user is being erased")
            await take_turn(cancel_run(self._ports, wanted), False, self._log)
        return None if done.step.idle else done.row

    async def _gone_on(self, row: ErasureRow) -> Gone:
        """Take a step in the database; where its answer is lost, nobody hears of its runs again."""
        reached: list[str] = []

        def step() -> Work[Gone]:
            done = yield from erasure.go_on(row, self._ports.clock())
            reached.extend(done.step.runs)
            return done

        try:
            return await self._ports.store.write(step())
        except DatabaseUnavailableError:
            await self._ports.hub.erase(reached)  # They are over, and go in any case.
            raise

    async def _finish(self, row: ErasureRow) -> None:
        """Leave nothing in caches and files, not even the name, and write down that it is done."""
        ports = self._ports
        await self._cache.forget(row.owner)
        await ports.store.write(erasures.forget_user(row))
        if not await ports.store.engine.scrub():
            await ports.store.write(erasures.advance(row, held_ms=erasure.IDLE_MS))
            return
        act = AuditRow(
            ports.new_id("aud"),
            row.tenant,
            row.asked_by,
            "user.erased",
            row.id,
            orjson.dumps(row.counted).decode(),
            ports.clock(),
        )
        if await ports.store.write(erasures.end(row, act)):
            self._log.info("a user was erased", erasure=row.id, **row.counted)

    async def forget(self) -> None:
        """Forget here what is kept for users who are being erased, or were just now."""
        for owner in await self._ports.store.read(erasures.owners()):
            await self._cache.forget(owner)

    # --- What is left ---

    async def tidy(self) -> None:
        """Remove what is left of what was erased."""
        for _ in range(TIDIES_MAX):
            left = await self._ports.store.read(leftovers.oldest())
            for each in left:
                await take_turn(self._remove(each), None, self._log)
            if len(left) < leftovers.TAKE_MAX:
                return

    async def _remove(self, left: Leftover) -> None:
        try:
            gone = await self._removed(left)
        except DatabaseUnavailableError:  # It may be slow with this one: others go first.
            await self._ports.store.write(leftovers.postpone(left, SOON_MS))
            raise
        except (MilepostError, OSError):
            await self._ports.store.write(leftovers.postpone(left, LATER_MS))
            raise
        store = self._ports.store
        await store.write(leftovers.drop(left) if gone else leftovers.postpone(left, LATER_MS))

    async def _removed(self, left: Leftover) -> bool:
        """Remove it if it may be; say whether nothing has to be done any more."""
        match left.what:
            case leftovers.SESSION:
                await self._ports.store.write(close_sessions(left.tenant, [left.session_id]))
                return True
            case leftovers.FOLDER:
                await self._ports.shelf.clear(left.tenant, left.session_id)
                return True
            case sha256:
                return await self._content_removed(left, sha256)

    async def _content_removed(self, left: Leftover, sha256: str) -> bool:
        """Remove a content unless it is needed; say whether nothing has to be done any more.

        Its file goes before the session's lock is let go: a run that began in between, and left the
        same content, would find it there.
        """
        async with self._ports.store.transaction(REMOVAL_S) as opened:
            verdict = await opened.work(leftovers.give_up_content(left))
            if verdict == "remove":
                await self._ports.shelf.remove(left.tenant, left.session_id, sha256)
            await opened.commit()
        return verdict != "later"

    async def _repeat(self, turn: Callable[[], Awaitable[object]], every_s: float) -> None:
        while True:
            await take_turn(turn(), None, self._log)
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
