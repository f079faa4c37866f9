"""What foreign values become before they are stored."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.json import DEPTH_MAX, INT_MAX, INT_MIN, UnencodableError, clean, clean_text

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(ANY_VALUE)
def test_whatever_is_cleaned_can_be_stored_and_read_back(value: Any) -> None:
    cleaned = clean(value)

    assert orjson.loads(orjson.dumps(cleaned)) == cleaned
    assert clean(cleaned) == cleaned


@given(ANY_TEXT)
def test_cleaning_changes_no_length_so_that_offsets_hold(text: str) -> None:
    cleaned = clean_text(text)

    assert len(cleaned) == len(text)
    assert "\x00" not in cleaned
    cleaned.encode()


@given(st.lists(ANY_TEXT))
def test_cleaning_pieces_is_cleaning_the_whole(pieces: list[str]) -> None:
    assert "".join(map(clean_text, pieces)) == clean_text("".join(pieces))


def test_nul_and_lone_surrogates_become_the_replacement_character() -> None:
    assert clean({"a\x00": "b\ud800c", "d": "\udfff"}) == {"a\ufffd": "b\ufffdc", "d": "\ufffd"}


def test_plain_text_stays_as_it_is() -> None:
    assert clean_text("naïve 👩‍🚀 e\u0301") == "naïve 👩‍🚀 e\u0301"


@pytest.mark.parametrize("number", [INT_MIN, -1, 0, INT_MAX])
def test_integers_of_64_bits_stay_numbers(number: int) -> None:
    assert clean(number) == number


@pytest.mark.parametrize("number", [INT_MIN - 1, INT_MAX + 1, 10**40])
def test_integers_beyond_64_bits_become_strings(number: int) -> None:
    assert clean([number]) == [str(number)]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_json_number_is_refused(number: float) -> None:
    with pytest.raises(UnencodableError, match="is not a JSON number"):
        clean({"a": [number]})


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object()])
def test_what_has_no_json_form_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(UnencodableError, match=f"a {type(value).__name__} has no JSON form"):
        clean([value])


def test_nesting_has_a_bound() -> None:
    assert clean(nested(DEPTH_MAX)) == nested(DEPTH_MAX)

    with pytest.raises(UnencodableError, match=f"deeper than {DEPTH_MAX}"):
        clean(nested(DEPTH_MAX + 1))


def test_tuples_and_foreign_mappings_become_lists_and_dicts() -> None:
    class Frozen(Mapping[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            return (key, True)

        def __iter__(self) -> Any:
            return iter((1, "b"))

        def __len__(self) -> int:
            return 2

    assert clean(Frozen()) == {"1": [1, True], "b": ["b", True]}
