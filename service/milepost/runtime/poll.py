"""The net under the hints: looks at the logs that somebody listens to, all in one statement."""

import asyncio
import random
from collections.abc import Callable

from milepost.core.errors import MilepostError
from milepost.live.hub import Hub
from milepost.store import log
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

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            every_s = self._hinted_s if self._hinted() else self._blind_s
            await asyncio.sleep(every_s * random.uniform(0.8, 1.0))  # noqa: S311 - jitter
            if not (listened := self._hub.listened):
                continue
            try:
                heads = await self._store.read(log.heads(listened))
            except MilepostError:
                continue  # The database is away: the next turn looks again.
            for run_id in listened:
                if run_id in heads:
                    self._hub.hint(run_id, heads[run_id])
                else:
                    self._hub.doubt(run_id)  # It was erased: no event will ever tell.
