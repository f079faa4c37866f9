"""What the model is shown: instructions first, then the session, then this run."""

from milepost.core.agents import Agent
from milepost.core.context import Earlier, shown
from milepost.core.messages import Message
from milepost.core.state import State, transcript


def prompt(
    agent: Agent, earlier: Earlier, state: State, instruction: str = ""
) -> tuple[Message, ...]:
    """Return the next model call's messages, the stable part first: vendors cache prefixes.

    What changes from turn to turn stands behind all that does not: what is remembered for this run
    comes after the session's messages. `instruction` is what this run alone is told, behind what
    its agent always is.
    """
    told = "\n\n".join(filter(None, (agent.instructions, instruction)))
    instructions = (Message("system", told),) if told else ()
    return (*instructions, *shown(earlier, state.summary), *transcript(state))
