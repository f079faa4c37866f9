"""Prompt injection in what came from outside: phrases that address the model.

Patterns find the attempts that somebody has seen before, also in disguise, and nothing else: a tool
that acts still needs its approval. They are kept narrow, since what is blocked by mistake is lost.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator

from milepost.guardrails.confusables import skeleton
from milepost.guardrails.phrases import ABROAD, IN_OWN_LETTERS, PHRASES
from milepost.guardrails.unseen import UNSEEN

CHARS_MAX = 200_000
"""What is read at once; a longer text is read in parts that overlap."""

OVERLAP_CHARS = 2_000
ENCODED_MAX = 50
ENCODED_CHARS_MAX = 20_000

_IGNORE, *_ = PHRASES
_COMPILED = (
    *((why, re.compile(pattern, re.IGNORECASE)) for why, pattern in PHRASES.items()),
    (_IGNORE, re.compile("|".join(ABROAD.values()), re.IGNORECASE)),
)
_OWN = re.compile("|".join(IN_OWN_LETTERS.values()), re.IGNORECASE)
_SQUEEZED = tuple(
    (why, re.compile(pattern.removeprefix(r"\b").replace(" ", ""), re.IGNORECASE))
    for why, pattern in PHRASES.items()
    if pattern.startswith(r"\b")
)

_BLANKS = re.compile(r"[^\S\n]+")
_LINES_IN_JSON = re.compile(r"(?:\\r)?\\n|\\r")
_LINES = re.compile(r" ?\n ?")
_TIES = re.compile(r"\" ?, ?\"|[-_*~|/\\`\"']+")
_SPACED_OUT = re.compile(r"(?<![^\W_])[^\W_](?:[\s._*~|/-]{1,3}[^\W_](?![^\W_])){7,}")
_ENCODED = re.compile(r"(?<![\w+/-])[\w+/-]{24,}={0,2}", re.ASCII)
_FLAG = re.compile("\N{WAVING BLACK FLAG}[\U000e0030-\U000e007a]{1,8}\U000e007f")
_SMUGGLED = re.compile(
    "[\U000e0020-\U000e007e]{4}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}"  # tags; selectors
)
_LEET = str.maketrans("034578@$!|", "oeastbasil")


def injection_in(text: str, *, decode: bool = False) -> str | None:
    """Return what a text does that is meant for the model; None where it does nothing such.

    With `decode` it is also read as base64, and with figures for letters.
    """
    step = CHARS_MAX - OVERLAP_CHARS
    for begin in range(0, max(1, len(text) - OVERLAP_CHARS), step):
        if why := _found_in(text[begin : begin + CHARS_MAX], decode=decode):
            return why
    return None


def _found_in(text: str, *, decode: bool) -> str | None:
    """Look at a text as it stands, and as lines and words end in it where it is JSON."""
    why = _found_as_is(text, decode=decode)
    if why or "\\" not in text:
        return why
    unescaped = _LINES_IN_JSON.sub("\n", text).replace("\\t", " ")
    return None if unescaped == text else _found_as_is(unescaped, decode=decode)


def _found_as_is(text: str, *, decode: bool) -> str | None:
    if not text.isascii():
        if _SMUGGLED.search(_FLAG.sub("", text)):
            return "hides text where nobody sees it"
        if _OWN.search(_evened(UNSEEN.sub("", unicodedata.normalize("NFKC", text)))):
            return _IGNORE
    shown = _evened(skeleton(text))
    for reading in _readings(shown):
        if why := _match(_COMPILED, reading):
            return why
    for run in _SPACED_OUT.finditer(shown):
        if why := _match(_SQUEEZED, re.sub(r"[\W_]+", "", run[0])):
            return why
    return _decoded(text, shown) if decode else None


def _evened(text: str) -> str:
    return _LINES.sub("\n", _BLANKS.sub(" ", text))


def _readings(shown: str) -> Iterator[str]:
    """Yield the text as it stands, on one line, and with its words torn from each other.

    A phrase may be broken over lines, and a few patterns look where lines begin.
    """
    yield shown
    flat = shown.replace("\n", " ")
    yield flat
    if (torn := _BLANKS.sub(" ", _TIES.sub(" ", flat))) != flat:
        yield torn


def _match(patterns: tuple[tuple[str, re.Pattern[str]], ...], text: str) -> str | None:
    return next((why for why, pattern in patterns if pattern.search(text)), None)


def _decoded(text: str, shown: str) -> str | None:
    plain = shown.translate(_LEET)
    for one in ("i", "l"):
        for reading in _readings(plain.replace("1", one)):
            if why := _match(_COMPILED, reading):
                return f"{why}, in figures for letters"
    for index, run in enumerate(_ENCODED.finditer(text)):
        if index >= ENCODED_MAX:
            break
        if why := _found_in(_from_base64(run[0][:ENCODED_CHARS_MAX]), decode=False):
            return f"{why}, in base64"
    return None


def _from_base64(run: str) -> str:
    """Return what the run says, nothing where it is no text in base64."""
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    whole = plain[: len(plain) - (len(plain) % 4 == 1)]
    try:
        return base64.b64decode(whole + "=" * (-len(whole) % 4), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
