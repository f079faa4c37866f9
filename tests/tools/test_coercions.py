"""What a call's log says of arguments that were mended."""

from milepost.core.json import Json
from milepost.tools import coercions
from milepost.tools.coercions import COERCIONS_MAX


def test_each_mended_value_is_told_with_its_place_in_the_order_of_the_call() -> None:
    given: dict[str, Json] = {"b": "5", "a": [{"x": "yes"}, 1], "c": 4.0, "d": "same"}
    taken: dict[str, Json] = {"a": [{"x": True}, 1], "b": 5, "c": 4, "d": "same"}

    assert coercions(given, taken) == (
        'b: "5" became 5', 'a[0].x: "yes" became true', "c: 4.0 became 4",
    )  # fmt: skip


def test_of_very_many_the_first_are_told() -> None:
    count = COERCIONS_MAX * 1_000
    given: Json = [str(number) for number in range(count)]
    taken: Json = list(range(count))

    told = coercions({"numbers": given}, {"numbers": taken})

    assert len(told) == COERCIONS_MAX + 1
    assert told[0] == 'numbers[0]: "0" became 0'
    assert told[-1] == "… and more"


def test_what_was_taken_as_it_is_is_not_told() -> None:
    assert coercions({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) == ()
