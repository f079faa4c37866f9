"""One client's view of its tenant's approvals: those that wait, and then every change.

Each event is a whole approval with its version, so that whoever missed some, or gets one twice,
has the same picture in the end.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson

from milepost.api.approval_feed import OVERLAP_MS, POLL_S, ApprovalFeeds, Changed, read_changes
from milepost.api.approvals_shown import showing
from milepost.api.stream import HEARTBEAT, HEARTBEAT_S, RETRY
from milepost.live.frames import rfc3339, sent_event
from milepost.store import approval_rows
from milepost.store.approval_rows import CHANGES_MAX, ApprovalFilter
from milepost.store.records import Page
from milepost.store.store import Store
from milepost.store.work import Work

SNAPSHOT_MAX = 100


class ApprovalTail:
    """Shows what waits, or what changed since the client left, and then what the feed brings.

    `seq` is a time: that of the last change that was shown, or of the snapshot.
    """

    def __init__(
        self, store: Store, feeds: ApprovalFeeds, tenant: str, wanted: ApprovalFilter, seq: int = 0
    ) -> None:
        self.seq = seq
        self.ended = False
        self.heartbeat_s = HEARTBEAT_S
        self._store = store
        self._feeds = feeds
        self._tenant = tenant
        self._wanted = wanted
        self._shown: dict[str, int] = {}
        self._forget_at = 0.0
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
        body = orjson.dumps({"type": kind, "data": data})
        return sent_event(kind, body)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield frames until the client leaves or the server does.

        Registers first and reads second, so that nothing falls between the two.
        """
        with self._feeds.watch(self._tenant) as (feed, self._woken):
            await feed.look()
            place = feed.count
            yield RETRY
            async for piece in self._opening():
                yield piece
            beat_at = self._now() + self.heartbeat_s
            while not self._closed:
                self._woken.clear()
                await feed.look()
                found, place = feed.behind(place), feed.count
                if found is None:
                    async for piece in self._missed():
                        yield piece
                elif piece := self._frames(found):
                    yield piece
                    beat_at = self._now() + self.heartbeat_s
                elif self._now() >= beat_at:
                    yield HEARTBEAT
                    beat_at = self._now() + self.heartbeat_s
                await self._pause(self._woken)
        if self._farewell:
            yield self._farewell

    async def _opening(self) -> AsyncIterator[bytes]:
        if self.seq:
            async for piece in self._missed():
                yield piece
        else:
            self.seq, versions, snapshot = await self._store.read(self._snapshot())
            self._remember(versions)
            yield snapshot

    def _snapshot(self) -> Work[tuple[int, dict[str, int], bytes]]:
        """Return since when one has to watch, and what waits just now, the newest first."""
        ((at_ms,),) = yield approval_rows.clock()
        wanted, page = self._wanted.pending(), Page(SNAPSHOT_MAX)
        found = yield from approval_rows.search(self._tenant, wanted, page)
        rows, more = found[:SNAPSHOT_MAX], len(found) > SNAPSHOT_MAX
        shown = yield from showing(rows)
        said = {
            "approvals": shown,
            "has_more": more,
            "next_cursor": rows[-1].id if more else None,
        }
        body = orjson.dumps({"type": "snapshot", "time": rfc3339(at_ms), "data": said})
        versions = {row.id: row.version for row in rows}
        return at_ms, versions, sent_event("snapshot", body, at_ms)

    async def _missed(self) -> AsyncIterator[bytes]:
        """Yield what changed since the client has seen its last change, a page at a time.

        From somewhat earlier on, since what commits late has an early time: some may come twice.
        """
        place = (self.seq - OVERLAP_MS, "")
        while not self._closed:
            found = await self._store.read(approval_rows.changed(self._tenant, *place))
            ids = [approval_id for approval_id, *_ in found]
            page = await self._store.read(read_changes(self._tenant, ids)) if ids else []
            if piece := self._frames(page):
                yield piece
            self._remember({change.row.id: change.row.version for change in page})
            if len(found) < CHANGES_MAX:
                return
            place = (found[-1][2], found[-1][0])

    def _frames(self, found: list[Changed]) -> bytes:
        """Return what of it the client wants and has not been shown on this connection."""
        if self._now() >= self._forget_at:
            self._shown.clear()
        parts = []
        for change in found:
            row = change.row
            if self._shown.get(row.id, 0) < row.version and self._wanted.fits(row):
                parts.append(change.sse)
                self.seq = max(self.seq, row.changed_ms)
        return b"".join(parts)

    def _remember(self, shown: dict[str, int]) -> None:
        """Keep which versions were shown beside the feed, as long as it may bring them, too."""
        self._shown |= shown
        self._forget_at = self._now() + 2 * OVERLAP_MS / 1000

    async def _pause(self, woken: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await woken.wait()
        except TimeoutError:
            return

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
