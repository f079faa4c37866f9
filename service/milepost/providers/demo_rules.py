"""What the offline demo understands: a few fixed patterns, each of which asks for a tool call."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from milepost.core.json import Json

WISHES_MAX = 8
MESSAGE_CHARS_MAX = 4_000
# How far before an address the word may stand that makes a mail of it.
MAIL_CHARS_MAX = 80

_NUMBER = r"-?\d{1,15}(?:\.\d{1,10})?"
_SIGN = "\\+|plus|\\*|\N{MULTIPLICATION SIGN}|x|times|multiplied by"
_BETWEEN = re.compile(
    rf"(?<![\w.])(?P<a>{_NUMBER})\s{{0,9}}(?P<verb>{_SIGN})\s{{0,9}}(?P<b>{_NUMBER})",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"\b(?P<verb>add|sum of|multiply|product of)\s{1,9}(?:the\s{1,9})?(?:numbers\s{1,9})?"
    rf"(?P<a>{_NUMBER})\s{{0,9}}(?:and|to|with|by|,)\s{{0,9}}(?P<b>{_NUMBER})",
    re.IGNORECASE,
)
_ADDING = frozenset({"+", "plus", "add", "sum of"})
_TIME = re.compile(r"\b(?:time|date|what day)\b", re.IGNORECASE)
_MAIL = re.compile(r"\b(?:send|mail|e-?mail|write)\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")
# Where the user turns from the mail to something else.
_TURN = re.compile(
    r",?\s(?:and|then)\s(?:then\s)?(?:tell|what|add|multiply|give|show)\b", re.IGNORECASE
)
_SUBJECT = re.compile(
    r"\b(?:about|subject)\s(?P<text>.{1,120}?)"
    r"(?=\s(?:saying|that says|and body|with body|body)\b|[.:!?\n]|$)",
    re.IGNORECASE,
)
_BODY = re.compile(
    r"(?:\b(?:saying|that says|body)\b:?|:)\s{0,9}(?P<text>\S.*)", re.IGNORECASE | re.DOTALL
)

_NO_SUBJECT = "A note from Milepost's demo"


@dataclass(frozen=True, slots=True)
class Wish:
    """A tool call that the user's words ask for, and where in the message they stand."""

    at: int
    tool: str
    arguments: Mapping[str, Json]


def wishes(message: str) -> tuple[Wish, ...]:
    """Return what `message` asks for, in its order: at most one mail and one look at a clock."""
    message = message[:MESSAGE_CHARS_MAX]
    mail, rest = _take_mail(message)
    found = sorted((*mail, *_sums(rest), *_time(rest)), key=lambda wish: wish.at)
    return tuple(found[:WISHES_MAX])


def _take_mail(message: str) -> tuple[tuple[Wish, ...], str]:
    """Return the mail, and the message blanked where it stands: its words are no wishes."""
    address = _ADDRESS.search(message)
    if address is None:
        return (), message
    to_at = address.start()
    verb = _MAIL.search(message, max(0, to_at - MAIL_CHARS_MAX), to_at)
    if verb is None:
        return (), message
    turn = _TURN.search(message, address.end())
    start, end = verb.start(), turn.start() if turn else len(message)
    words = message[start:to_at] + message[address.end() : end]
    rest = message[:start] + " " * (end - start) + message[end:]
    arguments = {"to": address[0], "subject": _subject(words), "body": _body(words)}
    return (Wish(start, "send_email", arguments),), rest


def _subject(words: str) -> str:
    subject = _SUBJECT.search(words)
    return _unquoted(subject["text"]) if subject else _NO_SUBJECT


def _body(words: str) -> str:
    if body := _BODY.search(words):
        return _unquoted(body["text"])
    if about := _SUBJECT.search(words):
        return f"This is about {_unquoted(about['text'])}."
    return "Hello from Milepost's demo."


def _unquoted(text: str) -> str:
    return text.strip().strip("\"'")


def _sums(message: str) -> Iterator[Wish]:
    for pattern in (_BETWEEN, _BEFORE):
        for match in pattern.finditer(message):
            tool = "add" if match["verb"].lower() in _ADDING else "multiply"
            arguments: dict[str, Json] = {"a": _number(match["a"]), "b": _number(match["b"])}
            yield Wish(match.start(), tool, arguments)


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _time(message: str) -> Iterator[Wish]:
    if asked := _TIME.search(message):
        yield Wish(asked.start(), "current_time", {})
