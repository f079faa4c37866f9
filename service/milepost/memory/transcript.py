"""What was said in a run that is over, and how much of a window it takes."""

from collections.abc import Iterable

from milepost.core.events import Event, MessageCompleted
from milepost.core.evolve import evolve
from milepost.core.frozen import dataclass
from milepost.core.messages import Message
from milepost.core.state import State, transcript, vetted
from milepost.core.window import Counted, weighed


@dataclass(frozen=True, slots=True)
class Told:
    """What was said in a run, and how many tokens each message takes.

    `begun`: a model was asked, and not only the client spoke. `vetted` are as many messages as the
    guardrails have had a look at.
    """

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    begun: bool = True
    vetted: int = 0


def told_in(events: Iterable[Event]) -> Told:
    """Return what was said in a run that has ended with these events, or with others as well."""
    state, counted = State(ended=True), list[Counted | None]()
    for event in events:
        state = evolve(state, event)
        if isinstance(event, MessageCompleted):
            counted.append(_counted(event))
    messages = transcript(state)
    tokens = weighed(messages, counted)
    return Told(messages, tokens, begun=state.step > 0, vetted=len(vetted(state)))


def _counted(event: MessageCompleted) -> Counted | None:
    usage = event.usage
    if not usage.input_tokens or not usage.output_tokens:
        return None
    return Counted(usage.input_tokens, max(0, usage.output_tokens - usage.reasoning_tokens))
