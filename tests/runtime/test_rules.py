"""What becomes of a call: does it exist, does it fit, may it; anything but a plain yes is no."""

import pytest

from milepost.core.agents import Agent
from milepost.core.arguments import ArgumentMatch
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.policy import Policy, Rule
from milepost.core.rulings import Ask, Refuse, Reject, Ruling, Run
from milepost.runtime.permits import Identity, Permits
from milepost.runtime.rules import rules_for
from milepost.tools import Registry, tool, tool_of


@tool(effect="read")
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


TOOLS = Registry([tool_of(add), tool_of(pay)])


def ruled(
    name: str,
    arguments: dict[str, Json],
    policy: Policy | None = None,
    malformed: str | None = None,
) -> Ruling:
    agent = Agent("agt_1", 1, "clerk", "test/model", tools=("add", "pay", "gone"), policy=policy)
    return rules_for(agent, TOOLS).judge(ToolCall("call_1_0", name, arguments, malformed=malformed))


def test_a_call_runs_with_its_arguments_mended() -> None:
    assert ruled("add", {"a": "2", "b": 1}) == Run({"a": 2, "b": 1}, "read", ('a: "2" became 2',))


def test_what_a_call_leaves_out_is_judged_and_asked_about_as_the_tool_will_have_it() -> None:
    large = ArgumentMatch("b", minimum=1)

    assert ruled("add", {"a": 2}) == Run({"a": 2, "b": 1}, "read")
    assert ruled("add", {"a": 2}, Policy(deny_when=(Rule("add", (large,)),))) == Refuse(
        "policy", "policy: deny_when add where b is 1 or more"
    )
    assert ruled("add", {"a": 2}, Policy(ask=("add",))) == Ask(
        {"a": 2, "b": 1}, "read", "policy: ask add"
    )


@pytest.mark.parametrize(
    ("match", "given", "denied"),
    [
        (ArgumentMatch("b", absent=True), {"a": 2}, True),
        (ArgumentMatch("b", absent=True), {"a": 2, "b": 1}, False),
        (ArgumentMatch("b"), {"a": 2}, False),
        (ArgumentMatch("b"), {"a": 2, "b": 1}, True),
    ],
    ids=str,
)
def test_what_is_left_out_is_absent_whatever_its_default(
    match: ArgumentMatch, given: dict[str, Json], denied: bool
) -> None:
    ruling = ruled("add", given, Policy(allow=("*",), deny_when=(Rule("add", (match,)),)))

    assert isinstance(ruling, Refuse) == denied


def test_a_tool_may_ask_by_itself() -> None:
    ruling = ruled("pay", {"cents": 5})

    assert ruling == Ask({"cents": 5}, "once", "tool: pay requires approval")


def test_a_policy_asks_and_denies() -> None:
    assert ruled("add", {"a": 1, "b": 1}, Policy(ask=("a*",))) == Ask(
        {"a": 1, "b": 1}, "read", "policy: ask a*"
    )
    assert ruled("pay", {"cents": 5}, Policy(deny=("pay",))) == Refuse("policy", "policy: deny pay")


@pytest.mark.parametrize("name", ["sing", "gone"])
def test_a_tool_that_is_not_there_is_named_with_those_that_are(name: str) -> None:
    ruling = ruled(name, {})

    assert isinstance(ruling, Reject)
    assert ruling.error.code == "unknown_tool"
    assert ruling.error.message == f"there is no tool {name!r}; the tools are: add, pay"


def test_arguments_that_do_not_fit_are_explained_before_anybody_is_asked() -> None:
    ruling = ruled("pay", {"cents": "many"})

    assert isinstance(ruling, Reject)
    assert ruling.error.code == "invalid_arguments"


def test_arguments_that_are_no_object_are_shown_as_they_were_written() -> None:
    ruling = ruled("pay", {}, malformed='{"cents": ')

    assert isinstance(ruling, Reject)
    assert """'{"cents": '""" in ruling.error.message


def test_the_agents_limits_are_the_loops() -> None:
    agent = Agent("agt_1", 1, "clerk", "test/model")

    assert rules_for(agent, TOOLS).limits is agent.limits


@tool(permissions=["ann"], requires_approval=True)
def refund(cents: int) -> str:
    """Refund."""
    return f"refunded {cents}"


UNKNOWN = "refund is for certain users alone, and nobody knows whose run this is"
OTHER = "refund is not permitted to this user; do without it"
GATED = Ask({"cents": 5}, "once", "tool: refund requires approval")


@pytest.mark.parametrize(
    ("identity", "policy", "ruling"),
    [
        (Identity(), Policy(deny=("*",)), Refuse("permission", UNKNOWN)),
        (Identity("bob"), Policy(allow=("*",)), Refuse("permission", OTHER)),
        (Identity("ann"), Policy(deny=("*",)), Refuse("policy", "policy: deny *")),
        (Identity("ann"), Policy(allow=("*",)), GATED),
    ],
)
def test_permission_is_judged_before_policy_and_policy_before_approval(
    identity: Identity, policy: Policy, ruling: Ruling
) -> None:
    agent = Agent("agt_1", 1, "clerk", "test/model", tools=("refund",), policy=policy)
    rules = rules_for(agent, Registry([tool_of(refund)]), Permits(identity))

    assert rules.judge(ToolCall("call_1_0", "refund", {"cents": 5})) == ruling


def test_who_may_not_call_a_tool_learns_nothing_of_its_arguments_or_its_name() -> None:
    agent = Agent("agt_1", 1, "clerk", "test/model", tools=("refund", "add"))
    judge = rules_for(agent, Registry([tool_of(refund), tool_of(add)])).judge

    wrong = judge(ToolCall("call_1_0", "refund", {"dollars": 5}))
    unknown = judge(ToolCall("call_1_1", "refnud", {}))

    assert isinstance(wrong, Refuse)
    assert isinstance(unknown, Reject)
    assert unknown.error.message == "there is no tool 'refnud'; the tools are: add"
