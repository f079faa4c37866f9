"""Verdicts: the strictest list that names a tool has the word."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.approvers import NOBODY_KNOWN, Asker
from milepost.core.arguments import ArgumentMatch
from milepost.core.policy import (
    Asked,
    Grant,
    Judgement,
    Policy,
    Rate,
    Rule,
    Standing,
    Terms,
    Verdict,
)
from milepost.core.policy import judge as judged

CLERK = Policy(deny=("delete_*",), ask=("send_*", "delete_later"), allow=("get_*", "send_ping"))
GLOBS = st.lists(st.sampled_from(["get_*", "send_*", "*_email", "get_mail", "*", "x"])).map(tuple)
POLICIES = st.builds(Policy, GLOBS, GLOBS, GLOBS)
TOOLS = st.sampled_from(["get_mail", "send_email", "send_ping", "x", "y"])


def judge(policy: Policy | None, tool: str, *, gated: bool) -> Judgement:
    return judged(policy, Asked(tool, gated=gated))


@pytest.mark.parametrize(
    ("tool", "verdict", "reason"),
    [
        ("get_mail", "allow", "policy: allow get_*"),
        ("send_mail", "ask", "policy: ask send_*"),
        ("delete_mail", "deny", "policy: deny delete_*"),
        ("delete_later", "deny", "policy: deny delete_*"),
        ("send_ping", "ask", "policy: ask send_*"),
        ("rename", "ask", "policy: no rule names rename"),
        ("GET_MAIL", "ask", "policy: no rule names GET_MAIL"),
    ],
)
def test_deny_goes_before_ask_and_ask_before_allow(tool: str, verdict: str, reason: str) -> None:
    judgement = judge(CLERK, tool, gated=False)

    assert (judgement.verdict, judgement.reason) == (Verdict(verdict), reason)


def test_without_a_policy_only_the_tools_own_gate_counts() -> None:
    assert judge(None, "refund", gated=False).verdict is Verdict.ALLOW
    gated = judge(None, "refund", gated=True)
    assert (gated.verdict, gated.reason) == (Verdict.ASK, "tool: refund requires approval")


def test_a_policy_that_says_nothing_asks_for_everything() -> None:
    assert judge(Policy(), "get_mail", gated=False).verdict is Verdict.ASK


def test_an_argument_that_was_left_out_is_not_there_whatever_its_default_is() -> None:
    there = Policy(deny=(Rule("pay", (ArgumentMatch("note"),)),), allow=("*",))
    small = Policy(deny=(Rule("pay", (ArgumentMatch("amount", maximum=9),)),), allow=("*",))
    left_out = Asked("pay", {"note": "", "amount": 5}, given={})

    assert judged(there, left_out).verdict is Verdict.ALLOW
    assert judged(there, replace(left_out, given={"note": ""})).verdict is Verdict.DENY
    assert judged(small, left_out).verdict is Verdict.DENY


@given(st.none() | POLICIES, TOOLS)
def test_a_gate_never_makes_a_verdict_milder(policy: Policy | None, tool: str) -> None:
    strictness: list[Verdict | None] = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]
    open_, gated = (judge(policy, tool, gated=gate).verdict for gate in (False, True))

    assert strictness.index(gated) >= strictness.index(open_)
    assert gated is not Verdict.ALLOW
    assert (open_ is Verdict.DENY) == (gated is Verdict.DENY)


@given(POLICIES, TOOLS, GLOBS)
def test_a_longer_deny_list_denies_no_less(
    policy: Policy, tool: str, more: tuple[str, ...]
) -> None:
    stricter = Policy((*policy.deny, *more), policy.ask, policy.allow)

    if judge(policy, tool, gated=False).verdict is Verdict.DENY:
        assert judge(stricter, tool, gated=False).verdict is Verdict.DENY


LEVELS = st.none() | POLICIES
STRICTNESS: list[Verdict | None] = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]


def standing(tenant: Policy | None, session: Policy | None, *grants: Grant) -> Standing:
    return Standing(tenant, session, grants)


def to(tool: str, digest: str | None = None) -> Grant:
    return Grant("gra_1", tool, digest, "user:ann", 2**53)


def denies(policy: Policy | None, tool: str) -> bool:
    return judge(policy, tool, gated=False).verdict is Verdict.DENY


@given(LEVELS, LEVELS, LEVELS, TOOLS, st.booleans())
def test_levels_together_deny_whatever_one_of_them_denies(
    tenant: Policy | None, session: Policy | None, agent: Policy | None, tool: str, granted: bool
) -> None:
    grants = (to(tool),) if granted else ()

    together = judged(agent, Asked(tool), standing(tenant, session, *grants)).verdict

    assert (together is Verdict.DENY) == any(denies(p, tool) for p in (tenant, session, agent))


@given(LEVELS, LEVELS, LEVELS, TOOLS)
def test_a_level_that_allows_nothing_makes_nothing_milder(
    tenant: Policy | None, session: Policy | None, agent: Policy | None, tool: str
) -> None:
    strict = None if tenant is None else replace(tenant, allow=())

    without = judged(agent, Asked(tool), standing(None, session)).verdict
    with_it = judged(agent, Asked(tool), standing(strict, session)).verdict

    assert STRICTNESS.index(with_it) >= STRICTNESS.index(without)


@given(LEVELS, LEVELS, TOOLS, TOOLS, st.booleans())
def test_a_grant_opens_its_own_tool_alone_and_no_deny(
    tenant: Policy | None, agent: Policy | None, tool: str, granted: str, gated: bool
) -> None:
    asked = Asked(tool, gated=gated)
    without = judged(agent, asked, standing(tenant, None))
    with_it = judged(agent, asked, standing(tenant, None, to(granted)))

    if without.verdict is Verdict.DENY or tool != granted:
        assert with_it == without
    else:
        assert with_it.verdict is Verdict.ALLOW


@pytest.mark.parametrize(("digest", "verdict"), [("one", "allow"), ("other", "ask"), ("", "ask")])
def test_a_grant_of_one_call_opens_no_call_with_other_arguments(digest: str, verdict: str) -> None:
    asked = Asked("send_mail", digest=digest)

    judgement = judged(CLERK, asked, standing(None, None, to("send_mail", "one")))

    assert judgement.verdict == Verdict(verdict)


@pytest.mark.parametrize(
    "terms",
    [Terms(required=2), Terms(approvers=("user:bob",)), Terms(self_approval=False)],
    ids=["two", "named", "somebody else"],
)
def test_a_grant_of_a_tool_answers_nothing_that_not_anybody_may_answer(terms: Terms) -> None:
    policy = Policy(ask=(Rule("pay", (ArgumentMatch("cents", minimum=100),), terms=terms), "pay"))
    small, large = Asked("pay", {"cents": 5}, "small"), Asked("pay", {"cents": 500}, "large")
    theirs = replace(to("pay", "large"), approvers=("user:bob",), foreign_to=NOBODY_KNOWN)
    anything, this = standing(None, None, to("pay")), standing(None, None, theirs)

    assert judged(policy, small, anything).verdict is Verdict.ALLOW
    assert judged(policy, large, anything).verdict is Verdict.ASK
    alone = terms.required == 1
    assert judged(policy, large, this).verdict is (Verdict.ALLOW if alone else Verdict.ASK)


ANN, BOB = Asker("key_ann", "ann"), Asker("key_bob", None)


@pytest.mark.parametrize(
    ("foreign_to", "asker", "verdict"),
    [(ANN, ANN, "allow"), (ANN, BOB, "ask"), (ANN, Asker("key_ann", None), "ask"),
     (None, ANN, "ask"), (None, NOBODY_KNOWN, "ask")],
    ids=["the same asker", "another one", "for another user", "given by anybody", "nobody known"],
)  # fmt: skip
def test_a_grant_stands_for_somebody_elses_yes_only_in_runs_of_who_it_is_foreign_to(
    foreign_to: Asker | None, asker: Asker, verdict: str
) -> None:
    policy = Policy(ask=(Rule("pay", terms=Terms(self_approval=False)),))
    grant = replace(to("pay", "one"), foreign_to=foreign_to)

    judgement = judged(policy, Asked("pay", digest="one", asker=asker), standing(None, None, grant))

    assert judgement.verdict == Verdict(verdict)


@pytest.mark.parametrize(
    ("approvers", "verdict"),
    [(("user:ann",), "allow"), (("user:ann", "user:bob"), "allow"), (("user:cas",), "allow"),
     (("user:ann", "user:dan"), "ask"), ((), "ask")],
    ids=["one", "all", "after an escalation", "others too", "anybody"],
)  # fmt: skip
def test_a_grant_stands_for_the_yes_of_those_alone_whom_the_rule_names(
    approvers: tuple[str, ...], verdict: str
) -> None:
    terms = Terms(approvers=("user:ann", "user:bob"), escalate_to=("user:cas",))
    grant = replace(to("pay", "one"), approvers=approvers)

    judgement = judged(
        Policy(ask=(Rule("pay", terms=terms),)),
        Asked("pay", digest="one"),
        standing(None, None, grant),
    )

    assert judgement.verdict == Verdict(verdict)


@pytest.mark.parametrize("rate", [None, Rate(more_than=1, within_s=60)])
def test_rules_together_take_no_longer_than_patience_and_what_was_not_read_is_denied(
    rate: Rate | None,
) -> None:
    slow = [ArgumentMatch("x", "*" + "a" * 990 + str(n)) for n in range(200)]
    policy = Policy(deny=tuple(Rule("pay", (each,), rate=rate) for each in slow))

    judgement = judged(policy, Asked("pay", {"x": "a" * 180_000}))
    if judgement.counts:  # There was no time to see that none of them is about it.
        counted = {each.key: 0 for each in judgement.counts}
        judgement = judged(policy, Asked("pay", {"x": "a" * 180_000}), counts=counted)

    assert judgement.verdict is Verdict.DENY
    assert judged(policy, Asked("pay", {"x": "a"})).verdict is Verdict.ASK


def test_where_several_rules_ask_all_their_terms_hold() -> None:
    two = Terms(required=2, ttl_s=60)
    finance = Terms(approvers=("scope:finance", "user:bob"), on_timeout="fail", ttl_s=600)
    not_self = Terms(self_approval=False, remind_s=5, approvers=("user:bob", "user:eve"))
    tenant, agent = (
        Policy(ask=(Rule("pay", terms=finance),)),
        Policy(ask=(Rule("pay", terms=two), Rule("p*", terms=not_self))),
    )

    judgement = judged(agent, Asked("pay"), standing(tenant, None))

    assert judgement.terms == Terms(2, ("user:bob",), False, 60, "fail", (), 5)
    assert judgement.reason == "policy: ask pay"


def test_silence_means_what_the_rule_says_that_names_somebody_unless_another_one_fails() -> None:
    plain = Rule("pay", terms=Terms(required=2))
    named = Terms(approvers=("user:bob",), on_timeout="escalate", escalate_to=("user:eve",))
    failing = Rule("pay", terms=Terms(on_timeout="fail"))

    escalated = judged(Policy(ask=(plain, Rule("pay", terms=named))), Asked("pay")).terms
    failed = judged(Policy(ask=(plain, Rule("pay", terms=named), failing)), Asked("pay")).terms

    assert (escalated.on_timeout, escalated.escalate_to) == ("escalate", ("user:eve",))
    assert (failed.on_timeout, failed.escalate_to) == ("fail", ())


def test_where_many_rules_name_people_those_may_answer_whom_all_of_them_name() -> None:
    two, one = ("user:ann", "user:bob"), ("user:eve", "user:bob")
    rules = [Rule("pay", terms=Terms(approvers=named)) for named in (two, two, one)]

    assert judged(Policy(ask=tuple(rules)), Asked("pay")).terms.approvers == ("user:bob",)


def test_of_one_rule_that_asks_the_terms_hold_as_they_are() -> None:
    terms = Terms(2, ("user:bob",), False, 60, "escalate", ("user:eve",), 5)

    assert judged(Policy(ask=(Rule("pay", terms=terms),)), Asked("pay")).terms == terms


def test_of_rules_that_ask_the_one_is_named_that_is_hardest_to_meet() -> None:
    plain, named = Rule("pay"), Rule("pa*", terms=Terms(approvers=("user:bob",)))
    not_self = Rule("p*", terms=Terms(self_approval=False))
    two = Rule("*", terms=Terms(required=2))

    asking = [(plain, named), (plain, named, not_self), (plain, named, not_self, two)]
    named_ones = [judged(Policy(ask=rules), Asked("pay")).reason for rules in asking]

    assert named_ones == ["policy: ask pa*", "policy: ask p*", "policy: ask *"]


def test_the_count_that_a_rule_fits_beyond_is_told() -> None:
    (wanted,) = judged(Policy(deny=(OFTEN,)), Asked("pay")).counts

    judgement = judged(Policy(deny=(OFTEN,)), Asked("pay"), counts={wanted.key: 4})

    assert judgement.reason == "policy: deny pay more than 3 in 60 s"


def test_of_two_rules_that_name_others_the_tenants_has_the_word() -> None:
    tenant = Policy(ask=(Rule("pay", terms=Terms(approvers=("user:ann",))),))
    agent = Policy(ask=(Rule("pay", terms=Terms(approvers=("user:bob",))),))

    assert judged(agent, Asked("pay"), standing(tenant, None)).terms.approvers == ("user:ann",)


@pytest.mark.parametrize(
    ("list_name", "verdict"), [("deny", "deny"), ("deny_when", "deny"), ("ask", "ask")]
)
def test_what_forbids_or_asks_needs_one_element_and_what_allows_needs_all(
    list_name: str, verdict: str
) -> None:
    outside, inside = ArgumentMatch("to", "*@evil.com"), ArgumentMatch("to", "*@acme.com")
    policy = Policy(**{list_name: (Rule("mail", (outside,)),)}, allow=("mail",))
    asked = Asked("mail", {"to": ["a@acme.com", "b@evil.com"]})

    assert judged(policy, asked).verdict == Verdict(verdict)
    assert judged(Policy(allow=(Rule("mail", (inside,)),)), asked).verdict is Verdict.ASK


def test_a_rule_wants_all_of_its_arguments() -> None:
    rule = Rule("pay", (ArgumentMatch("cents", minimum=100), ArgumentMatch("note", absent=True)))

    judgement = judged(Policy(deny_when=(rule,)), Asked("pay", {"cents": 500}))

    said = "policy: deny_when pay where cents is 100 or more and note is absent"
    assert (judgement.verdict, judgement.reason) == (Verdict.DENY, said)
    allowing = Policy(deny_when=(rule,), allow=("*",))
    assert judged(allowing, Asked("pay", {"cents": 500, "note": "x"})).verdict is Verdict.ALLOW
    assert judged(allowing, Asked("pay", {"cents": 5})).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("glob", "tool", "fitting"),
    [
        ("agent:*", "agent:clerk", True),
        ("agent:*", "agent_clerk", False),
        ("files__*", "files__read", True),
        ("files__*", "Files__read", False),
        ("*__delete_*", "files__delete_all", True),
        ("delete_?", "delete_1", True),
        ("[a-c]dd", "add", True),
        ("add", "\u0430dd", False),
        ("add*", "add\n", True),
        ("", "", True),
    ],
)
def test_a_glob_takes_a_name_letter_by_letter(glob: str, tool: str, fitting: bool) -> None:
    verdict = judge(Policy(deny=(glob,)), tool, gated=False).verdict

    assert (verdict is Verdict.DENY) is fitting


def test_an_unknown_look_alike_is_asked_about_whatever_its_twin_may_do() -> None:
    assert judge(Policy(allow=("add",)), "\u0430dd", gated=False).verdict is Verdict.ASK


OFTEN = Rule("pay", rate=Rate(3, 60))


@given(st.integers(1, 9))
def test_a_rate_fits_from_the_call_on_that_is_one_too_many(count: int) -> None:
    policy = Policy(ask=(OFTEN,), allow=("pay",))
    (wanted,) = judged(policy, Asked("pay")).counts

    judgement = judged(policy, Asked("pay"), counts={wanted.key: count})

    assert judgement.verdict is (Verdict.ASK if count > 3 else Verdict.ALLOW)


@pytest.mark.parametrize(
    ("list_name", "few", "many"),
    [
        ("deny_when", "ask", "deny"),
        ("deny", "ask", "deny"),
        ("ask", "ask", "ask"),
        ("allow", "ask", "allow"),
    ],
)
def test_a_rule_with_a_rate_is_counted_first_in_whatever_list_it_stands(
    list_name: str, few: str, many: str
) -> None:
    policy = Policy(**{list_name: (OFTEN,)})
    (wanted,) = judged(policy, Asked("pay")).counts

    verdicts = [
        judged(policy, Asked("pay"), counts={wanted.key: count}).verdict for count in (3, 4)
    ]

    assert judged(policy, Asked("pay")).verdict is None
    assert verdicts == [Verdict(few), Verdict(many)]


def test_one_count_serves_all_rules_that_count_the_same() -> None:
    policy = Policy(deny=(Rule("pay", rate=Rate(9, 60)),), ask=(OFTEN,), allow=("pay",))
    (wanted,) = judged(policy, Asked("pay")).counts

    assert wanted.most == 10
    verdicts = [
        judged(policy, Asked("pay"), counts={wanted.key: count}).verdict for count in (3, 4, 10)
    ]
    assert verdicts == [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]


def test_a_count_goes_as_far_as_the_last_of_the_rules_that_want_it() -> None:
    far = Rule("pay", rate=Rate(9, 60), terms=Terms(required=2))
    policy = Policy(ask=(OFTEN, far))
    (wanted,) = judged(policy, Asked("pay")).counts

    required = [
        judged(policy, Asked("pay"), counts={wanted.key: count}).terms.required for count in (4, 10)
    ]

    assert (wanted.most, required) == (10, [1, 2])


def test_what_rules_count_of_other_calls_is_counted_apart() -> None:
    noted = ArgumentMatch("note", absent=True)
    rules = (
        OFTEN,
        Rule("p*", rate=OFTEN.rate),
        Rule("pay", (noted,), OFTEN.rate),
        Rule("pay", rate=Rate(3, 61)),
        Rule("pay", rate=Rate(3, 60, "user")),
    )

    counts = judged(Policy(ask=rules), Asked("pay"), standing(Policy(ask=(OFTEN,)), None)).counts

    assert len(counts) == len(rules) + 1


def test_what_no_rule_with_a_rate_is_about_is_not_counted() -> None:
    large = Rule("pay", (ArgumentMatch("cents", minimum=100),), Rate(3, 60))

    assert judged(Policy(deny=(large,)), Asked("pay", {"cents": 5})).counts == ()
    assert judged(Policy(deny=(OFTEN,)), Asked("add")).counts == ()


def test_the_reason_of_a_rule_is_told_with_where_it_stands() -> None:
    rule = Rule("pay", reason="the books are closed")

    of_session = judged(None, Asked("pay"), standing(None, Policy(deny=(rule,))))

    assert of_session.reason == "session's policy: deny pay: the books are closed"
