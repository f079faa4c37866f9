"""Agents for one call of one tool: made of the call's own id, and kept nowhere."""

from dataclasses import replace

from milepost.core.agents import Agent, Limits
from milepost.core.guardrails import Guardrails
from milepost.providers import direct

ID_PREFIX = "agt_direct:"
_STEPS = 2
_CONFIRMED = "confirmed"


def direct_id(tool: str, base_id: str | None = None) -> str:
    """Return the id of the agent that has `tool` called, under the rules of `base_id`."""
    return ID_PREFIX + (tool if base_id is None else f"{tool}:{base_id}")


def direct_name(tool: str) -> str:
    """Return what such an agent is called."""
    return f"{direct.NAME}:{tool}"


def confirmed_id(tool: str, base_id: str) -> str:
    """Return the id of the agent that has `tool` executed, which a user has said yes to.

    The rules are those of `base_id`, the agent that asked, but for one: that no rule names the tool
    is no reason to ask again.
    """
    base = (base_of(base_id) or "") if base_id.startswith(ID_PREFIX) else base_id
    return f"{ID_PREFIX}{tool}:{base}:{_CONFIRMED}"


def base_of(agent_id: str) -> str | None:
    """Return the id of the agent whose rules hold, None if no rules but the tool's own do."""
    return _parts(agent_id)[1] or None


def _parts(agent_id: str) -> tuple[str, str, bool]:
    """Return the tool, the base's id and whether a user has confirmed; no part has a colon."""
    tool, _, rest = agent_id.removeprefix(ID_PREFIX).partition(":")
    base, _, how = rest.partition(":")
    return tool, base, how == _CONFIRMED


def direct_agent(agent_id: str, version: int, base: Agent | None) -> Agent:
    """Return the agent of that id; `base` lends its policy, its limits and its guardrails.

    What these have against words is left out: nobody speaks here.
    """
    tool, _, is_confirmed = _parts(agent_id)
    policy = base.policy if base else None
    if policy and is_confirmed:
        policy = replace(policy, allow=(*policy.allow, tool))
    limits = base.limits if base else Limits()
    return Agent(
        id=agent_id,
        version=version,
        name=direct_name(tool),
        model=f"{direct.NAME}/call",
        tools=(tool,),
        policy=policy,
        limits=replace(limits, max_steps=_STEPS),
        guardrails=_at_the_tool(base.guardrails) if base and base.guardrails else None,
    )


def _at_the_tool(guardrails: Guardrails) -> Guardrails:
    return Guardrails(
        tool_arguments=guardrails.tool_arguments, tool_results=guardrails.tool_results
    )
