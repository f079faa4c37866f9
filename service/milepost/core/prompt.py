"""What the model is shown: instructions first, then the session, then this run."""

from milepost.core.agents import Agent
from milepost.core.messages import Message
from milepost.core.state import State, transcript


def prompt(
    agent: Agent, history: tuple[Message, ...], state: State, instruction: str = ""
) -> tuple[Message, ...]:
    """Return the next model call's messages, the stable part first: vendors cache prefixes.

    `instruction` is what this run alone is told, behind what its agent always is.
    """
    told = "\n\n".join(filter(None, (agent.instructions, instruction)))
    instructions = (Message("system", told),) if told else ()
    return (*instructions, *history, *transcript(state))
