"""What changes among a tenant's approvals, read once for all who watch in this process.

There is no table of changes: an approval's row has the time of its last one and a version that only
grows. Times are stamped before their transactions commit, and not by one clock. So a look takes in
all that is younger than an overlap behind the look before, by the database's clock, and knows by
the versions what is new: what commits late is found as long as it is not later than the overlap.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from milepost.api.approvals_shown import showing
from milepost.live.frames import rfc3339, sent_event
from milepost.live.hub import Hub, approvals_bell
from milepost.store import approval_rows
from milepost.store.approval_rows import CHANGES_MAX, ApprovalRow
from milepost.store.store import Store
from milepost.store.work import Work

OVERLAP_MS = 30_000
POLL_S = 1.0
PACE_S = 0.05
RING_MAX = 1_024


_Seen = dict[str, tuple[int, int]]
"""The time and the version of an approval's last change that was seen, within the overlap."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An approval as it is after its last change; `sse` is that as a stream carries it."""

    row: ApprovalRow
    sse: bytes


def kind_of(row: ApprovalRow) -> str:
    """Return what has happened to it last, as the name of an event."""
    match row.status:
        case "pending":
            return f"approval.{row.change}"
        case "approved" | "denied" | "answered":
            return "approval.decided"
        case status:
            return f"approval.{status}"


def changed(row: ApprovalRow, approval: dict[str, Any]) -> Changed:
    """Return the change with its frame; its id is a time, since that is where one goes on from."""
    kind = kind_of(row)
    body = {
        "type": kind,
        "time": rfc3339(row.changed_ms),
        "approval_id": row.id,
        "data": approval,
    }
    return Changed(row, sent_event(kind, orjson.dumps(body), row.changed_ms))


class ApprovalFeed:
    """One tenant's changes, in a ring that watchers read at their own pace.

    Whoever comes first after a bell looks, and everybody else finds what was found.
    """

    def __init__(self, store: Store, hub: Hub, tenant: str) -> None:
        self.watchers: set[asyncio.Event] = set()
        self._store = store
        self._tenant = tenant
        self._listening = ExitStack()
        self._rung = self._listening.enter_context(hub.bell(approvals_bell(tenant)))
        self._ring: deque[Changed] = deque(maxlen=RING_MAX)
        self._count = 0
        self._from_ms: int | None = None
        self._seen: _Seen = {}
        self._looking = asyncio.Lock()
        self._looked_at = 0.0

    def close(self) -> None:
        """Listen no more: nobody watches."""
        self._listening.close()

    @property
    def count(self) -> int:
        """How many changes there were; a place in the feed."""
        return self._count

    def behind(self, place: int) -> list[Changed] | None:
        """Return what came after `place`, or None if that is not remembered any more."""
        missing = self._count - place
        if missing > len(self._ring):
            return None
        return list(self._ring)[len(self._ring) - missing :]

    async def look(self) -> None:
        """Take in what has changed, unless somebody did since the bell was rung, and lately."""
        async with self._looking:
            now = asyncio.get_running_loop().time
            is_known = self._from_ms is not None and not self._rung.is_set()
            if is_known and now() - self._looked_at < POLL_S:
                return
            await asyncio.sleep(max(self._looked_at + PACE_S - now(), 0))
            self._rung.clear()
            self._looked_at = now()
            self._take(*(await self._store.read(self._news())))

    def _news(self) -> Work[tuple[int, _Seen, list[Changed]]]:
        """Return the database's time, and what is new within the overlap before the last look.

        The first look shows nothing: it only learns what is there already.
        """
        ((at_ms,),) = yield approval_rows.clock()
        from_ms = at_ms if self._from_ms is None else self._from_ms
        fresh: _Seen = {}
        place = (from_ms - OVERLAP_MS, "")
        while True:
            found = yield from approval_rows.changed(self._tenant, *place)
            for approval_id, version, time_ms in found:
                if self._seen.get(approval_id, (0, 0))[1] < version:
                    fresh[approval_id] = (time_ms, version)
            if len(found) < CHANGES_MAX:
                break
            place = (found[-1][2], found[-1][0])
        if self._from_ms is None or not fresh:
            return at_ms, fresh, []
        return at_ms, fresh, (yield from read_changes(self._tenant, fresh))

    def _take(self, at_ms: int, fresh: _Seen, found: list[Changed]) -> None:
        self._from_ms = at_ms
        self._seen |= fresh
        for change in found:  # One may have changed once more between the two reads.
            self._seen[change.row.id] = (change.row.changed_ms, change.row.version)
        horizon = at_ms - OVERLAP_MS
        for approval_id in [each for each, (when, _) in self._seen.items() if when < horizon]:
            del self._seen[approval_id]
        if found:
            self._ring.extend(found)
            self._count += len(found)
            for woken in self.watchers:
                woken.set()


class ApprovalFeeds:
    """The feeds that somebody watches in this process."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self._hub = hub
        self._feeds: dict[str, ApprovalFeed] = {}

    @contextmanager
    def watch(self, tenant: str) -> Iterator[tuple[ApprovalFeed, asyncio.Event]]:
        """Give the tenant's feed, and an event that is set whenever a look at it is worthwhile."""
        bell = approvals_bell(tenant)
        with self._hub.bell(bell) as woken:
            if tenant not in self._feeds:
                self._feeds[tenant] = ApprovalFeed(self._store, self._hub, tenant)
            feed = self._feeds[tenant]
            feed.watchers.add(woken)
            try:
                yield feed, woken
            finally:
                feed.watchers.discard(woken)
                if not feed.watchers:
                    feed.close()
                    del self._feeds[tenant]


def read_changes(tenant: str, approval_ids: Iterable[str]) -> Work[list[Changed]]:
    """Return these approvals with their frames, in the order of their changes."""
    rows = yield from approval_rows.these(tenant, approval_ids)
    shown = yield from showing(rows)
    return [changed(row, approval) for row, approval in zip(rows, shown, strict=True)]
