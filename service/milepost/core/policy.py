"""Who may call what: globs over tool names, read from the strictest to the mildest."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Verdict(StrEnum):
    """What becomes of a call before it runs."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Policy:
    """Globs on tool names, case-sensitive. What no list names is asked."""

    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the rule that gave it, for the model, the inbox and the log."""

    verdict: Verdict
    reason: str


def judge(policy: Policy | None, tool: str, *, gated: bool) -> Judgement:
    """Judge a call of `tool`: deny, then ask, then allow; a policy that names it nowhere asks.

    `gated` is the tool's own `requires_approval`: it turns an allow into an ask, never a deny into
    anything. Without a policy it is all there is.
    """
    judgement = _judge_by_policy(policy, tool)
    if gated and judgement.verdict is Verdict.ALLOW:
        return Judgement(Verdict.ASK, f"tool: {tool} requires approval")
    return judgement


def _judge_by_policy(policy: Policy | None, tool: str) -> Judgement:
    if policy is None:
        return Judgement(Verdict.ALLOW, "no policy")
    for verdict, globs in (
        (Verdict.DENY, policy.deny),
        (Verdict.ASK, policy.ask),
        (Verdict.ALLOW, policy.allow),
    ):
        if glob := _first_match(globs, tool):
            return Judgement(verdict, f"policy: {verdict} {glob}")
    return Judgement(Verdict.ASK, f"policy: no rule names {tool}")


def _first_match(globs: Iterable[str], tool: str) -> str | None:
    return next((glob for glob in globs if fnmatchcase(tool, glob)), None)
