"""What waits in a chat, and what a message did, as the bridge to the chat reads it."""

from math import ceil
from typing import Any

import orjson

from milepost.core.codec import decode
from milepost.core.events import ToolCallDenied, ToolCallFailed
from milepost.core.pending import APPROVAL_KIND, IGNORED_S
from milepost.live.frames import rfc3339
from milepost.store import log, pending, runs
from milepost.store.approvals import ApprovalRow
from milepost.store.conversations import Delivery
from milepost.store.pending import PendingRow
from milepost.store.runs import RunRow
from milepost.store.work import Work
from milepost.tools.pending import prompt_for
from milepost.tools.preview import spelled_out

NEARLY_ALL = 0.9

_SAYINGS = {
    "expired": "It is too late for that: the time to answer has run out, and nothing was done.",
    "digest_mismatch": "What was to be confirmed has changed since, so nothing was done.",
    "no_executor": "That cannot be carried out here, so nothing was done.",
    "nothing_pending": "There is nothing to answer.",
    "ignored": "That is no answer to what was asked, and nothing was done.",
    "kind_mismatch": "Something else waits for an answer by now, and nothing was done.",
}


def show_pending(row: PendingRow | ApprovalRow | None, now_ms: int) -> dict[str, Any] | None:
    """Return what waits for the user; of an approval all that a yes would be to."""
    if row is None:
        return None
    if isinstance(row, ApprovalRow):
        kind, asked_ms = APPROVAL_KIND, row.created_ms
        said = spelled_out(row.tool, orjson.loads(row.arguments))
    else:
        kind, asked_ms, said = row.kind, row.requested_ms, row.preview
    return {
        "id": row.id,
        "kind": kind,
        "preview": said,
        "digest": row.digest,
        "expires_at": rfc3339(row.expires_ms),
        "user_prompt": prompt_for(said, _seconds(row.expires_ms - asked_ms, row, now_ms)),
    }


def _seconds(given_ms: int, row: PendingRow | ApprovalRow, now_ms: int) -> int:
    """Return how long the user has: what was given while it is nearly all there, then the rest."""
    left_ms = max(row.expires_ms - now_ms, 0)
    if left_ms > IGNORED_S * 1000 and left_ms >= NEARLY_ALL * given_ms:
        return given_ms // 1000
    return ceil(left_ms / 1000)


def came_of(tenant: str, done: Delivery) -> Work[tuple[str, str | None]]:
    """Return a message's outcome and what the user is told, as far as there is anything yet."""
    if done.run_id is None:
        return done.outcome, (yield from _saying(tenant, done))
    row = yield from runs.find(tenant, done.run_id)
    if done.outcome == "confirmed" and (failure := (yield from _failure(tenant, done, row))):
        return "failed", failure
    said = _text(row)
    if said is None and (done.outcome == "cancelled" or row.status == "completed"):
        said = yield from _saying(tenant, done)
    return done.outcome, said


def _saying(tenant: str, done: Delivery) -> Work[str | None]:
    if done.outcome not in {"cancelled", "confirmed"}:
        return _SAYINGS.get(done.outcome)
    action = yield from pending.find(tenant, done.pending_id or "")
    if done.outcome == "confirmed":
        return f"Done: {action.preview}" if action else None
    return f"Cancelled: {action.preview}" if action else "Cancelled."


def _text(row: RunRow) -> str | None:
    output = orjson.loads(row.outcome or "{}").get("output") or {}
    return output.get("text") or None


def _failure(tenant: str, done: Delivery, row: RunRow) -> Work[str | None]:
    """Return why what was confirmed came to nothing; None where it did not, or is under way."""
    executed = yield from pending.find(tenant, done.pending_id or "")
    if executed is None or row.ended_ms is None:
        return None
    for entry in (yield from log.read_all(tenant, row.id)):
        match decode(entry.type, entry.data):
            case ToolCallFailed(error=error):
                return error.message
            case ToolCallDenied(reason=reason):
                return f"It was refused: {reason}"
            case _:
                pass  # How it came to that is in the run's log.
    return None if row.status == "completed" else f"It came to nothing: the run is {row.status}."
