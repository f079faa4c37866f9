"""Who may call what, and who is asked first: rules, read from the strictest to the mildest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

from milepost.core.approvers import NOBODY_KNOWN, Asker
from milepost.core.arguments import ArgumentMatch, Effort, Quantifier, fits
from milepost.core.canonical import digest
from milepost.core.json import Json

RatePer = Literal["tenant", "agent", "session", "user", "run"]
OnTimeout = Literal["deny", "escalate", "fail"]

NOBODY_COUNTED: Mapping[str, int] = {}


class Verdict(StrEnum):
    """What becomes of a call before it runs."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rate:
    """Fits from the call on that is one more than `more_than` within `within_s` seconds.

    Calls are counted for all that `per` names, each once, whatever became of it.
    """

    more_than: int
    within_s: float
    per: RatePer = "tenant"


@dataclass(frozen=True, slots=True)
class Terms:
    """How people are asked. Durations are in seconds; None: the agent's own.

    `approvers` may answer, anybody with the scope if there are none: `key:<id>`, `user:<subject>`,
    `scope:<name>` or `channel:<channel>:<user>`. Without `self_approval` whoever has asked for the
    run may not.
    `on_timeout` says what silence means; with `escalate` the question goes to `escalate_to` for
    another `ttl_s`, and after that silence is a no. After `remind_s` people are reminded.
    """

    required: int = 1
    approvers: tuple[str, ...] = ()
    self_approval: bool = True
    ttl_s: float | None = None
    on_timeout: OnTimeout = "deny"
    escalate_to: tuple[str, ...] = ()
    remind_s: float | None = None


PLAIN = Terms()


@dataclass(frozen=True, slots=True)
class Rule:
    """Calls of tools whose name fits the glob `tool`, with arguments that all of `args` fit.

    `reason` is told to the model and in the inbox; `terms` matter where the rule asks.
    """

    tool: str
    args: tuple[ArgumentMatch, ...] = ()
    rate: Rate | None = None
    reason: str | None = None
    terms: Terms = PLAIN


Rules = tuple[Rule | str, ...]
"""A text is a glob on tool names, and a rule by itself."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules by what they decide. What no list of an agent's policy fits is asked."""

    deny: Rules = ()
    ask: Rules = ()
    allow: Rules = ()
    deny_when: Rules = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's yes that holds for a session: to a tool, or to it with the same arguments.

    `approvers` are those of whom its giver was one, and `foreign_to` is whose own yes it cannot
    be, as far as that mattered when it was given.
    """

    id: str
    tool: str
    digest: str | None
    by: str
    expires_ms: int
    approvers: tuple[str, ...] = ()
    foreign_to: Asker | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds besides the agent's own policy: its tenant's and its session's."""

    tenant: Policy | None = None
    session: Policy | None = None
    grants: tuple[Grant, ...] = ()


NOTHING_STANDS = Standing()


@dataclass(frozen=True, slots=True)
class Counted:
    """A count that a rule needs: of the calls that `key` stands for, within `within_s`.

    `most` is what matters: more is as much.
    """

    key: str
    per: RatePer
    within_s: float
    most: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and the rule that gave it, for the model, the inbox and the log.

    `terms` are those on which people are asked, or would be but for a grant or a denial. `counts`
    are those that have to be known before there can be a verdict, which is None then.
    """

    verdict: Verdict | None
    reason: str
    terms: Terms = PLAIN
    counts: tuple[Counted, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A call to be judged. `digest` binds the tool and its coerced arguments.

    `asker` is whose run makes it. `given` are the arguments without the defaults of what was left
    out, None where nothing was.
    """

    tool: str
    arguments: Mapping[str, Json] = field(default_factory=dict)
    digest: str = ""
    gated: bool = False
    asker: Asker = NOBODY_KNOWN
    given: Mapping[str, Json] | None = None

    def arguments_for(self, match: ArgumentMatch) -> Mapping[str, Json]:
        """Return where the match looks: what is there is what was given, and not left out."""
        if self.given is None or not match.is_about_presence:
            return self.arguments
        return self.given


def judge(
    policy: Policy | None,
    asked: Asked,
    standing: Standing = NOTHING_STANDS,
    counts: Mapping[str, int] = NOBODY_COUNTED,
) -> Judgement:
    """Judge a call: deny_when, deny, a grant, ask, allow; of each, the tenant's rules come first.

    The tool's own gate (`gated`) turns an allow into an ask, never a deny into anything, and a
    grant opens it. What no rule fits is asked if the agent has a policy, and else allowed.
    """
    case = _Case(_levels(policy, standing), asked, counts)
    if wanted := _once(case.uncounted()):
        return Judgement(None, "how often it was called has to be counted first", counts=wanted)
    for list_name in ("deny_when", "deny"):
        if found := next(case.fitting(list_name), None):
            return replace(_judgement(Verdict.DENY, list_name, *found), terms=case.asking()[1])
    questions, terms = case.asking()
    if grant := _granting(standing.grants, asked, terms):
        return Judgement(Verdict.ALLOW, f"grant: {grant.id}", terms)
    if questions:
        judgement = _judgement(Verdict.ASK, "ask", *max(questions, key=_strictness))
        return replace(judgement, terms=terms)
    allowed = next(case.fitting("allow"), None)
    if allowed is None and policy is not None:
        return Judgement(Verdict.ASK, f"policy: no rule names {asked.tool}")
    if asked.gated:
        return Judgement(Verdict.ASK, f"tool: {asked.tool} requires approval")
    if allowed is None:
        return Judgement(Verdict.ALLOW, "no policy")
    return _judgement(Verdict.ALLOW, "allow", *allowed)


_Found = tuple[str, Rule]
_Levels = tuple[tuple[str, Policy], ...]


def _levels(policy: Policy | None, standing: Standing) -> _Levels:
    named = (("tenant", standing.tenant), ("session", standing.session), ("agent", policy))
    return tuple((level, each) for level, each in named if each is not None)


@dataclass(frozen=True, slots=True)
class _Case:
    """One call before all rules, which it takes no longer to read than `effort` allows."""

    levels: _Levels
    asked: Asked
    counts: Mapping[str, int]
    effort: Effort = field(default_factory=Effort)

    def fitting(self, list_name: str) -> Iterator[_Found]:
        """Yield the rules of one list that fit, the tenant's first, each with its level."""
        for level, rule, how in _rules(self.levels, (list_name,)):
            if self._is_about(rule, how) and (rule.rate is None or self._is_excess(level, rule)):
                yield level, rule

    def asking(self) -> tuple[list[_Found], Terms]:
        """Return the rules that ask about the call, and the terms that meet them all."""
        questions = list(self.fitting("ask"))
        return questions, _all_of([rule.terms for _, rule in questions])

    def uncounted(self) -> Iterator[Counted]:
        """Yield what has to be counted first."""
        for level, rule, how in _rules(self.levels, ("deny_when", "deny", "ask", "allow")):
            if rule.rate and self._is_about(rule, how):
                counted = _key(level, rule)
                if counted.key not in self.counts:
                    yield counted

    def _is_excess(self, level: str, rule: Rule) -> bool:
        """Say whether it is one call too many; so is one that there was no time to look at."""
        counted = _key(level, rule)
        return self.counts.get(counted.key, counted.most) >= counted.most

    def _is_about(self, rule: Rule, how: Quantifier) -> bool:
        return fnmatchcase(self.asked.tool, rule.tool) and all(
            fits(match, self.asked.arguments_for(match), how, self.effort) for match in rule.args
        )


def _rules(levels: _Levels, list_names: Iterable[str]) -> Iterator[tuple[str, Rule, Quantifier]]:
    """Yield the rules of these lists; what allows must fit all of a list, what forbids any."""
    for list_name in list_names:
        how: Quantifier = "all" if list_name == "allow" else "any"
        for level, policy in levels:
            rules: Rules = getattr(policy, list_name)
            for rule in rules:
                yield level, Rule(rule) if isinstance(rule, str) else rule, how


def _key(level: str, rule: Rule) -> Counted:
    """Name what is counted: the calls that this very rule is about."""
    assert rule.rate is not None, "only a rule with a rate counts"
    rate = rule.rate
    spelled: Sequence[Json] = [
        level,
        rule.tool,
        [match.spelled() for match in rule.args],
        rate.within_s,
        rate.per,
    ]
    return Counted(digest(list(spelled)), rate.per, rate.within_s, rate.more_than + 1)


def _once(wanted: Iterable[Counted]) -> tuple[Counted, ...]:
    """Name each count once, as far as the rule wants it that looks furthest."""
    found: dict[str, Counted] = {}
    for each in wanted:
        if each.key not in found or each.most > found[each.key].most:
            found[each.key] = each
    return tuple(found.values())


def _granting(grants: Iterable[Grant], asked: Asked, terms: Terms) -> Grant | None:
    return next((grant for grant in grants if _opens(grant, asked, terms)), None)


def _opens(grant: Grant, asked: Asked, terms: Terms) -> bool:
    """Say whether a grant answers this call.

    One person gave it, so it answers nothing that needs several, whatever the rules were then. One
    for a tool answers only what anybody may answer: whoever said yes to a small payment has not
    said so for those that others have to see.
    """
    if grant.tool != asked.tool or terms.required > 1:
        return False
    if grant.digest is None:
        return may_be_granted(terms)
    return grant.digest == asked.digest and _counts(grant, asked.asker, terms)


def _counts(grant: Grant, asker: Asker, terms: Terms) -> bool:
    """Say whether its giver's yes would count if people were asked on these terms."""
    if not terms.self_approval and grant.foreign_to != asker:
        return False
    return are_named(grant.approvers, terms)


def are_named(asked: Iterable[str], terms: Terms) -> bool:
    """Say whether all who were asked may answer on these terms, too; with none, it was anybody.

    Those to whom a question is passed on are in the terms of its rule, too.
    """
    asked, named = frozenset(asked), frozenset(terms.approvers)
    return not named or (bool(asked) and asked <= named | frozenset(terms.escalate_to))


def may_be_granted(terms: Terms) -> bool:
    """Say whether a yes to one call may stand for all of the tool: if anybody could say it."""
    return terms.required == 1 and not terms.approvers and terms.self_approval


def _strictness(found: _Found) -> tuple[int, bool, bool]:
    """Where several rules ask, that one is named which is hardest to meet; of equals, the first."""
    terms = found[1].terms
    return terms.required, not terms.self_approval, bool(terms.approvers)


def _all_of(terms: Sequence[Terms]) -> Terms:
    """Return the terms that meet all of these; the first who names somebody says who it is.

    Those whom everybody names go before those whom the first does.
    """
    if len(terms) < 2:
        return terms[0] if terms else PLAIN
    named = [each for each in terms if each.approvers]
    silent = next((each for each in terms if each.on_timeout == "fail"), (named or terms)[0])
    return Terms(
        max(each.required for each in terms),
        _shared([each.approvers for each in named]),
        all(each.self_approval for each in terms),
        _least(each.ttl_s for each in terms),
        silent.on_timeout,
        silent.escalate_to,
        _least(each.remind_s for each in terms),
    )


def _shared(named: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    if not named:
        return ()
    both = tuple(each for each in named[0] if all(each in others for others in named[1:]))
    return both or named[0]


def _least(durations: Iterable[float | None]) -> float | None:
    return min((each for each in durations if each is not None), default=None)


def _judgement(verdict: Verdict, list_name: str, level: str, rule: Rule) -> Judgement:
    whose = "policy" if level == "agent" else f"{level}'s policy"
    reason = f"{whose}: {list_name} {_spelled(rule)}"
    if rule.reason:
        reason = f"{reason}: {rule.reason}"
    return Judgement(verdict, reason, rule.terms)


def _spelled(rule: Rule) -> str:
    """Return the rule as people would say it."""
    words = [rule.tool]
    words += [f"where {match}" for match in rule.args[:1]]
    words += [f"and {match}" for match in rule.args[1:]]
    if rule.rate:
        words.append(f"more than {rule.rate.more_than} in {rule.rate.within_s:g} s")
    return " ".join(words)
