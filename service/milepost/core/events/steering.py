"""What was said to a run: how its input was screened, and what came while it was running."""

from dataclasses import field
from typing import ClassVar

from milepost.core.events.runs import InputMessage
from milepost.core.frozen import dataclass
from milepost.core.messages import Image
from milepost.core.usage import Usage


@dataclass(frozen=True, slots=True)
class InputScreening:
    """The agent's guardrails are about to look at the input."""

    type: ClassVar = "input.screening"


@dataclass(frozen=True, slots=True)
class InputScreened:
    """What the guardrails made of the input: `blocked` says why the run may not go on with it.

    `input` is what the model reads in its place where they changed it.
    """

    type: ClassVar = "input.screened"
    blocked: str | None = None
    input: tuple[InputMessage, ...] | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class SteerReceived:
    """Somebody said something while the run was under way; the model reads it at its next step.

    `by` is what the key that said it is called, `key` its id: logs of earlier versions don't say.
    `screened`: the agent's guardrails have looked at it, and `blocked` says why nobody reads it.
    """

    type: ClassVar = "steer.received"
    message_id: str
    content: str
    images: tuple[Image, ...] = ()
    by: str = ""
    screened: bool = False
    blocked: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class SteerApplied:
    """What was said meanwhile stands in the conversation from here on, in this order."""

    type: ClassVar = "steer.applied"
    message_ids: tuple[str, ...]
