"""Following approvals: what waits already, and then what changes, each change once.

The server tells some of it twice, and says by `version` what is older than what is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from httpx2 import ServerSentEvent

from milepost.client.members import made
from milepost.client.shapes import Approval, ApprovalChange, shaped
from milepost.client.transport import Params

SNAPSHOT = "snapshot"
KEPT_MS = 300_000
"""How long a version is remembered: the server repeats nothing that is as old."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one frame tells; `rest_after` is where the list goes on behind a snapshot."""

    changes: tuple[ApprovalChange, ...]
    rest_after: str | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which approvals a caller wants; there is always more to come."""

    params: Params

    def has(self, told: Told) -> bool:
        """Say whether anything is new."""
        return bool(told.changes or told.rest_after)

    def ends_at(self, _: Told) -> bool:
        """Say that something may follow."""
        return False


class ChangePlace:
    """The last id seen, which is a time, and the versions that were seen lately."""

    def __init__(self, after: str | None = None) -> None:
        self.id = after
        self._seen: dict[str, tuple[int, int]] = {}

    def take(self, frame: ServerSentEvent) -> Told | None:
        """Return what is new in a frame, or None."""
        self.id = frame.id or self.id
        said: Mapping[str, Any] = orjson.loads(frame.data)
        if said["type"] != SNAPSHOT:
            told = {name: said.get(name) for name in ("type", "time")}
            approval = shaped(Approval, said["data"])
            change = made(ApprovalChange, {**told, "approval": approval, "id": self.id})
            return Told((change,)) if self.is_news(change.approval) else None
        told, rest_after = said["data"]["approvals"], said["data"]["next_cursor"]
        waiting = [shaped(Approval, each) for each in told]
        return Told(self.waiting(waiting, whole=rest_after is None), rest_after)

    def waiting(self, approvals: list[Approval], *, whole: bool) -> tuple[ApprovalChange, ...]:
        """Return what waited already, as far as it is news.

        Nobody goes on from the middle of a snapshot: only its end has an id.
        """
        last = approvals[-1].id if approvals and whole else None
        return tuple(
            ApprovalChange(
                SNAPSHOT, each, self.id if each.id == last else None, each.raw["changed_at"]
            )
            for each in approvals
            if self.is_news(each)
        )

    def is_news(self, approval: Approval) -> bool:
        """Say whether this version is newer than what was seen, and remember it."""
        known, _ = self._seen.pop(approval.id, (0, 0))
        now_ms = int(self.id or 0)
        self._seen[approval.id] = (max(known, approval.version), now_ms)
        self._forget_before(now_ms - KEPT_MS)
        return approval.version > known

    def _forget_before(self, horizon_ms: int) -> None:
        """Forget what was seen first, as far as it is old."""
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest][1] >= horizon_ms:
                return
            del self._seen[oldest]
