"""What tells who somebody is, and what opens doors: addresses, numbers that check, keys.

A number counts where its checksum or its shape says what it is: dates, versions and the numbers of
orders look much like those of telephones and cards, and a text full of holes helps nobody.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from milepost.core.guardrails import PII_KINDS, PiiKind
from milepost.guardrails.checksums import iban_length, is_card, is_iban
from milepost.guardrails.finds import Find
from milepost.guardrails.unseen import Seen, back

TOKEN_CHARS_MAX = 4_096
"""No address and no key is longer; a private key, which goes over lines, may have twice as much."""

PEM_CHARS_MAX = 2 * TOKEN_CHARS_MAX
_NUMBER_CHARS_MAX = 64
_BEFORE = 2  # How far the patterns look back.

# As long as what they stand for, so that places stay what they are.
_PLAIN = {
    **{ord("\N{FULLWIDTH EXCLAMATION MARK}") + n: 0x21 + n for n in range(94)},
    **{zero + n: ord("0") + n for zero in (0x660, 0x6F0, 0x966) for n in range(10)},
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), 0x20),
    **dict.fromkeys((0x2024, 0x3002, 0xFF61), 0x2E),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), 0x2D),
}

_EMAIL = re.compile(
    r"[A-Za-z0-9\u00c0-\u024f.%+'_-]{1,64}@"
    r"[A-Za-z0-9\u00c0-\u024f](?:[A-Za-z0-9\u00c0-\u024f.-]{0,120}[A-Za-z0-9\u00c0-\u024f])?"
    r"\.[A-Za-z]{2,24}"
)
_PHONE = re.compile(
    r"(?<![A-Za-z0-9+.])(?:"
    r"(?:\+|00)[1-9](?:[ ()./-]{0,3}[0-9]){6,14}"
    r"|\([0-9]{2,5}\)[ -]?[0-9](?:[ ./-]?[0-9]){5,9}"
    r"|[2-9][0-9]{2}([ .-])[0-9]{3}\1[0-9]{4}"
    r"|0[0-9](?:([ .])[0-9]{2})(?:\2[0-9]{2}){3}"
    r"|0[0-9]{2,4}[ /-][0-9]{3,8}(?:[ -][0-9]{2,5})?"
    r")(?![A-Za-z0-9]|[-.][0-9])"
)
_CARD = re.compile(r"(?<![0-9])[2-6](?:[ .-]?[0-9]){12,18}")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30}")
_SSN = re.compile(
    r"(?<![A-Za-z0-9-])(?!000|666|9)[0-9]{3}([- ])(?!00)[0-9]{2}\1(?!0000)[0-9]{4}(?![A-Za-z0-9-])"
)
_IP = re.compile(
    r"(?<![A-Za-z0-9.:])(?:(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![A-Za-z0-9]|\.[0-9])"
    r"|(?=[A-Fa-f:]{0,39}[0-9])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![A-Za-z0-9:]))"
)
_PEM = (
    r"-----BEGIN (?:[A-Z]{1,10} ){0,2}PRIVATE KEY-----"
    rf"(?:[A-Za-z0-9+/=\s\\:,]|-(?!-)){{0,{PEM_CHARS_MAX}}}"
)
_SECRET = re.compile(
    rf"{_PEM}(?:-----END (?:[A-Z]{{1,10}} ){{0,2}}PRIVATE KEY-----)?"
    r"|(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk|mp|api|key|pat|token|secret)[-_](?=[A-Za-z_-]{0,200}[0-9])[A-Za-z0-9_-]{16,1000}"
    r"|gh[opsur]_[A-Za-z0-9]{30,1000}|github_pat_[A-Za-z0-9_]{30,1000}|glpat-[A-Za-z0-9_-]{20,200}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,1000}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{35}"
    r"|hf_[A-Za-z0-9]{30,1000}|npm_[A-Za-z0-9]{30,1000}"
    r"|eyJ[A-Za-z0-9_-]{8,1000}\.eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{0,1000}"
    r")(?![A-Za-z0-9])"
)

# What may yet become one of these, at the end of a text that goes on.
_OPEN_NUMBER = re.compile(rf"[0-9+(][0-9+()\s./-]{{0,{_NUMBER_CHARS_MAX}}}\Z")
_OPEN_IBAN = re.compile(r"[A-Za-z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){0,30}[ -]?\Z")
_OPEN_PEM = re.compile(
    rf"-----BEGIN[A-Z ]{{0,50}}-{{0,5}}\Z|{_PEM}-{{0,5}}[A-Z ]{{0,50}}-{{0,5}}\Z"
)

Extent = Callable[[re.Match[str]], int | None]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind: what it looks like, how far one reaches if it is one, and what it is called."""

    pattern: re.Pattern[str]
    extent: Extent
    what: str
    instead: str


class Pii:
    """Finds all of the chosen kinds."""

    reads_whole = False
    demands = False

    def __init__(self, kinds: Sequence[PiiKind] = PII_KINDS) -> None:
        self._kinds = [_KINDS[kind] for kind in kinds]

    def find(self, text: str, start: int, *, whole: bool) -> tuple[Sequence[Find], int]:
        """Return what tells who somebody is; the last word and the last number may go on."""
        shift = back(text, start, _BEFORE)
        part = text[shift:]
        seen = Seen(part if part.isascii() else part.translate(_PLAIN))
        finds = [
            Find(shift + seen.begin(begin), shift + seen.end(end), kind.what, kind.instead)
            for begin, end, kind in self._finds(seen.text, seen.first_from(start - shift))
        ]
        return finds, len(text) if whole else shift + seen.begin(_settled(seen.text))

    def _finds(self, text: str, at: int) -> list[tuple[int, int, _Kind]]:
        """Take whatever begins first, and of what begins together the longest."""
        finds: list[tuple[int, int, _Kind]] = []
        ahead = {kind: _next(kind, text, at) for kind in self._kinds}
        while True:
            for kind, span in ahead.items():
                if span is not None and span[0] < at:
                    ahead[kind] = _next(kind, text, at)
            found = [(span[0], -span[1], kind) for kind, span in ahead.items() if span is not None]
            if not found:
                return finds
            begin, end, kind = min(found, key=lambda each: each[:2])
            at = -end
            finds.append((begin, at, kind))


def _next(kind: _Kind, text: str, at: int) -> tuple[int, int] | None:
    """Return where the next one begins and ends, from `at` on."""
    while match := kind.pattern.search(text, at):
        if (end := kind.extent(match)) is not None:
            return match.start(), end
        at = match.start() + 1
    return None


def _settled(text: str) -> int:
    """Return where the last word begins, or the last number or key that goes over words."""
    length = len(text)
    words = text[-TOKEN_CHARS_MAX:].rsplit(maxsplit=1)
    word = length if not words or text[-1].isspace() else length - len(words[-1])
    number_at = max(0, length - _NUMBER_CHARS_MAX)
    pem_at = text.rfind("-----BEGIN", -PEM_CHARS_MAX - 200)
    open_ends = (
        _OPEN_NUMBER.search(text, number_at),
        _OPEN_IBAN.search(text, number_at),
        _OPEN_PEM.search(text, pem_at) if pem_at >= 0 else None,
    )
    return min([word, *(match.start() for match in open_ends if match)])


def _all(match: re.Match[str]) -> int | None:
    return match.end()


def _phone(match: re.Match[str]) -> int | None:
    digits = sum(char.isdigit() for char in match[0])
    return match.end() if 8 <= digits <= 15 else None


def _card(match: re.Match[str]) -> int | None:
    """The run of digits may go on behind the card: with its last month, say."""
    text, begin = match[0], match.start()
    ends = [place + 1 for place, char in enumerate(text) if char.isdigit()]
    following = match.string[match.end() : match.end() + 1]
    for count in range(len(ends), 12, -1):
        end = ends[count - 1]
        after = text[end : end + 1] or following
        digits = "".join(char for char in text[:end] if char.isdigit())
        if not after.isdigit() and is_card(digits):
            return begin + end
    return None


def _iban(match: re.Match[str]) -> int | None:
    text = match[0].upper()
    length = iban_length(text[:2])
    places = [place for place, char in enumerate(text) if char.isalnum()]
    if length is None or len(places) < length:
        return None
    end = places[length - 1] + 1
    number = "".join(char for char in text[:end] if char.isalnum())
    after = text[end : end + 1] or match.string[match.end() : match.end() + 1]
    return match.start() + end if not after.isalnum() and is_iban(number) else None


def _ip(match: re.Match[str]) -> int | None:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return None
    return match.end()


_KINDS: dict[PiiKind, _Kind] = {
    "email": _Kind(_EMAIL, _all, "an e-mail address", "[email]"),
    "phone": _Kind(_PHONE, _phone, "a telephone number", "[phone]"),
    "iban": _Kind(_IBAN, _iban, "an account number", "[iban]"),
    "card": _Kind(_CARD, _card, "a card number", "[card]"),
    "ssn": _Kind(_SSN, _all, "a social security number", "[ssn]"),
    "ip": _Kind(_IP, _ip, "an IP address", "[ip]"),
    "secret": _Kind(_SECRET, _all, "a secret", "[secret]"),
}
