"""Whose answer counts, and who may have asked."""

import pytest

from milepost.core.approvers import OPEN_ID, UNKNOWN, Approver, has_asked, is_asked

ANN = Approver("key_1", "ann", frozenset({"approvals:decide", "scope:finance"}))


@pytest.mark.parametrize("named", ["key:key_1", "user:ann", "scope:finance"])
def test_a_person_is_named_by_key_by_user_or_by_scope(named: str) -> None:
    assert is_asked([named, "user:else"], ANN)


@pytest.mark.parametrize("named", ["key:ann", "user:key_1", "user:Ann", "scope:admin", "ann"])
def test_what_only_looks_like_a_name_is_none(named: str) -> None:
    assert not is_asked([named], ANN)


def test_where_nobody_is_named_anybody_may_answer_and_where_somebody_is_no_stranger() -> None:
    assert is_asked([], UNKNOWN)
    assert not is_asked(["user:ann"], UNKNOWN)


@pytest.mark.parametrize(
    ("made_by", "user", "who", "own"),
    [
        ("key_1", None, ANN, True),
        ("key_2", "ann", ANN, True),
        ("key_2", "bob", ANN, False),
        ("key_2", None, ANN, False),
        ("key_2", None, Approver("key_1", "ann", own_keys=frozenset({"key_2"})), True),
        (None, "bob", ANN, True),
        (OPEN_ID, "bob", ANN, True),
        (OPEN_ID, "bob", Approver("key_1"), True),
        ("key_2", "bob", UNKNOWN, True),
        ("key_2", None, Approver("key_1"), False),
    ],
)
def test_whoever_cannot_be_told_from_the_asker_counts_as_the_asker(
    made_by: str | None, user: str | None, who: Approver, own: bool
) -> None:
    assert has_asked(made_by, user, (), who) is own


@pytest.mark.parametrize(
    ("speakers", "who", "own"),
    [
        (["key_3"], ANN, False),
        (["key_3", "key_1"], ANN, True),
        (["key_2"], Approver("key_1", "ann", own_keys=frozenset({"key_2"})), True),
        ([OPEN_ID], ANN, True),
    ],
)
def test_whoever_told_a_run_something_has_asked_for_what_it_does(
    speakers: list[str], who: Approver, own: bool
) -> None:
    assert has_asked("key_9", "bob", speakers, who) is own


def test_two_keys_of_one_person_are_one_voice() -> None:
    assert Approver("key_1", "ann").person == Approver("key_2", "ann").person
    assert Approver("key_1").person != Approver("key_2").person
