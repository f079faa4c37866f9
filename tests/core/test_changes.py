"""Where two JSON values differ."""

from milepost.core.changes import CHANGES_MAX, Change, changes
from milepost.core.json import Json


def test_each_place_that_differs_is_named_with_both_values() -> None:
    before: Json = {"to": "ann", "lines": [{"n": 1}, {"n": 2}], "a/b~c": 1, "gone": True, "same": 0}
    after: Json = {"to": "bob", "lines": [{"n": 1}, {"n": 3}, 4], "a/b~c": 2, "same": 0, "new": []}

    assert changes(before, after) == [
        Change("/to", "ann", "bob"),
        Change("/lines/1/n", 2, 3),
        Change("/lines/2", None, 4),
        Change("/a~1b~0c", 1, 2),
        Change("/gone", True, None),
        Change("/new", None, []),
    ]


def test_a_number_is_not_the_truth_value_that_equals_it() -> None:
    assert changes({"force": 1}, {"force": True}) == [Change("/force", 1, True)]


def test_what_is_equal_has_no_changes() -> None:
    assert changes({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) == []


def test_of_very_many_changes_the_first_ones_are_told() -> None:
    assert len(changes([0] * 2_000, [1] * 2_000)) == CHANGES_MAX
