# ruff: noqa: RUF001 - letters that pass for others are what this is about
"""What tells who somebody is, and what only looks like it."""

import pytest
from hypothesis import given

from milepost.core.guardrails import PII_KINDS, PiiKind
from milepost.guardrails.finds import Passing
from milepost.guardrails.pii import PEM_CHARS_MAX, Pii
from tests.guardrails.passing import found, in_pieces, passed

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow/IBAA+KC=\nAbc\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"

PARTS: list[tuple[PiiKind, str]] = [
    ("email", "ann.b+news@mail.example.co.uk"),
    ("email", "jürgen@münchen.de"),
    ("phone", "+49 (0)30 1234-5678"),
    ("phone", "+8613812345678"),
    ("phone", "(415) 555-2671"),
    ("phone", "415-555-2671"),
    ("phone", "06 12 34 56 78"),
    ("phone", "0171/1234567"),
    ("phone", "020 7946 0958"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "gb82west12345698765432"),
    ("card", "4111 1111 1111 1111"),
    ("card", "5500-0055-5555-5559"),
    ("card", "378282246310005"),
    ("card", "４１１１１１１１１１１１１１１１"),
    ("ssn", "123-45-6789"),
    ("ip", "192.168.0.1"),
    ("ip", "2001:db8::ff00:42:8329"),
    ("secret", "sk-proj-abcDEF1234567890abcdef"),
    ("secret", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
    ("secret", "AKIAIOSFODNN7EXAMPLE"),
    ("secret", JWT),
    ("secret", PEM),
]


@pytest.mark.parametrize(("kind", "part"), PARTS)
@pytest.mark.parametrize("around", ["{}", "Take {}, please.", "({})\n", "它是{}。", '"{}"'])
def test_each_kind_is_found_wherever_it_stands(kind: PiiKind, part: str, around: str) -> None:
    text = around.format(part)

    assert found(Pii([kind]), text) == [part]
    assert passed(Pii(), text) == around.format(f"[{kind}]")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "On 2026-11-21 at 12:30:45, or 21.11.2026, or 01/02/2026.",
        "Version 1.2.3 of 10.4, python 3.11.7, and 999.300.1.2 of nobody.",
        "Order 123456789012, invoice 2026-000123, ISBN 978-3-16-148410-0.",
        "1,234,567.89 EUR and 12 345 678 people; pi is 3.14159265358979323846",
        "4111 1111 1111 1112 has a wrong check digit, and GB83 WEST 1234 5698 7654 32 too.",
        "000-12-3456 and 666-12-3456 and 123-00-4567 were never given to anybody.",
        "std::vector<a::b>, a::b::c, @mention, user@localhost, foo@@bar.com.",
        "sk-learn and api-documentation-of-the-service, eyJhbGciOi.",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "Ligue 8 às 9, 10 ou 11; a 4x4 grid of 16; 24/7.",
    ],
)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert passed(Pii(), text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("to ann\u200b@exam\u00adple.com\u200b.", "to [email]\u200b."),
        ("\u202eann\uff20example\u3002com", "\u202e[email]"),
        ("4111\u200b1111\u2060-1111\u20091111", "[card]"),
        ("DE89\u20093704\u2009\u200b0044\u20090532\u20090130\u200900", "[iban]"),
        ("x\u200b" * 3 + " y", "x\u200b" * 3 + " y"),
    ],
)
def test_what_nobody_sees_hides_nothing(text: str, shown: str) -> None:
    assert passed(Pii(), text) == shown


def test_only_the_chosen_kinds_are_looked_for() -> None:
    text = "ann@example.com, 192.168.0.1"

    assert passed(Pii(["email"]), text) == "[email], 192.168.0.1"
    assert passed(Pii(["ip"]), text) == "ann@example.com, [ip]"


def test_a_card_is_found_before_its_last_month() -> None:
    assert passed(Pii(), "4111 1111 1111 1111 12/29") == "[card] 12/29"


def test_what_was_found_is_counted_by_kind() -> None:
    passing = Passing(Pii(), "warn")
    passing.feed("ann@example.com bob@example.com 192.168.0.1")
    passing.finish()

    assert passing.found == {"an e-mail address": 2, "an IP address": 1}


def test_a_key_is_held_back_until_it_has_ended() -> None:
    passing = Passing(Pii(), "rewrite")

    assert passing.feed("Take ") == "Take "
    assert passing.feed(PEM[:60]) == ""
    assert passing.feed(PEM[60:]) == ""
    assert passing.feed(" and go.") == "[secret] and "
    assert passing.finish() == "go."


def test_a_text_without_any_is_held_back_by_its_last_word_alone() -> None:
    passing = Passing(Pii(), "rewrite")

    assert passing.feed("The weather is fi") == "The weather is "
    assert passing.feed("ne. ") == "fine. "
    assert passing.feed("It is 7 ") == "It is "


@given(in_pieces("\u200b", "ann\u200b@exam\u00adple.com", *(part for _, part in PARTS)))
def test_however_a_text_is_cut_the_same_comes_out(drawn: tuple[str, list[str]]) -> None:
    text, pieces = drawn
    passing = Passing(Pii(), "rewrite")

    out = "".join(map(passing.feed, pieces)) + passing.finish()

    assert out == passed(Pii(), text)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "part",
    [
        "a",
        "1 ",
        "a1-",
        "@",
        "a.b@",
        "\u200b",
        "a\u200b",
        "DE11 ",
        "::1",
        "eyJaaaaaaaa.",
        "1",
        "sk-",
        "+1(",
        PEM[:31],
    ],
)
def test_a_long_text_is_read_in_little_time(part: str) -> None:
    text = part * (200_000 // len(part))
    passing = Passing(Pii(), "rewrite")

    passing.feed(text)

    assert len(passing.finish()) <= len(text) + PEM_CHARS_MAX


def test_every_kind_has_an_example_here() -> None:
    assert {kind for kind, _ in PARTS} == {*PII_KINDS}
