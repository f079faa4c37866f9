"""What a rule may ask of a call's arguments, and who gets away with what."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.arguments import ArgumentMatch, Quantifier, fits, steps_of
from milepost.core.errors import InvalidError
from milepost.core.json import Json

CALL: dict[str, Json] = {
    "to": ["a@acme.com", "b@evil.com"],
    "order": {"lines": [{"sku": "x-1", "cents": 500}, {"sku": "y-2", "cents": 90_000}]},
    "cents": 2_500,
    "amount": "1e5",
    "urgent": True,
    "note": None,
    "none": [],
}


@pytest.mark.parametrize(
    ("match", "fitting"),
    [
        (ArgumentMatch("cents", minimum=2_500), True),
        (ArgumentMatch("cents", minimum=2_501), False),
        (ArgumentMatch("cents", minimum=1, maximum=2_499), False),
        (ArgumentMatch("amount", minimum=99_999), True),
        (ArgumentMatch("urgent", minimum=0), False),
        (ArgumentMatch("urgent", one_of=(1,)), False),
        (ArgumentMatch("urgent", one_of=(True,)), True),
        (ArgumentMatch("urgent", "true"), True),
        (ArgumentMatch("note", "null"), True),
        (ArgumentMatch("note", absent=True), False),
        (ArgumentMatch("missing", absent=True), True),
        (ArgumentMatch("missing", "*"), False),
        (ArgumentMatch("missing"), False),
        (ArgumentMatch("cents"), True),
        (ArgumentMatch("order.lines[1].sku", "y-*"), True),
        (ArgumentMatch("$.order.lines[*].cents", minimum=50_000), True),
        (ArgumentMatch("order.lines[2].sku"), False),
        (ArgumentMatch("order.lines.sku"), True),
        (ArgumentMatch("to", "*@evil.com"), True),
        (ArgumentMatch("none", "[[]]"), True),
    ],
)
def test_a_rule_that_forbids_fits_where_any_value_does(match: ArgumentMatch, fitting: bool) -> None:
    assert fits(match, CALL, "any") is fitting


@pytest.mark.parametrize(
    ("match", "fitting"),
    [
        (ArgumentMatch("to", "*@acme.com"), False),
        (ArgumentMatch("to", "*.com"), True),
        (ArgumentMatch("to[0]", "*@acme.com"), True),
        (ArgumentMatch("to", "*com*"), True),
        (ArgumentMatch("order.lines[*].cents", maximum=1_000), False),
        (ArgumentMatch("order.lines[*].cents", maximum=100_000), True),
        (ArgumentMatch("none[*]", "*"), False),
    ],
)
def test_a_rule_that_allows_fits_where_every_value_does(
    match: ArgumentMatch, fitting: bool
) -> None:
    assert fits(match, CALL, "all") is fitting


def test_what_is_forbidden_is_so_in_every_unicode_guise() -> None:
    wide = {"path": "/\uff45\uff54\uff43/passwd"}  # fullwidth letters

    assert fits(ArgumentMatch("path", "/etc/*"), wide, "any")
    assert not fits(ArgumentMatch("path", "/etc/*"), wide, "all")


@pytest.mark.parametrize(
    "path", ["", "$", ".", "a..b", "a[", "a[x]", "[0]", "a]b", "a.b" * 20, "*"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidError, match="is no way to an argument"):
        steps_of(path)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-inf", "", "ten", "٣x"])
def test_a_text_that_is_no_number_is_in_no_range(text: str) -> None:
    match = ArgumentMatch("cents", minimum=-1e300, maximum=1e300)

    assert not fits(match, {"cents": text}, "any")


NAMES = st.text("abc", min_size=1, max_size=2)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
MATCHES = st.builds(
    ArgumentMatch,
    st.sampled_from(["a", "b", "a.b", "a[*]", "a[0].b"]),
    st.none() | st.sampled_from(["*", "a*", "*b*"]),
    st.none() | st.integers(-5, 0),
    st.none() | st.integers(0, 5),
)


@given(MATCHES, st.dictionaries(NAMES, VALUES, max_size=4))
def test_whatever_every_value_fits_some_value_fits(
    match: ArgumentMatch, arguments: dict[str, Json]
) -> None:
    wide: Quantifier = "any"

    assert not fits(match, arguments, "all") or fits(match, arguments, wide)


@pytest.mark.parametrize(
    "path",
    [
        "/e\u200btc/passwd",
        "/etc\u00ad/passwd",
        "/\U0001d41e\U0001d42d\U0001d41c/passwd",
        "/et\ufe0fc/passwd",
        "/et\u034fc/passwd",
        "/et\u3164c/passwd",
        "/et\U000e0101c/passwd",
        "/etc/passwd\n",
        " /etc/passwd\u00a0",
    ],
    ids=[
        "zero width",
        "soft hyphen",
        "mathematical",
        "variation selector",
        "grapheme joiner",
        "filler",
        "supplementary selector",
        "line end",
        "space",
    ],
)
def test_what_nobody_sees_hides_nothing_that_is_forbidden(path: str) -> None:
    assert fits(ArgumentMatch("path", "/etc/*"), {"path": path}, "any")
    assert fits(ArgumentMatch("path", one_of=("/etc/passwd",)), {"path": path}, "any")
    assert not fits(ArgumentMatch("path", one_of=("/etc/passwd",)), {"path": path}, "all")


def test_a_look_alike_of_another_script_is_another_value_and_is_not_allowed() -> None:
    cyrillic = {"to": "ann@\u0430cme.com"}

    assert not fits(ArgumentMatch("to", "*@acme.com"), cyrillic, "all")


@pytest.mark.parametrize("name", ["caf\u00e9 noir", "cafe\u200d\u0301 noir"])
def test_a_pattern_in_another_unicode_form_forbids_the_same(name: str) -> None:
    assert fits(ArgumentMatch("name", "cafe\u0301*"), {"name": name}, "any")
    assert fits(ArgumentMatch("name", "caf\u00e9*"), {"name": name}, "any")


@pytest.mark.parametrize("amount", ["1e400", "Infinity", "1e99999999999999999999", 10**40])
def test_no_amount_is_too_large_to_be_forbidden(amount: Json) -> None:
    assert fits(ArgumentMatch("cents", minimum=100), {"cents": amount}, "any")
    assert not fits(ArgumentMatch("cents", maximum=100), {"cents": amount}, "all")


@pytest.mark.parametrize(
    ("text", "fitting"), [("2500", True), (" 2500 ", True), ("2_500", True), ("٢٥٠٠", True)]
)
def test_an_amount_may_be_sent_as_a_text(text: str, fitting: bool) -> None:
    assert fits(ArgumentMatch("cents", minimum=2_500, maximum=2_500), {"cents": text}, "any") is (
        fitting
    )


@pytest.mark.parametrize(
    "text", ["25\u200b00", "\ufeff2500", "2500\u00ad", "\u00b2\u2075\u2070\u2070", "2.5\u20604e3"]
)
def test_what_nobody_sees_hides_no_amount_from_what_forbids(text: str) -> None:
    assert fits(ArgumentMatch("cents", minimum=2_500), {"cents": text}, "any")
    assert not fits(ArgumentMatch("cents", minimum=2_500), {"cents": text}, "all")


@pytest.mark.parametrize("account", [4711, 4711.0, [4711.0]])
def test_a_whole_number_is_forbidden_however_it_is_written(account: Json) -> None:
    assert fits(ArgumentMatch("account", "4711"), {"account": account}, "any")


def test_a_whole_number_is_allowed_only_as_its_rule_writes_it() -> None:
    assert not fits(ArgumentMatch("account", "4711"), {"account": 4711.0}, "all")


def test_an_element_without_the_argument_is_not_allowed_by_its_neighbours() -> None:
    lines: dict[str, Json] = {"lines": [{"cents": 5}, [{"cents": 90_000}]]}

    assert not fits(ArgumentMatch("lines[*].cents", maximum=100), lines, "all")


def test_an_argument_that_any_element_lacks_is_absent_for_what_forbids() -> None:
    lines: dict[str, Json] = {"lines": [{"by": "ann"}, {}]}

    assert fits(ArgumentMatch("lines[*].by", absent=True), lines, "any")
    assert not fits(ArgumentMatch("lines[*].by", absent=True), lines, "all")


def test_one_value_without_a_list_around_it_is_forbidden_like_a_list_of_one() -> None:
    match = ArgumentMatch("to[*]", "*@evil.com")

    assert fits(match, {"to": "b@evil.com"}, "any")
    assert not fits(match, {"to": "b@evil.com"}, "all")


@pytest.mark.parametrize(
    ("path", "to"), [("to[0]", "b@evil.com"), ("to[0].address", {"address": "b@evil.com"})]
)
def test_one_value_without_a_list_around_it_is_the_first_for_what_forbids(
    path: str, to: Json
) -> None:
    assert fits(ArgumentMatch(path, "b@evil.com"), {"to": to}, "any")
    assert not fits(ArgumentMatch(path, "b@evil.com"), {"to": to}, "all")
    assert not fits(ArgumentMatch("to[1]"), {"to": to}, "any")
    assert not fits(ArgumentMatch("to[0]"), {"to": []}, "any")


@pytest.mark.parametrize("order", [[{"sku": "gun"}], [[{"sku": ["gun"]}]], [1, {"sku": "gun"}]])
def test_several_values_where_a_rule_has_one_in_mind_are_forbidden_and_not_allowed(
    order: Json,
) -> None:
    match = ArgumentMatch("order.sku", "gun")

    assert fits(match, {"order": order}, "any")
    assert not fits(match, {"order": order}, "all")
    assert not fits(ArgumentMatch("order.sku", absent=True), {"order": order}, "all")


@pytest.mark.parametrize(
    ("pattern", "value", "fitting"),
    [("a[*]", "a*", True), ("a[*]", "ab", False), ("a[!b]", "ac", True), ("a[", "a[", True)],
)
def test_a_bracket_in_a_pattern_is_a_choice_of_letters(
    pattern: str, value: str, fitting: bool
) -> None:
    assert fits(ArgumentMatch("x", pattern), {"x": value}, "any") is fitting


@pytest.mark.parametrize(
    "value",
    ["a" * 5_000_000, ["a"] * 300_000, [["a"] * 600] * 600],
    ids=["long text", "long list", "list of lists"],
)
def test_what_takes_too_long_to_look_at_is_forbidden_and_not_allowed(value: Json) -> None:
    match = ArgumentMatch("x", "*" + "?" * 998 + "b")
    began = time.process_time()

    assert fits(match, {"x": value}, "any")
    assert not fits(match, {"x": value}, "all")
    assert time.process_time() - began < 5


def test_a_large_text_is_looked_through_for_an_ordinary_pattern() -> None:
    match = ArgumentMatch("content", "*BEGIN PRIVATE KEY*")

    assert not fits(match, {"content": "x" * 1_000_000}, "any")
    assert fits(match, {"content": "x" * 1_000_000 + "BEGIN PRIVATE KEY"}, "any")


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (ArgumentMatch("cents", minimum=2_500_000), "cents is 2500000 or more"),
        (ArgumentMatch("cents", maximum=0.5), "cents is 0.5 or less"),
        (ArgumentMatch("by", absent=True), "by is absent"),
        (ArgumentMatch("by"), "by is there"),
        (ArgumentMatch("to", "*@x", one_of=("a", 1)), 'to is like *@x and is one of ["a",1]'),
    ],
)
def test_a_match_is_said_in_words(match: ArgumentMatch, said: str) -> None:
    assert str(match) == said
