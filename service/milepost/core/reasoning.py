"""What a model said of why it does what it does, step by step: nobody is asked again for it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from milepost.core.events import Event, MessageCompleted, ReasoningCompleted, StepStarted


@dataclass(frozen=True, slots=True)
class Thought:
    """What was said with one message of a step, beside its answer.

    `text` stood beside the calls that the message asks for; `thinking` is what the vendor shows of
    the model's own. One of them may be empty.
    """

    step: int
    message_id: str
    text: str = ""
    thinking: str = ""

    @property
    def reasoning(self) -> str:
        """The words that were meant for others, or else the model's own."""
        return self.text or self.thinking


def thoughts(events: Iterable[Event]) -> tuple[Thought, ...]:
    """Return what a run's model said of its reasons, in order, from the run's log."""
    step = 0
    said: dict[str, Thought] = {}
    for event in events:
        match event:
            case StepStarted(index):
                step = index
            case MessageCompleted(message_id, content, "tool_calls"):
                said[message_id] = replace(_of(said, step, message_id), text=content)
            case ReasoningCompleted(message_id, content):
                said[message_id] = replace(_of(said, step, message_id), thinking=content)
            case _:
                pass
    return tuple(thought for thought in said.values() if thought.reasoning)


def _of(said: dict[str, Thought], step: int, message_id: str) -> Thought:
    return said.get(message_id) or Thought(step, message_id)
