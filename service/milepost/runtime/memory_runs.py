"""Memory runs: ordinary runs of agents that nobody has made, which read other runs and learn.

Such an agent is made of the id of the one whose run it reads, and kept nowhere.
"""

from milepost.core.agents import Agent, Limits, StructuredOutput
from milepost.memory import extraction

ID_PREFIX = "agt_memory:"
CALL_ID = "memory"
"""What stands for the call that has started a memory run: none has."""

_STEPS = 4


def memory_id(base_id: str) -> str:
    """Return the id of the agent that reads the runs of `base_id`."""
    return ID_PREFIX + base_id


def base_of(agent_id: str) -> str | None:
    """Return the id of the agent whose runs this one reads, None if it reads nobody's."""
    return agent_id.removeprefix(ID_PREFIX) if agent_id.startswith(ID_PREFIX) else None


def memory_name(base: str) -> str:
    """Return what such an agent is called."""
    return f"memory:{base}"


def memory_agent(agent_id: str, version: int, base: Agent) -> Agent:
    """Return the agent that reads the runs of `base` in this version."""
    extract = base.memory.extract if base.memory else None
    assert extract is not None, "only who is to learn is read"
    return Agent(
        id=agent_id,
        version=version,
        name=memory_name(base.name),
        model=extract.model,
        instructions=extraction.instructions(extract),
        limits=Limits(
            max_steps=_STEPS,
            model_retries=base.limits.model_retries,
            retry_backoff_s=base.limits.retry_backoff_s,
            rate_limit_cooldown_s=base.limits.rate_limit_cooldown_s,
            model_timeout_s=base.limits.model_timeout_s,
        ),
        response_format=StructuredOutput(extraction.schema(extract), "lessons"),
    )


def learns(agent: Agent) -> bool:
    """Say whether anything is to be done for memory when a run of this agent ends."""
    return bool(agent.memory and agent.memory.extract) or base_of(agent.id) is not None
