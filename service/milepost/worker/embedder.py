"""The embedder: gives memories their vectors, in every process, without a leader.

What has none yet is found by its words. Two that are at it at once do the work twice, and no harm.
"""

import asyncio

from milepost.core.errors import ProviderError
from milepost.runtime import notices
from milepost.runtime.vectors import Vectors
from milepost.telemetry.logs import logger
from milepost.worker.turns import take_turn

POLL_S = 2.0
BROKEN_S = 30.0
AGAIN_S = 3_600.0
"""After so long a rollout is over: whoever goes on with another model then has one for good."""


class Embedder:
    """Tends memories without a vector."""

    def __init__(
        self, vectors: Vectors, model: str, *, poll_s: float = POLL_S, again_s: float = AGAIN_S
    ) -> None:
        self._vectors = vectors
        self._model = model
        self._poll_s = poll_s
        self._again_s = again_s
        self._log = logger("memory")

    async def run(self) -> None:
        """Tend them until cancelled, having let go of what another model has made.

        Once more later: processes of before have gone on with theirs until they were replaced.
        """
        clock = asyncio.get_running_loop().time
        due_s = [clock() + self._again_s, clock()]  # The next one is the last of them.
        while True:
            if due_s and clock() >= due_s[-1] and await take_turn(self._forget(), False, self._log):
                due_s.pop()
            rest_s = await take_turn(self.tend(), self._poll_s, self._log)
            await asyncio.sleep(rest_s)

    async def _forget(self) -> bool:
        """Let go of what another model has made; say that this is done."""
        await self._vectors.forget_others()
        return True

    async def tend(self) -> float:
        """Give vectors to some; return after how many seconds there may be more to do."""
        try:
            return 0.0 if await self._vectors.embed_some() else self._poll_s
        except ProviderError as error:
            notices.embeddings_failed(self._model, error)
            return BROKEN_S
