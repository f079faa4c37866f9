"""Yes and no in a chat: whole messages alone, and only those beyond doubt."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.confirmations import ConfirmationParser, WholeMessages

PARSER: ConfirmationParser = WholeMessages()
YES = ["yes", "Yes, please", "I confirm", "sim", "Sim, confirmo", "confirmo", "sí", "lo confirmo"]
NO = ["no", "No, thanks", "don\u2019t", "cancel", "não", "cancela", "no, gracias", "Olvídalo"]


@pytest.mark.parametrize(
    "text", [*YES, "YES!", "  sim.  ", "SÍ", "¡Sí!", "Sim 👍🏽", "yes ✅", "yes…"]
)
def test_a_plain_yes_confirms_whatever_its_case_accents_and_ending(text: str) -> None:
    assert PARSER.is_confirm(text)
    assert not PARSER.is_cancel(text)


@pytest.mark.parametrize("text", [*NO, "NAO!", "não…", "Cancel it.", "no 👎", "  PARE "])
def test_a_plain_no_cancels_whatever_its_case_accents_and_ending(text: str) -> None:
    assert PARSER.is_cancel(text)
    assert not PARSER.is_confirm(text)


@pytest.mark.parametrize(
    "text",
    ["ok", "Okay", "claro", "pode", "pode ser", "sure", "y", "s", "👍", "dale", "vale", "yeah", ""],
)
def test_dc19_what_may_mean_no_more_than_i_hear_you_never_confirms(text: str) -> None:
    assert not PARSER.is_confirm(text)


@pytest.mark.parametrize(
    "text",
    ["si quieres", "si, por favor", "sí confirmo", "si no", "si puedes mañana", "sí, sí", "si sim"],
)
def test_dc19_the_spanish_si_confirms_only_as_the_whole_message(text: str) -> None:
    assert PARSER.is_confirm("si")
    assert not PARSER.is_confirm(text)


@pytest.mark.parametrize(
    "text",
    [
        "yes, but not that one",
        "yes, delete the other one instead",
        "yes, delete it",
        "yes, except the last",
        "sim, mas amanhã",
        "sim, apague o outro",
        "confirmo, pero otro",
        "yes and no",
        "yes?",
        "sim?!",
        "¿sí?",
        "not yes",
        "no, yes",
        "yes if it is free",
        'he said "yes"',
        "I approved it already: yes",
        "yes 🤔",
        "yes 👎",
        "yes\nno",
    ],
)
def test_c11_a_yes_with_anything_else_beside_it_is_none(text: str) -> None:
    assert not PARSER.is_confirm(text)


@pytest.mark.parametrize("text", ["no problem", "no cancela", "não cancela", "no cancel", "no?"])
def test_a_no_that_may_mean_its_opposite_does_not_cancel(text: str) -> None:
    assert not PARSER.is_cancel(text)
    assert not PARSER.is_confirm(text)


@pytest.mark.parametrize(
    "text",
    [
        "\u0443\u0435s",  # Cyrillic
        "y\u0435s",  # one Cyrillic letter
        "\uff59\uff45\uff53",  # full width
        "\U0001d432\U0001d41e\U0001d42c",  # mathematical
        "ye\u017f",  # a long s
        "y\u200bes",
        "ye\u00ads",
        "\u0455im",  # Cyrillic
        "s\u0131m",  # a dotless i
        "\u202eyes",
    ],
)
def test_letters_that_only_look_like_a_yes_are_none(text: str) -> None:
    assert not PARSER.is_confirm(text)


@pytest.mark.parametrize("text", YES)
def test_however_its_accents_are_encoded_a_yes_is_one(text: str) -> None:
    for form in ("NFC", "NFD"):
        assert PARSER.is_confirm(unicodedata.normalize(form, text))


@given(st.text(max_size=100))
def test_no_message_is_both_a_yes_and_a_no(text: str) -> None:
    assert not (PARSER.is_confirm(text) and PARSER.is_cancel(text))


@given(st.sampled_from(YES), st.sampled_from(["but", "mas", "pero", "except", "menos", "instead"]))
def test_c11_a_contrast_word_anywhere_behind_a_yes_takes_it_back(yes: str, word: str) -> None:
    assert not PARSER.is_confirm(f"{yes}, {word}")
    assert not PARSER.is_confirm(f"{yes} {word} the other one")


@given(st.sampled_from(YES), st.text(alphabet="abcxyz0123456789", min_size=1))
def test_no_word_that_is_not_in_the_list_can_be_added_to_a_yes(yes: str, word: str) -> None:
    assert not PARSER.is_confirm(f"{yes} {word}")
    assert not PARSER.is_confirm(f"{word} {yes}")


def test_a_long_message_is_not_even_looked_at() -> None:
    assert not PARSER.is_confirm("yes" + " " * 10_000)


def test_dc18_the_parser_says_which_version_it_is() -> None:
    assert PARSER.version == "whole-message-v2:pt-en-es"
