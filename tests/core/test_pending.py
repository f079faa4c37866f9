"""What an answer makes of an action that waits: the moves, without a database."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.confirmations import WholeMessages
from milepost.core.json import Json
from milepost.core.pending import Offer, Said, Shown, args_digest, is_kind, meaning_of, move

OFFER = Offer("pnd_1", "refund", "sha256:1")
SEEN = Shown("pnd_1", "sha256:1")
PARSER = WholeMessages()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def moved(said: Said, offer: Offer | None = OFFER, shown: Shown | None = SEEN) -> str:
    return move(said, meaning_of(said, PARSER), offer, shown)


@given(st.dictionaries(st.text(max_size=5), JSON))
def test_dc5_the_order_of_keys_makes_no_difference_to_a_digest(args: dict[str, Json]) -> None:
    assert args_digest(args) == args_digest(dict(reversed(args.items())))


def test_dc5_no_arguments_are_the_same_as_none_given_and_lists_have_an_order() -> None:
    assert args_digest(None) == args_digest({})
    assert args_digest({"a": [1, 2]}) != args_digest({"a": [2, 1]})
    assert args_digest({"a": None}) != args_digest({})


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (Said("yes"), "confirm"),
        (Said("no"), "cancel"),
        (Said("what?"), "supersede"),
        (Said(intent=" Confirm "), "confirm"),
        (Said(intent="CANCEL"), "cancel"),
        (Said(intent="ignore"), "ignore"),
        (Said(intent="yes"), "ignore"),
    ],
)
def test_dc12_a_text_is_parsed_and_an_intent_is_not(said: Said, what: str) -> None:
    assert moved(said) == what


@pytest.mark.parametrize("said", [Said("yes"), Said("no"), Said("what?")])
def test_a_text_starts_a_run_while_nothing_waits(said: Said) -> None:
    assert moved(said, None, None) == "start"
    assert moved(said, None, SEEN) == "start"  # It was answered elsewhere.


@pytest.mark.parametrize("intent", ["confirm", "cancel", "ignore", "explode"])
def test_an_intent_starts_nothing_while_nothing_waits(intent: str) -> None:
    assert moved(Said(intent=intent), None, None) == "nothing_pending"


def test_an_answer_to_what_was_shown_and_is_over_is_too_late() -> None:
    over = Shown("pnd_1", "sha256:1", expired=True)

    assert moved(Said("yes"), None, over) == "expired"
    assert moved(Said(intent="confirm"), None, over) == "expired"
    assert moved(Said("something else"), None, over) == "start"


def test_a_yes_counts_for_what_was_shown_last_and_not_for_what_came_after_it() -> None:
    another = Shown("pnd_0", "sha256:0")

    assert moved(Said("yes"), OFFER, another) == "expired"
    assert moved(Said("yes", expected_id="pnd_1"), OFFER, another) == "confirm"


@pytest.mark.parametrize("said", [Said("yes"), Said(intent="confirm")])
def test_a_yes_of_somebody_who_was_shown_nothing_is_none_to_what_waits(said: Said) -> None:
    assert moved(said, OFFER, None) == "kind_mismatch"
    # Whoever has shown it by other means says what it is.
    assert moved(replace(said, expected_id="pnd_1"), OFFER, None) == "confirm"
    assert moved(Said("no"), OFFER, None) == "cancel"


def test_dc13_another_kind_or_id_is_another_action() -> None:
    assert moved(Said(intent="confirm", expected_kind="payment")) == "kind_mismatch"
    assert moved(Said(intent="confirm", expected_id="pnd_2")) == "kind_mismatch"
    assert moved(Said(intent="ignore", expected_id="pnd_2")) == "kind_mismatch"
    assert moved(Said(intent="confirm", expected_kind="refund")) == "confirm"


def test_dc14_what_has_changed_is_not_confirmed_and_may_be_cancelled() -> None:
    changed = Offer("pnd_1", "refund", "sha256:1", intact=False)

    assert moved(Said("yes"), changed) == "digest_mismatch"
    assert moved(Said("yes"), Offer("pnd_1", "refund", "sha256:2")) == "digest_mismatch"
    assert moved(Said("no"), changed) == "cancel"


@pytest.mark.parametrize("said", [Said("yes"), Said(intent="confirm")])
@pytest.mark.parametrize("shown", [None, Shown("pnd_1", "sha256:1"), Shown("pnd_0", "sha256:0")])
def test_dc14_a_yes_that_says_to_what_arguments_is_one_to_no_others(
    said: Said, shown: Shown | None
) -> None:
    named = replace(said, expected_id="pnd_1")

    assert moved(replace(named, expected_digest="sha256:2"), OFFER, shown) == "digest_mismatch"
    assert moved(replace(named, expected_digest="sha256:1"), OFFER, shown) == "confirm"


def test_only_a_plain_true_of_a_parser_is_a_yes() -> None:
    class Eager:
        version = "eager"

        def is_confirm(self, text: str) -> bool:
            return text  # type: ignore[return-value]  # what a careless one returns

        def is_cancel(self, _: str) -> bool:
            return False

    assert meaning_of(Said("yes"), Eager()) == "other"


def test_a_message_that_says_nothing_is_read_by_no_parser() -> None:
    class Unasked:
        version = "unasked"

        def is_confirm(self, message: str) -> bool:
            raise AssertionError(message)

        is_cancel = is_confirm

    assert meaning_of(Said(), Unasked()) == "other"


@pytest.mark.parametrize("kind", ["", "approval", "x" * 101, None, 7])
def test_what_is_no_kind_of_an_action(kind: object) -> None:
    assert not is_kind(kind)
    assert is_kind("refund")
