"""What tool calls came to, as clients read it."""

from typing import Any

from milepost.store.tool_usage import ToolGroup


def show_tool_group(group: ToolGroup) -> dict[str, Any]:
    """Return what a group of tool calls came to, without what it was grouped by."""
    succeeded = group.calls - group.failures - group.cancelled
    return {
        "runs": group.runs,
        "tool_calls": group.calls,
        "failures": group.failures,
        "failures_by_code": group.failures_by_code,
        "success_rate": success_rate(succeeded, group.calls),
        "cancelled": group.cancelled,
        "denied": group.denied,
        "coerced": group.coerced,
        "cached": group.cached,
        "chunks": group.chunks,
        "duration_ms": group.duration_ms,
        "p50_ms": group.p50_ms,
        "p95_ms": group.p95_ms,
    }


def success_rate(succeeded: int, calls: int) -> float | None:
    """Return the share of calls that brought a result; nothing is known of none."""
    return round(succeeded / calls, 4) if calls else None
