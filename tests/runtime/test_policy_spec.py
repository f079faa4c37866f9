"""Policies as they are written, kept and shown: what is shown can be written again."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from milepost.core.arguments import ArgumentMatch
from milepost.core.policy import Policy, Rate, Rule, Terms
from milepost.runtime.policy_spec import PolicySpec, read_policy, show_policy

GLOBS = st.sampled_from(["*", "refund", "files__*", "agent:[a-c]*"])
SECONDS = st.none() | st.floats(1, 1_000)
MATCHES = st.builds(
    ArgumentMatch,
    st.sampled_from(["cents", "order.lines[*].sku", "$.to[0]"]),
    st.none() | st.text(max_size=5),
    st.none() | st.floats(-9, 0),
    st.none() | st.floats(0, 9),
    st.none() | st.lists(st.text(max_size=2) | st.booleans() | st.none(), min_size=1).map(tuple),
) | st.builds(ArgumentMatch, st.just("note"), absent=st.just(True))
ARGS = st.lists(MATCHES, min_size=1, max_size=2).map(tuple)
RATES = st.builds(
    Rate, st.integers(0, 9), st.floats(1, 60), st.sampled_from(["tenant", "agent", "user", "run"])
)
REASONS = st.none() | st.text(min_size=1, max_size=5)
TERMS = st.builds(
    Terms,
    required=st.integers(1, 2),
    approvers=st.sampled_from([(), ("scope:finance",), ("user:ann", "key:key_1")]),
    self_approval=st.booleans(),
    ttl_s=SECONDS,
    on_timeout=st.sampled_from(["deny", "fail"]),
    remind_s=SECONDS,
) | st.just(Terms(on_timeout="escalate", escalate_to=("user:bob",)))
RULES = st.builds(Rule, GLOBS, ARGS, st.none() | RATES, REASONS)
POLICIES = st.builds(
    Policy,
    deny=st.lists(GLOBS | RULES, max_size=2).map(tuple),
    ask=st.lists(
        GLOBS | st.builds(Rule, GLOBS, ARGS, st.none() | RATES, REASONS, TERMS), max_size=2
    ).map(tuple),
    allow=st.lists(GLOBS | st.builds(Rule, GLOBS, ARGS, st.none(), REASONS), max_size=2).map(tuple),
    deny_when=st.lists(RULES, max_size=2).map(tuple),
)


@given(POLICIES)
def test_what_is_shown_can_be_written_and_read_and_is_the_same(policy: Policy) -> None:
    shown = show_policy(policy)

    assert PolicySpec.model_validate(shown).policy() == policy
    assert read_policy(shown) == policy


def test_no_policy_is_shown_as_none() -> None:
    assert show_policy(None) is None
    assert read_policy(None) is None


def test_what_was_stored_before_rules_had_arguments_is_read() -> None:
    stored = {"deny": ["delete_*"], "ask": ["send_*"], "allow": ["*"]}

    assert read_policy(stored) == Policy(("delete_*",), ("send_*",), ("*",))


@pytest.mark.parametrize(
    "stored",
    [
        {"deny": [""], "ask": [], "allow": ["x" * 999]},
        {"allow": [{"tool": "pay", "rate": {"more_than": -1, "within_s": 0, "per": "run"}}]},
        {"deny": [{"tool": "pay", "required": 3}], "later": ["what another version added"]},
        {"deny_when": [{"tool": "pay"}]},
    ],
)
def test_what_could_not_be_written_today_is_read_as_it_was_stored(stored: dict[str, Any]) -> None:
    policy = read_policy(stored)

    assert policy is not None
    with pytest.raises(ValidationError):
        PolicySpec.model_validate(stored)


def test_the_short_form_of_a_rule_is_one_of_its_arguments() -> None:
    written = PolicySpec.model_validate(
        {"deny_when": [{"tool": "mail", "arg": "to", "pattern": "*@evil.com"}]}
    )

    assert written.policy().deny_when == (Rule("mail", (ArgumentMatch("to", "*@evil.com"),)),)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"args": [{"arg": "x", "min": math.nan}]}, "finite"),
        ({"args": [{"arg": "x", "max": math.inf}]}, "finite"),
        ({"args": [{"arg": "x", "min": True}]}, "number"),
        ({"args": [{"arg": "x", "absent": True, "pattern": "*"}]}, "can't be anything else"),
        ({"rate": {"more_than": 3, "within_s": 60}}, "one call too many"),
    ],
)
def test_a_rule_that_would_not_mean_what_it_says_is_refused(
    rule: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        PolicySpec.model_validate({"allow": [{"tool": "pay", **rule}]})
