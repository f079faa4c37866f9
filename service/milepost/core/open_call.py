"""A tool call of the present step, and how far it has come."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from milepost.core.events import ApprovalKind
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.repetition import ToolEffect


class CallStatus(StrEnum):
    """How far a tool call has come."""

    REQUESTED = "requested"
    SCREENING = "screening"  # The guardrails look at it.
    COUNTING = "counting"  # It is counted how often such calls were made.
    ASKED = "asked"
    APPROVED = "approved"
    DENIED = "denied"
    STARTED = "started"
    AWAITED = "awaited"  # The client runs it, or another run.
    LOST = "lost"  # Its worker died while it ran.
    CHECKING = "checking"  # Lost; its tool is asked whether it has acted.
    REPEATABLE = "repeatable"  # Lost, and safe to make again.
    HAPPENED = "happened"  # Lost; a person says what came of it.
    UNKNOWN = "unknown"  # Lost; nobody can say whether it has acted.
    COMPRESSING = "compressing"  # Answered; a model makes the answer shorter.
    DONE = "done"


@dataclass(frozen=True)  # Without slots, as all that is copied with every event.
class OpenCall:
    """A call of the present step. `content` is what the model is told, once there is something.

    `long` is a result's length in characters as long as it may still be made shorter: errors,
    denials, terminal results and what was compressed already stay as they are. `whole` is what the
    tool itself brought. `screened`: the guardrails have looked at it, and `blocked` says what they
    have against it. `counts` is what was counted for the rules, and `resting` how far the call had
    come when somebody began to count, or to look at it. `given` is what the tool got, and `checked`
    says that the tool itself was asked what came of it. `asking` is what people are asked about it,
    `asked` are the arguments that they were shown, and `approvers` are those who were asked last,
    anybody if there are none.
    """

    call: ToolCall
    status: CallStatus = CallStatus.REQUESTED
    attempt: int = 0
    effect: ToolEffect = "once"
    approval_id: str | None = None
    digest: str | None = None
    approved_by: str | None = None
    comment: str | None = None
    denied_by: str = ""
    denial: str = ""
    content: str = ""
    whole: str = ""
    terminal: bool = False
    long: int = 0
    screened: bool = False
    blocked: str | None = None
    child_run_id: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    resting: CallStatus = CallStatus.REQUESTED
    given: Mapping[str, Json] | None = None
    checked: bool = False
    asking: ApprovalKind = "call"
    asked: Mapping[str, Json] | None = None
    approvers: tuple[str, ...] = ()
    brought: Json = None


ANSWERED = frozenset({CallStatus.COMPRESSING, CallStatus.DONE})
