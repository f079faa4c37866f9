"""Milepost: agents as a service, where every run is its log.

The public names. Each is imported when it is first asked for: tools need no client, a client no
tools, and an agent no server.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.agent import (
        Agent,
        AgentResult,
        ApprovalRequest,
        Conversation,
        Decision,
        Knowledge,
        LoggingObserver,
        Observer,
        Providers,
        RecordingObserver,
        Steering,
        StreamChunk,
    )
    from milepost.client import BlockingMilepost, Event, Milepost, Patience, Run
    from milepost.core.errors import (
        ApiError,
        MilepostError,
        PendingActionExistsError,
        RunError,
        ToolError,
        ToolValidationError,
    )
    from milepost.tools import (
        Absent,
        Ambiguous,
        Artifact,
        Found,
        Injected,
        NotFound,
        PendingConfirmation,
        Registry,
        Secret,
        Tool,
        ToolContext,
        ToolParameter,
        ToolResult,
        Unknown,
        emit_artifact,
        executor,
        schema_of,
        stash_pending,
        tool,
        tool_of,
    )

__all__ = [
    "Absent",
    "Agent",
    "AgentResult",
    "Ambiguous",
    "ApiError",
    "ApprovalRequest",
    "Artifact",
    "BlockingMilepost",
    "Conversation",
    "Decision",
    "Event",
    "Found",
    "Injected",
    "Knowledge",
    "LoggingObserver",
    "Milepost",
    "MilepostError",
    "NotFound",
    "Observer",
    "Patience",
    "PendingActionExistsError",
    "PendingConfirmation",
    "Providers",
    "RecordingObserver",
    "Registry",
    "Run",
    "RunError",
    "Secret",
    "Steering",
    "StreamChunk",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolParameter",
    "ToolResult",
    "ToolValidationError",
    "Unknown",
    "emit_artifact",
    "executor",
    "schema_of",
    "stash_pending",
    "tool",
    "tool_of",
]

_HOMES = {
    "milepost.agent": (
        "Agent",
        "AgentResult",
        "ApprovalRequest",
        "Conversation",
        "Decision",
        "Knowledge",
        "LoggingObserver",
        "Observer",
        "Providers",
        "RecordingObserver",
        "Steering",
        "StreamChunk",
    ),
    "milepost.client": ("BlockingMilepost", "Event", "Milepost", "Patience", "Run"),
    "milepost.core.errors": (
        "ApiError",
        "MilepostError",
        "PendingActionExistsError",
        "RunError",
        "ToolError",
        "ToolValidationError",
    ),
    "milepost.tools": (
        "Absent",
        "Ambiguous",
        "Artifact",
        "Found",
        "Injected",
        "NotFound",
        "PendingConfirmation",
        "Registry",
        "Secret",
        "Tool",
        "ToolContext",
        "ToolParameter",
        "ToolResult",
        "Unknown",
        "emit_artifact",
        "executor",
        "schema_of",
        "stash_pending",
        "tool",
        "tool_of",
    ),
}

if not TYPE_CHECKING:  # or type checkers would take every name for a public one

    def __getattr__(name: str) -> object:
        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"milepost has no public name {name!r}; it has {', '.join(__all__)}")
