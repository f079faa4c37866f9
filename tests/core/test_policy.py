"""Verdicts: the strictest list that names a tool has the word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.policy import Judgement, Policy, Verdict, judge

CLERK = Policy(deny=("delete_*",), ask=("send_*", "delete_later"), allow=("get_*", "send_ping"))
GLOBS = st.lists(st.sampled_from(["get_*", "send_*", "*_email", "get_mail", "*", "x"])).map(tuple)
POLICIES = st.builds(Policy, GLOBS, GLOBS, GLOBS)
TOOLS = st.sampled_from(["get_mail", "send_email", "send_ping", "x", "y"])


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
    assert judge(CLERK, tool, gated=False) == Judgement(Verdict(verdict), reason)


def test_without_a_policy_only_the_tools_own_gate_counts() -> None:
    assert judge(None, "refund", gated=False).verdict is Verdict.ALLOW
    assert judge(None, "refund", gated=True) == Judgement(
        Verdict.ASK, "tool: refund requires approval"
    )


def test_a_policy_that_says_nothing_asks_for_everything() -> None:
    assert judge(Policy(), "get_mail", gated=False).verdict is Verdict.ASK


@given(st.none() | POLICIES, TOOLS)
def test_a_gate_never_makes_a_verdict_milder(policy: Policy | None, tool: str) -> None:
    strictness = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]
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
