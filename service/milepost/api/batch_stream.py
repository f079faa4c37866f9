"""One client's tail of a batch: how far it is, whenever that has changed.

Each event is a whole picture, so that whoever missed some has missed nothing.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson

from milepost.api.batches_shown import show_progress
from milepost.api.stream import HEARTBEAT, HEARTBEAT_S, RETRY
from milepost.live.frames import rfc3339, sent_event
from milepost.live.hub import Hub, batch_bell
from milepost.store import batches
from milepost.store.batches import BatchRow
from milepost.store.store import Store

PACE_S = 0.25
POLL_S = 1.0


class BatchTail:
    """Looks at a batch when its bell rings, and now and then; shows what is new, at a pace.

    `seq` is the number of the state that the client has seen last.
    """

    def __init__(self, store: Store, hub: Hub, row: BatchRow, seq: int = 0) -> None:
        self.seq = seq
        self.ended = False
        self.heartbeat_s = HEARTBEAT_S
        self._store = store
        self._hub = hub
        self._tenant = row.tenant
        self._batch_id = row.id
        self._woken: asyncio.Event | None = None
        self._farewell: bytes | None = None
        self._closed = False

    def close(self, farewell: bytes | None = None) -> None:
        """End the stream soon, with a last word if there is one to say."""
        self._closed = True
        self._farewell = farewell
        if self._woken is not None:
            self._woken.set()

    def notice(self, kind: str, data: dict[str, Any]) -> bytes:
        """Return an event about the stream itself."""
        body = orjson.dumps({"type": kind, "batch_id": self._batch_id, "data": data})
        return sent_event(kind, body)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield a frame for each state that the client has not seen, until the batch is over.

        Raises `NotFoundError` if the batch is erased meanwhile.
        """
        first = RETRY
        beat_at = self._now() + self.heartbeat_s
        with self._hub.bell(batch_bell(self._batch_id)) as self._woken:
            while not self._closed:
                self._woken.clear()
                row = await self._store.read(batches.find(self._tenant, self._batch_id))
                if row.seq > self.seq:
                    self.seq, self.ended = row.seq, not row.is_open
                    yield first + _frame(row)
                    first = b""
                    beat_at = self._now() + self.heartbeat_s
                elif self._now() >= beat_at:
                    yield HEARTBEAT
                    beat_at = self._now() + self.heartbeat_s
                if self.ended:
                    return
                await self._pause(self._woken)
        if self._farewell:
            yield self._farewell

    async def _pause(self, woken: asyncio.Event) -> None:
        """Wait until there may be something new, but not for so short that nobody could read it."""
        began = self._now()
        try:
            async with asyncio.timeout(POLL_S):
                await woken.wait()
        except TimeoutError:
            return
        if not self._closed:
            await asyncio.sleep(max(PACE_S - (self._now() - began), 0))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _frame(row: BatchRow) -> bytes:
    kind = "batch.progress" if row.is_open else f"batch.{row.status}"
    body = {
        "type": kind,
        "seq": row.seq,
        "time": rfc3339(row.changed_ms),
        "batch_id": row.id,
        "data": {"status": row.status, **show_progress(row)},
    }
    return sent_event(kind, orjson.dumps(body), row.seq)
