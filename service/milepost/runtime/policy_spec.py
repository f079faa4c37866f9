"""A policy as people write it, as it is kept, and as it is shown."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from milepost.core.arguments import ArgumentMatch, steps_of
from milepost.core.errors import InvalidError
from milepost.core.policy import OnTimeout, Policy, Rate, RatePer, Rule, Rules, Terms
from milepost.runtime.spec import EXACT, Glob

RULES_MAX = 200
TTL_S_MAX = 366 * 86_400

Approver = Annotated[str, Field(pattern=r"^(key|user|scope|channel):[^\s\x00][^\x00]{0,199}$")]
Approvers = Annotated[list[Approver], Field(max_length=50)]
Seconds = Annotated[float, Field(gt=0, le=TTL_S_MAX)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
Scalar = str | int | float | bool | None


class _Spec(BaseModel):
    model_config = EXACT


class ArgumentSpec(_Spec):
    """What one argument must be; without anything else, it must be there."""

    arg: Annotated[str, Field(min_length=1, max_length=200)]
    pattern: Annotated[str, Field(max_length=1_000)] | None = None
    min: Bound | None = None
    max: Bound | None = None
    one_of: Annotated[list[Scalar], Field(min_length=1, max_length=200)] | None = None
    absent: bool = False

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        try:
            steps_of(self.arg)
        except InvalidError as error:
            raise ValueError(str(error)) from error
        bounds = (self.min, self.max)
        if self.absent and (self.pattern, self.one_of, *bounds) != (None, None, None, None):
            raise ValueError("an argument that is absent can't be anything else")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is more than max")
        return self

    def match(self) -> ArgumentMatch:
        """Return what the core makes of it."""
        return ArgumentMatch(
            self.arg,
            self.pattern,
            self.min,
            self.max,
            None if self.one_of is None else tuple(self.one_of),
            self.absent,
        )


class RateSpec(_Spec):
    """From the call on that is one more than this within the time, the rule fits."""

    more_than: Annotated[int, Field(ge=0, le=1_000_000)]
    within_s: Annotated[float, Field(gt=0, le=31 * 86_400)]
    per: RatePer = "tenant"


class RuleSpec(_Spec):
    """A rule in full; `arg` and `pattern` are short for one of `args`."""

    tool: Glob
    arg: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    pattern: Annotated[str, Field(max_length=1_000)] | None = None
    args: Annotated[list[ArgumentSpec], Field(max_length=20)] = []
    rate: RateSpec | None = None
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.arg is None) != (self.pattern is None):
            raise ValueError("arg and pattern go together; for anything else use args")
        if self.arg is not None:
            ArgumentSpec(arg=self.arg, pattern=self.pattern)
        return self

    def rule(self) -> Rule:
        """Return what the core makes of it."""
        short = [] if self.arg is None else [ArgumentMatch(self.arg, self.pattern)]
        return Rule(
            self.tool,
            (*short, *(each.match() for each in self.args)),
            None if self.rate is None else Rate(**self.rate.model_dump()),
            self.reason,
        )


class AllowRuleSpec(RuleSpec):
    """A rule that allows. A rate fits what is too much, and so it can't."""

    @model_validator(mode="after")
    def _allows_no_excess(self) -> Self:
        if self.rate is not None:
            raise ValueError(
                "a rate fits from one call too many on; put it into ask or deny, and allow the rest"
            )
        return self


class DenyRuleSpec(RuleSpec):
    """A rule of `deny_when`, which is about more than a tool's name."""

    @model_validator(mode="after")
    def _is_about_more(self) -> Self:
        if self.arg is None and not self.args and self.rate is None:
            raise ValueError("deny_when looks at arguments or rates; name a tool alone in deny")
        return self


class AskRuleSpec(RuleSpec):
    """A rule that asks, and how; durations are in seconds."""

    required: Annotated[int, Field(ge=1, le=50)] = 1
    approvers: Approvers = []
    self_approval: bool = True
    ttl_s: Seconds | None = None
    on_timeout: OnTimeout = "deny"
    escalate_to: Approvers = []
    remind_s: Seconds | None = None

    @model_validator(mode="after")
    def _can_be_answered(self) -> Self:
        if (self.on_timeout == "escalate") != bool(self.escalate_to):
            raise ValueError('escalate_to and on_timeout="escalate" go together')
        for named in (self.approvers, self.escalate_to):
            closed = named and not any(each.startswith("scope:") for each in named)
            if closed and len(set(named)) < self.required:
                raise ValueError(
                    f"{self.required} must say yes, and only {len(set(named))} may; name more"
                )
        return self

    def rule(self) -> Rule:
        """Return what the core makes of it."""
        plain = super().rule()
        terms = Terms(
            self.required,
            tuple(self.approvers),
            self.self_approval,
            self.ttl_s,
            self.on_timeout,
            tuple(self.escalate_to),
            self.remind_s,
        )
        return Rule(plain.tool, plain.args, plain.rate, plain.reason, terms)


class PolicySpec(_Spec):
    """Rules by what they decide, each a glob over tool names or a rule in full."""

    deny_when: Annotated[list[DenyRuleSpec], Field(max_length=RULES_MAX)] = []
    deny: Annotated[list[Glob | RuleSpec], Field(max_length=RULES_MAX)] = []
    ask: Annotated[list[Glob | AskRuleSpec], Field(max_length=RULES_MAX)] = []
    allow: Annotated[list[Glob | AllowRuleSpec], Field(max_length=RULES_MAX)] = []

    def policy(self) -> Policy:
        """Return what the core makes of it."""
        return Policy(
            deny=_rules(self.deny),
            ask=_rules(self.ask),
            allow=_rules(self.allow),
            deny_when=_rules(self.deny_when),
        )


def _rules(written: list[Any]) -> Rules:
    return tuple(each if isinstance(each, str) else each.rule() for each in written)


def show_policy(policy: Policy | None) -> dict[str, Any] | None:
    """Return a policy in the words of its spec; what says nothing is left out."""
    if policy is None:
        return None
    shown = {
        name: [each if isinstance(each, str) else _shown(each) for each in getattr(policy, name)]
        for name in ("deny", "ask", "allow", "deny_when")
    }
    if not shown["deny_when"]:
        del shown["deny_when"]
    return shown


def _shown(rule: Rule) -> dict[str, Any]:
    shown: dict[str, Any] = {"tool": rule.tool}
    if rule.args:
        shown["args"] = [_shown_match(each) for each in rule.args]
    if rule.rate:
        rate = rule.rate
        shown["rate"] = {"more_than": rate.more_than, "within_s": rate.within_s, "per": rate.per}
    if rule.reason is not None:
        shown["reason"] = rule.reason
    return {**shown, **show_terms(rule.terms)}


def _shown_match(match: ArgumentMatch) -> dict[str, Any]:
    said = {
        "pattern": match.pattern,
        "min": match.minimum,
        "max": match.maximum,
        "one_of": None if match.one_of is None else list(match.one_of),
        "absent": match.absent or None,
    }
    return {"arg": match.arg, **{name: value for name, value in said.items() if value is not None}}


def show_terms(terms: Terms) -> dict[str, Any]:
    """Return the terms that differ from the plain ones."""
    said = {
        "required": terms.required,
        "approvers": list(terms.approvers),
        "self_approval": terms.self_approval,
        "ttl_s": terms.ttl_s,
        "on_timeout": terms.on_timeout,
        "escalate_to": list(terms.escalate_to),
        "remind_s": terms.remind_s,
    }
    return {name: value for name, value in said.items() if value != _PLAIN[name]}


_PLAIN: Mapping[str, Any] = {
    "required": 1,
    "approvers": [],
    "self_approval": True,
    "ttl_s": None,
    "on_timeout": "deny",
    "escalate_to": [],
    "remind_s": None,
}


def read_policy(shown: Mapping[str, Any] | None) -> Policy | None:
    """Return the policy that `show_policy` showed.

    Nothing is asked of it: what was once written holds, also where it could not be written today.
    """
    if shown is None:
        return None
    return Policy(
        *(
            tuple(each if isinstance(each, str) else _read_rule(each) for each in shown[name])
            if name in shown
            else ()
            for name in ("deny", "ask", "allow", "deny_when")
        )
    )


def _read_rule(shown: Mapping[str, Any]) -> Rule:
    rate = shown.get("rate")
    return Rule(
        shown["tool"],
        tuple(map(_read_match, shown.get("args", ()))),
        None if rate is None else Rate(rate["more_than"], rate["within_s"], rate["per"]),
        shown.get("reason"),
        read_terms(shown),
    )


def _read_match(shown: Mapping[str, Any]) -> ArgumentMatch:
    one_of = shown.get("one_of")
    return ArgumentMatch(
        shown["arg"],
        shown.get("pattern"),
        shown.get("min"),
        shown.get("max"),
        None if one_of is None else tuple(one_of),
        shown.get("absent", False),
    )


def read_terms(shown: Mapping[str, Any]) -> Terms:
    """Return the terms that `show_terms` showed."""
    said = {**_PLAIN, **{name: shown[name] for name in _PLAIN if name in shown}}
    return Terms(
        **{**said, "approvers": tuple(said["approvers"]), "escalate_to": tuple(said["escalate_to"])}
    )
