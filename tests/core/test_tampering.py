"""Between the question and the run: whatever is changed, only what was approved is made."""

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from milepost.core.canonical import call_digest, canonical
from milepost.core.decide import decide
from milepost.core.effects import CallTool
from milepost.core.events import (
    ApprovalDecided,
    Event,
    RunResumed,
    RunWaiting,
    ToolCallRequested,
)
from milepost.core.evolve import fold
from milepost.core.json import Json
from milepost.core.rulings import Rules
from tests.core.logs import NOW_MS, allowing, approved, asked, asking, calling, replied

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
arguments = st.dictionaries(st.text(max_size=6), values, max_size=4)


def waiting(wanted: dict[str, Json], *later: Event) -> list[Event]:
    """Return the log of a run that was asked about a call, waited, and was told of `later`."""
    requested = ToolCallRequested("call_1_0", "refund", wanted, "server", "key", "msg_1")
    question = replace(asked(), arguments=wanted, digest=call_digest("refund", wanted))
    parked = (RunWaiting("approval", ("apr_0",)), RunResumed(2, "w2", "approval"))
    return calling(replied(), requested, question, *parked, *later)


def made(log: list[Event], rules: Rules) -> list[CallTool]:
    return [each for each in decide(fold(log), rules, NOW_MS) if isinstance(each, CallTool)]


def edited(given_now: dict[str, Json], digest: str | None) -> ApprovalDecided:
    return ApprovalDecided(
        "apr_0", "call_1_0", "approve", "ann", arguments=given_now, digest=digest
    )


@given(wanted=arguments)
def test_what_was_approved_is_made_as_it_was_shown(wanted: dict[str, Json]) -> None:
    [effect] = made(waiting(wanted, approved()), asking())

    assert canonical(dict(effect.arguments)) == canonical(wanted)


@given(wanted=arguments, other=arguments)
def test_other_arguments_under_the_old_digest_are_not_made(
    wanted: dict[str, Json], other: dict[str, Json]
) -> None:
    assume(canonical(wanted) != canonical(other))

    for digest in (None, call_digest("refund", wanted), call_digest("pay", other), ""):
        for rules in (asking(), allowing()):
            assert made(waiting(wanted, edited(other, digest)), rules) == []


@given(wanted=arguments, other=arguments)
def test_an_edit_is_made_under_its_own_digest_only(
    wanted: dict[str, Json], other: dict[str, Json]
) -> None:
    [effect] = made(waiting(wanted, edited(other, call_digest("refund", other))), asking())

    assert canonical(dict(effect.arguments)) == canonical(other)


@given(wanted=arguments, key=st.text(max_size=6), value=values)
def test_one_changed_argument_is_another_call(
    wanted: dict[str, Json], key: str, value: Json
) -> None:
    other = {**wanted, key: value}
    assume(canonical(other) != canonical(wanted))

    assert call_digest("refund", other) != call_digest("refund", wanted)
    assert made(waiting(wanted, edited(other, call_digest("refund", wanted))), asking()) == []
