"""An agent's rules: what becomes of a call that its model asks for."""

from collections.abc import Sequence

from milepost.core.agents import Agent
from milepost.core.canonical import call_digest
from milepost.core.errors import ToolValidationError
from milepost.core.events import Failure
from milepost.core.messages import ToolCall
from milepost.core.policy import (
    NOBODY_COUNTED,
    NOTHING_STANDS,
    Asked,
    Standing,
    Verdict,
    judge,
)
from milepost.core.repetition import OnUnknown
from milepost.core.rulings import Ask, Count, Counts, Refuse, Reject, Rules, Ruling, Run
from milepost.providers import direct
from milepost.runtime.permits import Permits
from milepost.runtime.structured import answer_rule
from milepost.tools import Registry, coercions

NOBODY = Permits()


def rules_for(
    agent: Agent, tools: Registry, permits: Permits = NOBODY, standing: Standing = NOTHING_STANDS
) -> Rules:
    """Return the rules of `agent` over the tools that are there, for whom the run acts.

    `standing` is what the tenant and the session say besides.
    """

    def ruling(call: ToolCall, counts: Counts = NOBODY_COUNTED, /) -> Ruling:
        return _rule(agent, tools, permits, call, standing, counts)

    def on_unknown(call: ToolCall) -> OnUnknown | None:
        tool = tools.get(call.name)
        if tool is None or tool.on_unknown:
            return tool.on_unknown if tool else None
        return "ask" if tool.requires_approval else None

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
        on_unknown=on_unknown,
        summarizer=_summarizer(agent),
    )


def _summarizer(agent: Agent) -> str | None:
    memory = agent.memory
    return memory.summarize.model if memory and memory.summarize else None


def _rule(
    agent: Agent, tools: Registry, permits: Permits, call: ToolCall, standing: Standing,
    counts: Counts,
) -> Ruling:  # fmt: skip
    """Permission, then policy, then approval: what is not plainly yes is no.

    What a call looks like is told only to whom it is permitted, and judged before anybody is asked.
    """
    tool = tools.get(call.name) if call.name in agent.tools else None
    if tool is None or (tool.executes and agent.provider != direct.NAME):
        return Reject(_unknown(permits.allowed(agent.tools, tools), call.name))
    if refusal := permits.refusal(tool):
        return Refuse("permission", refusal)
    if call.malformed is not None:
        return Reject(_malformed(call))
    try:
        fitted = tool.fit(call.arguments)
    except ToolValidationError as error:
        return Reject(Failure(error.code, str(error)))
    given, taken = fitted.given, fitted.taken
    mended = coercions(call.arguments, given)
    digest = call_digest(call.name, taken) if standing.grants else ""
    asker = permits.identity.asker
    asked = Asked(call.name, taken, digest, tool.requires_approval, asker, given)
    judgement = judge(agent.policy, asked, standing, counts)
    match judgement.verdict:
        case Verdict.ALLOW:
            return Run(taken, tool.effect, mended, judgement.reason, judgement.terms, given)
        case Verdict.ASK:
            return Ask(taken, tool.effect, judgement.reason, mended, judgement.terms, given)
        case Verdict.DENY:
            return Refuse("policy", judgement.reason, judgement.terms)
        case None:
            return Count(taken, judgement.counts)


def _unknown(offered: Sequence[str], name: str) -> Failure:
    names = ", ".join(offered) or "none"
    return Failure("unknown_tool", f"there is no tool {name!r}; the tools are: {names}")


def _malformed(call: ToolCall) -> Failure:
    return Failure(
        "invalid_arguments",
        f"the arguments of {call.name} are no JSON object: {call.malformed!r}."
        " Call it again with a JSON object.",
    )
