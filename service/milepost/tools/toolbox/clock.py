"""The date and the time, anywhere."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from milepost.core.errors import ToolError
from milepost.tools.decorator import tool, tool_of
from milepost.tools.definition import Tool


def _now() -> datetime:
    return datetime.now(UTC)


def clock(now: Callable[[], datetime] = _now) -> Tool:
    """Return the tool that tells the time; `now` is an aware clock."""

    @tool(effect="read")
    def current_time(
        timezone: Annotated[str, "An IANA name such as Europe/Oslo"] = "UTC",
    ) -> str:
        """Tell the date and the time in a time zone."""
        return now().astimezone(zone(timezone)).isoformat(timespec="seconds")

    return tool_of(current_time)


def zone(name: str) -> tzinfo:
    """Return the time zone. Raises `ToolError` for one that is not known."""
    if name.upper() in {"UTC", "Z"}:
        return UTC  # known everywhere, even where no time zones are installed
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ToolError(
            f"there is no time zone {name!r}; use an IANA name such as Europe/Oslo, or UTC"
        ) from error
