"""What a model said of why it does what it does, step by step: nobody is asked again for it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from milepost.core.events import (
    Event,
    MessageCompleted,
    ReasoningCompleted,
    StepStarted,
    ToolCallRequested,
)


@dataclass(frozen=True, slots=True)
class Thought:
    """What was said with one message of a step, beside its answer.

    `text` stood beside the calls of `tools` that the message asks for; `thinking` is what the
    vendor shows of the model's own. One of them may be empty.
    """

    step: int
    message_id: str
    text: str = ""
    thinking: str = ""
    tools: tuple[str, ...] = ()

    @property
    def reasoning(self) -> str:
        """Both, in the order in which they came to it."""
        return "\n".join(part for part in (self.thinking, self.text) if part)


def thoughts(events: Iterable[Event]) -> tuple[Thought, ...]:
    """Return what a run's model said of its reasons, in order, from the run's log."""
    step = 0
    said: dict[str, Thought] = {}
    for event in events:
        match event:
            case StepStarted(index):
                step = index
            case MessageCompleted(message_id, content):
                said[message_id] = Thought(step, message_id, content)
            case ReasoningCompleted(message_id, content) if message_id in said:
                said[message_id] = replace(said[message_id], thinking=content)
            case ToolCallRequested(name=name, message_id=message_id) if message_id in said:
                asking = said[message_id]
                said[message_id] = replace(asking, tools=(*asking.tools, name))
            case _:
                pass
    # Without a call beside it, what was said is an answer.
    known = (one if one.tools else replace(one, text="") for one in said.values())
    return tuple(one for one in known if one.reasoning)
