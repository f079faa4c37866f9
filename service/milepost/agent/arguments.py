"""The arguments of a call: the model's, until a guardrail, a person or the tool mends them."""

from collections.abc import Mapping

from milepost.core.events import (
    ApprovalDecided,
    Event,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallStarted,
)
from milepost.core.json import Json


def arguments_in(event: Event) -> tuple[str, Mapping[str, Json]] | None:
    """Return a call and the arguments that it has from this event on; None: it says nothing."""
    match event:
        case ToolCallRequested() | ToolCallScreened() | ApprovalDecided() | ToolCallStarted():
            return None if event.arguments is None else (event.call_id, event.arguments)
        case _:
            return None
