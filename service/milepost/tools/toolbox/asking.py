"""Asking people, through the inbox in which they decide on calls."""

from milepost.tools.context import ToolContext
from milepost.tools.decorator import tool


@tool(effect="read", requires_approval=True)
def ask_user(question: str, context: ToolContext) -> str:
    """Ask a person, and return the answer. The run waits until there is one."""
    answer = context.approval.comment if context.approval else None
    if not answer:
        return f"They said yes to {question!r}, and nothing else."
    return answer
