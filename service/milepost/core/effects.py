"""What a run wants done next: written down, or done in the world once it is written down."""

from collections.abc import Mapping
from dataclasses import field

from milepost.core.events import (
    ApprovalKind,
    Event,
    MemorySummarizing,
    Terminal,
    ToolResultCompressing,
    WaitCause,
)
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.policy import PLAIN, Counted, Terms
from milepost.core.repetition import ToolEffect


@dataclass(frozen=True, slots=True)
class Record:
    """Write these events down; there is nothing to do in the world."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class ScreenInput:
    """Have the guardrails look at the input, in a log that says so already."""


@dataclass(frozen=True, slots=True)
class SummarizeHistory:
    """Ask a model what is to be told of messages out of sight, in a log that says so already."""

    opening: MemorySummarizing


@dataclass(frozen=True, slots=True)
class ScreenCall:
    """Have the guardrails look at a call with these coerced arguments, as above.

    `given` are those without the defaults of what was left out.
    """

    call: ToolCall
    arguments: Mapping[str, Json]
    given: Mapping[str, Json] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CountCall:
    """Have it counted how often such calls were made, in a log that says so already."""

    call: ToolCall
    wanted: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class CheckCall:
    """Ask the tool whether a call that was cut off has acted, in a log that says so already.

    `arguments` are those it ran with.
    """

    call: ToolCall
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model for the message; `opening` goes into the log before the call."""

    message_id: str
    opening: tuple[Event, ...]
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CallTool:
    """Run the tool. `approved_by` and `comment` are those of a person's yes, if one was asked."""

    call: ToolCall
    arguments: Mapping[str, Json]
    effect: ToolEffect
    attempt: int
    coerced: tuple[str, ...] = ()
    approved_by: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class CompressResult:
    """Ask `model` for a shorter form of a call's result, in a log that says so already."""

    call: ToolCall
    content: str
    opening: ToolResultCompressing


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Put the question to people, after `opening`: may the call be made, or what came of it."""

    call: ToolCall
    arguments: Mapping[str, Json]
    digest: str
    reason: str
    terms: Terms = PLAIN
    kind: ApprovalKind = "call"
    opening: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Park:
    """Let go of the run until `pending` is answered."""

    cause: WaitCause
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop what is in hand, then end the run."""


@dataclass(frozen=True, slots=True)
class End:
    """Close the log with `event`, after `events`."""

    event: Terminal
    events: tuple[Event, ...] = ()


Effect = (
    Record
    | ScreenInput
    | SummarizeHistory
    | ScreenCall
    | CountCall
    | CheckCall
    | CallModel
    | CallTool
    | CompressResult
    | AskApproval
    | Park
    | Cancel
    | End
)
