"""An agent's rules: what becomes of a call that its model asks for."""

from collections.abc import Sequence

from milepost.core.agents import Agent
from milepost.core.errors import ToolValidationError
from milepost.core.events import Failure
from milepost.core.messages import ToolCall
from milepost.core.policy import Verdict, judge
from milepost.core.rulings import Ask, Refuse, Reject, Rules, Ruling, Run
from milepost.runtime.permits import Permits
from milepost.runtime.structured import answer_rule
from milepost.tools import Registry, coercions

NOBODY = Permits()


def rules_for(agent: Agent, tools: Registry, permits: Permits = NOBODY) -> Rules:
    """Return the rules of `agent` over the tools that are there, for whom the run acts."""

    def ruling(call: ToolCall) -> Ruling:
        return _rule(agent, tools, permits, call)

    return Rules(
        ruling,
        agent.limits,
        agent.compression,
        parallel_tools=agent.parallel_tools,
        routing_only=agent.routing_only,
        answer=answer_rule(agent.response_format) if agent.response_format else None,
        loop_detection=agent.loop_detection,
        repeat_allowed=tools.repeat_allowed() if agent.loop_detection else frozenset(),
        screens_input=bool(agent.guardrails and agent.guardrails.input),
        screens_calls=bool(agent.guardrails and agent.guardrails.screens_calls),
    )


def _rule(agent: Agent, tools: Registry, permits: Permits, call: ToolCall) -> Ruling:
    """Permission, then policy, then approval: what is not plainly yes is no.

    What a call looks like is told only to whom it is permitted, and judged before anybody is asked.
    """
    tool = tools.get(call.name) if call.name in agent.tools else None
    if tool is None:
        return Reject(_unknown(permits.allowed(agent.tools, tools), call.name))
    if refusal := permits.refusal(tool):
        return Refuse("permission", refusal)
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


def _unknown(offered: Sequence[str], name: str) -> Failure:
    names = ", ".join(offered) or "none"
    return Failure("unknown_tool", f"there is no tool {name!r}; the tools are: {names}")


def _malformed(call: ToolCall) -> Failure:
    return Failure(
        "invalid_arguments",
        f"the arguments of {call.name} are no JSON object: {call.malformed!r}."
        " Call it again with a JSON object.",
    )
