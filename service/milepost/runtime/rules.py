"""An agent's rules: what becomes of a call that its model asks for."""

from milepost.core.agents import Agent
from milepost.core.decide import Ask, Refuse, Reject, Rules, Ruling, Run
from milepost.core.errors import ToolValidationError
from milepost.core.events import Failure
from milepost.core.messages import ToolCall
from milepost.core.policy import Verdict, judge
from milepost.tools import Registry, coercions


def rules_for(agent: Agent, tools: Registry) -> Rules:
    """Return the rules of `agent` over the tools that are there."""

    def ruling(call: ToolCall) -> Ruling:
        return _rule(agent, tools, call)

    return Rules(ruling, agent.limits, agent.compression)


def _rule(agent: Agent, tools: Registry, call: ToolCall) -> Ruling:
    """Does it exist, does it fit, may it: in this order, and anything not plainly yes is no."""
    tool = tools.get(call.name) if call.name in agent.tools else None
    if tool is None:
        return Reject(_unknown(agent, tools, call.name))
    if call.malformed is not None:
        return Reject(_malformed(call))
    try:
        arguments = tool.validate(call.arguments)
    except ToolValidationError as error:
        return Reject(Failure(error.code, str(error)))
    mended = coercions(call.arguments, arguments)
    judgement = judge(agent.policy, call.name, gated=tool.requires_approval)
    match judgement.verdict:
        case Verdict.ALLOW:
            return Run(arguments, tool.effect, mended)
        case Verdict.ASK:
            return Ask(arguments, tool.effect, judgement.reason, mended)
        case Verdict.DENY:
            return Refuse("policy", judgement.reason)


def _unknown(agent: Agent, tools: Registry, name: str) -> Failure:
    offered = ", ".join(each for each in agent.tools if each in tools) or "none"
    return Failure("unknown_tool", f"there is no tool {name!r}; the tools are: {offered}")


def _malformed(call: ToolCall) -> Failure:
    return Failure(
        "invalid_arguments",
        f"the arguments of {call.name} are no JSON object: {call.malformed!r}."
        " Call it again with a JSON object.",
    )
