"""What is asked of an embedder about a call, and what may be answered."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A call that waits for a yes, and why it does.

    `tool_args` are a copy: what is done to them changes nothing. `digest` binds the tool and the
    arguments that will run, `preview` shows them in one line.
    """

    tool_name: str
    tool_args: dict[str, Any]
    reason: str
    preview: str
    digest: str
    run_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer that says more than True or False.

    A yes may come with other `arguments`: they are checked as the model's own are, and judged again
    by the policy, whose no still wins. The `reason` of a no is told to the model.
    """

    approve: bool
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None


Answer = bool | Decision

ApprovalHandler = Callable[[ApprovalRequest], Answer | Awaitable[Answer]]
"""Is called with each question, in a thread of its own, or awaited where it is `async`."""

ConfirmAction = Callable[[str, dict[str, Any], str], Answer | Awaitable[Answer]]
"""The same with the tool's name, its arguments and why it is asked."""
