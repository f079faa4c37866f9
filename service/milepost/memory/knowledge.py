"""Knowledge: facts that stay, and the log of the last days."""

from collections.abc import Mapping
from datetime import UTC, datetime

from milepost.core.json import Json
from milepost.core.memories import Finding, line

FACTS_MAX = 200
LOGS_MAX = 200
"""How many are kept of one owner; what was not mentioned for longest goes first."""

RECENT_DAYS = 2
DAY_MS = 86_400_000

SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "One thing, in a sentence that stands alone."},
        "lasting": {
            "type": "boolean",
            "description": "Whether it will matter for months, and not for a day or two.",
        },
        "message": {"type": "integer", "description": "The number of the message that says so."},
    },
    "required": ["text", "lasting", "message"],
    "additionalProperties": False,
}


def fact(told: Mapping[str, Json]) -> Finding | None:
    """Return what a model's answer states: a fact if it lasts, else a line of the log."""
    text = line(str(told.get("text") or ""))
    if not text:
        return None
    return Finding("fact" if told.get("lasting") is True else "log", text)


def since_ms(now_ms: int, recent_days: int) -> int:
    """Return when the days began that are recent: today (UTC) and the days before it."""
    return now_ms - now_ms % DAY_MS - max(recent_days - 1, 0) * DAY_MS


def shown(finding: Finding, said_ms: int) -> str:
    """Return a fact or a log's line as a model reads it, the latter with its day."""
    if finding.kind == "fact":
        return finding.content
    day = datetime.fromtimestamp(said_ms / 1000, UTC).date().isoformat()
    return f"{day}: {finding.content}"
