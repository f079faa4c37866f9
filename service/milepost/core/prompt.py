"""What the model is shown: instructions first, then the session, then this run."""

from milepost.core.agents import Agent
from milepost.core.messages import Message
from milepost.core.state import State, transcript


def prompt(agent: Agent, history: tuple[Message, ...], state: State) -> tuple[Message, ...]:
    """Return the next model call's messages, the stable part first: vendors cache prefixes."""
    instructions = (Message("system", agent.instructions),) if agent.instructions else ()
    return (*instructions, *history, *transcript(state))
