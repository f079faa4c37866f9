"""The strings in a value, changed where they stand."""

from milepost.core.json import Json
from milepost.guardrails.strings import changed


def test_names_texts_and_numbers_are_changed_and_the_shape_stays() -> None:
    value: Json = {"ann": ["ann", 1, None, True, {"deep": "ann"}], "n": 4111}

    seen = changed(value, lambda text: text.replace("ann", "[x]").replace("4111", "[card]"))

    assert seen == {"[x]": ["[x]", 1, None, True, {"deep": "[x]"}], "n": "[card]"}


def test_names_that_come_out_the_same_are_told_apart() -> None:
    value: Json = {"a": 1, "b": 2, "c": 3}

    seen = changed(value, lambda text: "x" if text.isalpha() else text)

    assert seen == {"x": 1, "x (2)": 2, "x (3)": 3}


def test_what_is_not_changed_keeps_its_type() -> None:
    value: Json = [1, 2.5, True, None, "x", {}]

    assert changed(value, lambda text: text) == value
