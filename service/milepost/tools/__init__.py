"""Tools: functions that a model may call, checked at its boundary and run within bounds."""

from milepost.tools.artifacts import Artifact, emit_artifact
from milepost.tools.check import Checked, Issue
from milepost.tools.coercions import coercions
from milepost.tools.context import Approved, Remember, ToolContext
from milepost.tools.decorator import executor, schema_of, tool, tool_of
from milepost.tools.definition import Tool
from milepost.tools.direct import aexecute, execute
from milepost.tools.inject import Injected
from milepost.tools.invoke import Invoker
from milepost.tools.isolation import ToolProcesses
from milepost.tools.loader import load
from milepost.tools.lookup import Absent, Found, Unknown
from milepost.tools.outcome import Outcome
from milepost.tools.pending import PendingConfirmation, stash_pending
from milepost.tools.preview import preview
from milepost.tools.projections import Vendor, prompt_block
from milepost.tools.registry import Registry
from milepost.tools.results import as_text
from milepost.tools.secret import Secret
from milepost.tools.streaming import LiveProgress
from milepost.tools.threads import ToolThreads
from milepost.tools.typed_results import Ambiguous, NotFound, ToolResult
from milepost.tools.written import ToolParameter

__all__ = [
    "Absent",
    "Ambiguous",
    "Approved",
    "Artifact",
    "Checked",
    "Found",
    "Injected",
    "Invoker",
    "Issue",
    "LiveProgress",
    "NotFound",
    "Outcome",
    "PendingConfirmation",
    "Registry",
    "Remember",
    "Secret",
    "Tool",
    "ToolContext",
    "ToolParameter",
    "ToolProcesses",
    "ToolResult",
    "ToolThreads",
    "Unknown",
    "Vendor",
    "aexecute",
    "as_text",
    "coercions",
    "emit_artifact",
    "execute",
    "executor",
    "load",
    "preview",
    "prompt_block",
    "schema_of",
    "stash_pending",
    "tool",
    "tool_of",
]
