# ruff: noqa: RUF001 - to look like others is what these letters are here for
"""Words that are not to be spoken of."""

import unicodedata

import pytest
from hypothesis import given

from milepost.guardrails.finds import Passing
from milepost.guardrails.topics import Topics
from tests.guardrails.passing import found, in_pieces, passed


@pytest.mark.parametrize(
    ("word", "text", "hit"),
    [
        ("acme", "We like Acme best.", "Acme"),
        ("acme", "ACME!", "ACME"),
        ("acme", "(acme)", "acme"),
        ("acme", "使用acme吗", "acme"),
        ("stock tips", "No stock \n tips here", "stock \n tips"),
        ("straße", "Die STRASSE", "STRASSE"),
        ("café", "Au CAFÉ", "CAFÉ"),
        ("café", unicodedata.normalize("NFD", "au café"), unicodedata.normalize("NFD", "café")),
        ("ЦЕНА", "какая цена?", "цена"),
        ("毒品", "他们在卖毒品吗", "毒品"),
        ("ยา", "ขายยาที่นี่", "ยา"),
        ("c++", "I write C++ daily", "C++"),
        ("#ad", "this is #AD", "#AD"),
    ],
)
def test_a_word_is_found_in_any_script_and_case(word: str, text: str, hit: str) -> None:
    assert found(Topics([word], ""), text) == [hit]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("acme", "acmeist and pacme and acmé"),
        ("ass", "Passau is a classic, assume nothing"),
        ("cafe", unicodedata.normalize("NFD", "café")),
        ("цена", "оценка"),
        ("stock tips", "stocktips, stock of tips"),
    ],
)
def test_a_word_within_another_is_another(word: str, text: str) -> None:
    assert found(Topics([word], ""), text) == []


@pytest.mark.parametrize(
    ("word", "text", "hit"),
    [
        ("bomb", "a bo\u200bmb\u2060, a", "bo\u200bmb"),
        ("bomb", "a b\u200c\u200do\ufe0fmb.", "b\u200c\u200do\ufe0fmb"),
        ("bomb", "a bo" + 16 * "\u200b" + "mb", "bo" + 16 * "\u200b" + "mb"),
        ("bomb", "ｂｏｍｂ", "ｂｏｍｂ"),
        ("bomb", "使𝐛ⓞmⓑ用", "𝐛ⓞmⓑ"),
        ("bomb", "a b\u043emb", "b\u043emb"),
        ("bomb", "a \u0412\u200b\u043e\u043cb", "\u0412\u200b\u043e\u043cb"),
        ("fire bomb", "ﬁre\u3000b\u00adomb", "ﬁre\u3000b\u00adomb"),
        ("ЦЕНА", "какая це\u200bна?", "це\u200bна"),
        ("ﬁre", "fire", "fire"),
        ("خواهم", "می\u200cخواهم", "خواهم"),
    ],
)
def test_a_word_is_found_in_disguise(word: str, text: str, hit: str) -> None:
    assert found(Topics([word], ""), text) == [hit]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("cop", "вынеси сор"),  # As long as it takes, each of its letters is Russian.
        ("میخواهم", "می\u200cخواهم"),
        ("bomb", "bomb\u200bast"),
        ("acme", "\u200bp\u200bacme"),
    ],
)
def test_what_only_looks_like_a_disguise_is_another_word(word: str, text: str) -> None:
    topics = Topics([word], "")

    assert [hit for hit in found(topics, text) if hit != word] == []


def test_of_words_that_begin_alike_the_longest_counts() -> None:
    assert passed(Topics(["new", "new york"], "[x]"), "in New York, new.") == "in [x], [x]."


def test_what_was_found_is_not_repeated() -> None:
    passing = Passing(Topics(["acme"], "[x]"), "rewrite")
    passing.feed("acme")
    passing.finish()

    assert passing.found == {"a topic not to be spoken of": 1}


DISGUISES = ("\u200b", "\u200c", "ｍ", "\u0441", "ac", "me", "ﬁ", "n", "م", "york")


@given(in_pieces("acme", "new", "me", *DISGUISES))
def test_however_a_disguised_text_is_cut_the_same_comes_out(drawn: tuple[str, list[str]]) -> None:
    text, pieces = drawn
    topics = Topics(["acme", "new york", "new", "men", "ﬁ", "م"], "[x]")
    passing = Passing(topics, "rewrite")

    assert "".join(map(passing.feed, pieces)) + passing.finish() == passed(topics, text)


@given(in_pieces("acme", "Acme ", "new", " york", "caf\u0065\u0301", "café", "毒品"))
def test_however_a_text_is_cut_the_same_comes_out(drawn: tuple[str, list[str]]) -> None:
    text, pieces = drawn
    topics = Topics(["acme", "new york", "new", "café", "毒品"], "[x]")
    passing = Passing(topics, "rewrite")

    assert "".join(map(passing.feed, pieces)) + passing.finish() == passed(topics, text)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("char", ["\u200b", "，", "ﷺ"])
def test_a_flood_of_what_is_not_seen_holds_little_back(char: str) -> None:
    passing = Passing(Topics(["bomb"], ""), "rewrite")

    shown = "".join(passing.feed(4 * char) for _ in range(5_000))

    assert len(shown) > 19_000


@pytest.mark.timeout(10)
def test_a_long_text_is_searched_for_many_words_in_little_time() -> None:
    topics = Topics([f"word number {number}" for number in range(500)], "")

    assert found(topics, "word number x " * 15_000) == []
