"""The net under the hints: looks at the logs that somebody listens to, all in one statement.

And in one more at the sessions in which somebody waits for the next run.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

from milepost.core.errors import MilepostError
from milepost.live.hub import LINK_BELL, Hub, session_bell
from milepost.store import log, session_order
from milepost.store.store import Store

BLIND_S = 1.0
HINTED_S = 5.0


class Poller:
    """Polls every second where hints do not come from other processes, every five where they do."""

    def __init__(
        self,
        store: Store,
        hub: Hub,
        hinted: Callable[[], bool],
        *,
        blind_s: float = BLIND_S,
        hinted_s: float = HINTED_S,
    ) -> None:
        self._store = store
        self._hub = hub
        self._hinted = hinted
        self._blind_s = blind_s
        self._hinted_s = hinted_s
        self._stood: dict[str, int] = {}

    async def run(self) -> None:
        """Poll until cancelled, and out of turn where hints begin to come, or no longer do."""
        with self._hub.bell(LINK_BELL) as changed:
            while True:
                every_s = self._hinted_s if self._hinted() else self._blind_s
                with suppress(TimeoutError):
                    jitter = random.uniform(0.8, 1.0)  # noqa: S311 - not all at the same moment
                    async with asyncio.timeout(every_s * jitter):
                        await changed.wait()
                changed.clear()
                with suppress(MilepostError):  # The database is away: the next turn looks again.
                    await self._look()
                    await self._look_at_sessions()

    async def _look_at_sessions(self) -> None:
        """Ring where something came since the last look, was erased, or nobody looked before."""
        watched = self._hub.sessions
        stand = await self._store.read(session_order.stands(watched)) if watched else {}
        for session_id in watched:
            if session_id not in stand or stand[session_id] != self._stood.get(session_id):
                self._hub.chime(session_bell(session_id))
        self._stood = stand

    async def _look(self) -> None:
        if not (listened := self._hub.listened):
            return
        heads = await self._store.read(log.heads(listened))
        for run_id in listened:
            if run_id in heads:
                self._hub.hint(run_id, heads[run_id])
            else:
                self._hub.doubt(run_id)  # It was erased: no event will ever tell.
