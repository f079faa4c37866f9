"""Secrets that a declaration mentions, and those that it does not."""

import random
import time
from urllib.parse import quote
from xml.sax import saxutils

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from milepost.core.errors import ToolError
from milepost.core.json import Json, clean_text
from milepost.tools.egress import EgressError
from milepost.tools.references import (
    Reference,
    Revealed,
    Sieve,
    known,
    limited,
    require_one_line,
    reveal,
)


async def test_only_what_a_declaration_mentions_is_read() -> None:
    asked = []

    async def every(reference: Reference) -> str:
        asked.append(reference)
        return "value"

    secrets = limited(every, [Reference("env", "TOKEN")])

    assert await secrets(Reference("env", "TOKEN")) == "value"
    for other in (Reference("env", "OTHER"), Reference("secret", "TOKEN")):
        with pytest.raises(ToolError, match="is not in the declaration"):
            await secrets(other)
    assert asked == [Reference("env", "TOKEN")]


def revealed(*values: str) -> Revealed:
    return Revealed({}, frozenset(values))


@pytest.mark.parametrize("values", [("abcd", "abcdefgh"), ("efgh", "abcdefgh")])
def test_a_secret_that_is_part_of_another_leaves_nothing_of_it(values: tuple[str, str]) -> None:
    assert revealed(*values).hide("it was abcdefgh") == "it was [secret]"
    assert revealed(*values).hide_in_bytes(b"it was abcdefgh") == b"it was [secret]"


def test_of_secrets_that_begin_alike_the_longest_is_hidden() -> None:
    value = "abcd" * 25
    beginnings = [value[:length] for length in range(4, len(value) + 1)]

    assert revealed(*beginnings).hide(f"it was {value}!") == "it was [secret]!"
    assert revealed(*beginnings).hide_in_bytes(f"it was {value}!".encode()) == b"it was [secret]!"


@pytest.mark.parametrize(
    ("values", "said", "told"),
    [
        (["abcdef", "defghi"], "abcdefghi", "[secret]"),
        (["abcdef", "defghi", "hijk"], "abcdefghijk", "[secret]"),
        (["abcdef", "defghi", "efg"], "abcdefgh, defghi", "[secret]h, [secret]"),
        (["ab12ab"], "ab12ab12ab12ab", "[secret]"),
        (["abcdef", "defghi"], "abcdefabcdef", "[secret][secret]"),
        (["abcdef", "defghi", "fgabcd"], "defghi abcdefgabcdef", "[secret] [secret]"),
    ],
)
def test_where_secrets_overlap_nothing_of_any_is_left(
    values: list[str], said: str, told: str
) -> None:
    hiding = revealed(*values)
    sieve = Sieve(hiding)

    assert hiding.hide(f"it was {said}!") == f"it was {told}!"
    assert hiding.hide_in_bytes(f"it was {said}!".encode()) == f"it was {told}!".encode()
    assert "".join([*map(sieve.sift, f"it was {said}!"), sieve.rest()]) == f"it was {told}!"


def test_forms_of_secrets_that_overlap_leave_nothing_of_them() -> None:
    found = known({"one": "ab cd", "other": "d ef"})

    assert found.hide("ab%20cd%20ef, ab+cd+ef") == "[secret], [secret]"


def test_secrets_are_hidden_in_the_names_strings_and_numbers_of_json() -> None:
    document: Json = {"a secret": ["secret", {"12345678": 12345678}], "no": [True, None, 1.5]}

    hidden = revealed("secret", "12345678").hide_in(document)

    assert hidden == {
        "a [secret]": ["[secret]", {"[secret]": "[secret]"}],
        "no": [True, None, 1.5],
    }


@pytest.mark.parametrize("char", ["\0", "\n", "\r", "\x1f", "\x7f"])
def test_a_value_that_would_not_stay_in_its_header_is_refused_and_not_told(char: str) -> None:
    require_one_line({"x-token": "s3cr3t ~é"})

    with pytest.raises(ToolError, match="x-token has control characters") as refusal:
        require_one_line({"x-shop": "acme", "x-token": f"s3cr3t{char}x-admin: yes"})

    assert "s3cr3t" not in str(refusal.value)


def test_an_error_that_repeats_no_secret_is_told_as_it_is() -> None:
    error = EgressError("it is down", retryable=True)
    error.__cause__ = OSError("no route")

    assert revealed("s3cr3t").hidden(error) is error


@pytest.mark.parametrize(
    ("told", "cause"),
    [("s3cr3t is wrong", "nothing"), ("it is wrong", "s3cr3t is wrong")],
)
def test_an_error_loses_its_secrets_and_the_causes_that_may_repeat_them(
    told: str, cause: str
) -> None:
    error = EgressError(told, code="shop_down", retryable=True)
    error.__cause__ = OSError(cause)

    hidden = revealed("s3cr3t").hidden(error)

    assert type(hidden) is EgressError
    assert str(hidden) == told.replace("s3cr3t", "[secret]")
    assert (hidden.code, hidden.retryable) == ("shop_down", True)
    assert hidden.__cause__ is None


async def test_a_secret_is_sent_where_it_is_mentioned_and_a_short_one_is_not_hidden() -> None:
    async def secrets(reference: Reference) -> str:
        return {"TOKEN": "s3cr3t", "DIGIT": "7"}[reference.name]

    found = await reveal({"A": "Bearer ${env:TOKEN}", "B": "${env:DIGIT}"}, secrets)

    assert found.texts == {"A": "Bearer s3cr3t", "B": "7"}
    assert found.values == {"s3cr3t"}


def test_a_secret_of_four_characters_is_hidden_and_a_shorter_one_is_not() -> None:
    assert known({"pin": "7d1f", "digits": "7d1"}).hide("7d1f, 7d1") == "[secret], 7d1"


@pytest.mark.parametrize(
    "said",
    ["a/b c\"ü&", "a%2Fb%20c%22%C3%BC%26", "a%2Fb+c%22%C3%BC%26", 'a/b c\\"\\u00fc&', 'a/b c\\"ü&',
     "a/b c&quot;ü&amp;", "a/b c&#34;ü&amp;"],
)  # fmt: skip
async def test_a_secret_is_hidden_as_urls_json_and_html_write_it(said: str) -> None:
    async def secrets(_: Reference) -> str:
        return 'a/b c"ü&'

    found = await reveal({"A": "${env:TOKEN}"}, secrets)

    assert found.hide(f"it was {said}!") == "it was [secret]!"


@pytest.mark.parametrize(
    "value",
    ["ab/cd+ef=", 'a/b c"ü&', "{'a': \"b|\\^`\n\"}", "<b>'\"&", "ann:p@ss=w?d; no", "[5 %]=a:b"],
)
def test_a_secret_is_hidden_as_libraries_write_it(value: str) -> None:
    written = [
        repr(value),
        str({"token": value}),
        quote(value),
        str(httpx2.URL(f"https://shop/{value}".replace("\n", ""))),
        str(httpx2.URL(f"https://shop/?token={value}".replace("\n", ""))),
        str(httpx2.URL("https://shop/", params={"token": value})),
        str(URL("https://shop/") / value),
        str(URL(f"https://shop/?token={value}".replace("\n", ""))),
        str(URL("https://shop/").with_query(token=value)),
        saxutils.escape(value),
        saxutils.escape(value, {'"': "&#34;", "'": "&#39;"}),
    ]

    found = known({"token": value, "line": value.replace("\n", "")})

    assert [said for said in written if "[secret]" not in found.hide(said)] == []


def test_a_secret_that_was_stored_with_the_end_of_its_line_is_hidden_without_it_too() -> None:
    found = known({"token": "s3cr3t\r\n", "digit": " 777\n"})

    assert found.hide("s3cr3t, 'Bearer s3cr3t\\r\\n' 777") == "[secret], 'Bearer [secret]' 777"


@pytest.mark.parametrize("value", ["ab\0cd", "ab\ud800cd"])
def test_a_secret_that_cannot_be_kept_as_it_is_is_hidden_as_it_is_kept(value: str) -> None:
    found = known({"token": value})

    assert found.hide(clean_text(value)) == found.hide(value) == "[secret]"
    assert found.hide_in_bytes(clean_text(value).encode()) == b"[secret]"


def test_what_is_known_hides_itself_in_bytes_too() -> None:
    found = known({"token": "s3cr3t", "digit": "7"})

    assert found.texts == {"token": "s3cr3t", "digit": "7"}
    assert found.hide("s3cr3t 7") == "[secret] 7"
    assert found.hide_in_bytes(b"\x00s3cr3t\xff7") == b"\x00[secret]\xff7"


AB = st.text("ab", min_size=1, max_size=6)
# Long ones, too, of which first only the beginning is looked for.
WORDS = AB | st.builds(lambda word, times, end: word * times + end, AB, st.integers(8, 40), AB)


@given(st.sets(WORDS, max_size=3), st.lists(WORDS, max_size=12))
def test_a_text_in_pieces_hides_what_it_would_hide_as_a_whole(
    values: set[str], pieces: list[str]
) -> None:
    hiding = revealed(*values)
    sieve = Sieve(hiding)

    said = [sieve.sift(piece) for piece in pieces]

    assert "".join([*said, sieve.rest()]) == hiding.hide("".join(pieces))


@given(st.sets(AB, min_size=1, max_size=3), st.text("ab", max_size=24))
def test_whatever_lies_in_a_secret_is_hidden_and_nothing_else(values: set[str], said: str) -> None:
    within = {
        at
        for value in values
        for start in range(len(said))
        if said.startswith(value, start)
        for at in range(start, start + len(value))
    }

    hidden = revealed(*values).hide(said)

    left = "".join(char for at, char in enumerate(said) if at not in within)
    assert hidden.replace("[secret]", "") == left


def test_wherever_a_long_secret_is_cut_nothing_of_it_is_told() -> None:
    value = "".join(f"{number:03}" for number in range(40))
    told = []
    for cut in range(1, len(value)):
        for before in ("", "It is "):
            sieve = Sieve(revealed(value))
            pieces = (before + value[:cut], value[cut:] + ".")
            told.append("".join([*map(sieve.sift, pieces), sieve.rest()]))

    assert set(told) == {"[secret].", "It is [secret]."}


def test_a_piece_in_which_no_secret_may_have_begun_is_told_at_once() -> None:
    sieve = Sieve(revealed("abcd"))

    assert [sieve.sift(piece) for piece in ("no ", "so ab", "x", "abc")] == [
        "no ",
        "so ",
        "abx",
        "",
    ]
    assert sieve.rest() == "abc"
    assert sieve.rest() == ""


ENOUGH_S = 5.0
CHANCE = random.Random(7)
LONG = "".join(CHANCE.choices('aé€😀"/<', k=65_536))


@pytest.mark.parametrize("value", [LONG, "a" * 65_535 + "b"], ids=["by chance", "repeating"])
def test_the_longest_secrets_cost_little_to_hide_in_many_pieces(value: str) -> None:
    sieve = Sieve(known({str(at): f"{at}{value}" for at in range(5)}))
    pieces = ["", f"{value[:60_000]}, {value[:60_000]}c, ", *(["no "] * 100), "4", value]
    began = time.process_time()

    said = "".join([*map(sieve.sift, pieces), sieve.rest()])

    assert said == "".join(pieces[:-2]) + "[secret]"
    assert time.process_time() - began < ENOUGH_S


HALF = "a" * 32_767


@pytest.mark.parametrize("value", [HALF * 2, f"{HALF}b{HALF}"], ids=["with itself", "at its ends"])
def test_the_longest_secrets_cost_little_where_they_overlap(value: str) -> None:
    hiding = known({"token": value})
    sieve = Sieve(hiding)
    text = f"{value}{HALF[1:]}{value}"
    pieces = [text[at : at + 1_000] for at in range(0, len(text), 1_000)]
    began = time.process_time()

    said = "".join([*map(sieve.sift, pieces), sieve.rest()])

    assert said == hiding.hide(text)
    assert set(said.replace("[secret]", "")) <= {"a"}
    assert time.process_time() - began < ENOUGH_S
