"""What may be remembered: of what kinds, whose it is, and by what the same thing is known again."""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from milepost.core.scripts import JOINERS, JOINING, MARKS, UNSPACED

MemoryScope = Literal["session", "user", "agent", "tenant"]
MemoryKind = Literal["entity", "relation", "fact", "log"]
MemoryOrigin = Literal["run", "tool", "client"]
SCOPES: tuple[MemoryScope, ...] = get_args(MemoryScope)
KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)

NAME_CHARS_MAX = 200
CONTENT_CHARS_MAX = 2_000
WORD_CHARS_MAX = 64
SOUGHT_MAX = 32
_KEY_CHARS_MAX = 200
_SHORT = 2
_UNSEEN_JOINER = re.compile(f"(?<![{JOINING}])[{JOINERS}]")
_WORD = re.compile(rf"(?:[^\W_{UNSPACED}]+[{MARKS}]*)+|(?=[^\W_])[{UNSPACED}][{MARKS}]*")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose memories: those of a session, a user, an agent by its id, or a tenant (an empty id)."""

    scope: MemoryScope
    id: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing: an entity (`subject`, and `content` that says more), a relation
    (`subject`, `predicate`, `object`), a fact, or a log's line (`content`).
    """

    kind: MemoryKind
    content: str = ""
    subject: str = ""
    predicate: str = ""
    object: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What it is known by: two that differ in case, spaces and marks alone are the same."""
        named = (self.subject, self.predicate, self.object)
        parts = [part for part in named if part] or [self.content]
        told = (" ".join(_WORD.findall(folded(part))) or folded(part) for part in parts)
        return _short("|".join(told))

    @property
    def words(self) -> str:
        """What it is found by: its words, each of them once said and in lower case."""
        told = " ".join((self.subject, self.predicate, self.object, self.content))
        return " ".join(words(told))


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without marks, as both databases index them."""
    return [word[:WORD_CHARS_MAX] for word in _WORD.findall(folded(text))]


def sought(query: str) -> list[str]:
    """Return what to look for: each word once, without those that begin every other word.

    Words are found by their beginnings; one or two letters stand for themselves only in scripts in
    which a sign is a word.
    """
    told = [*dict.fromkeys(words(query))]
    telling = [word for word in told if len(word) > _SHORT or not word.isascii() or word.isdigit()]
    return (telling or told)[:SOUGHT_MAX]


def likeness(finding: Finding, asked: Collection[str]) -> int:
    """Return how many of the words occur in what was found, or begin a word of it."""
    told = finding.words.split()
    return sum(any(word.startswith(each) for word in told) for each in asked)


def folded(text: str) -> str:
    """Return the text as it is compared: whatever its case, its spaces, and how it is encoded."""
    told = unicodedata.normalize("NFKC", text).casefold()
    # What is left of the large dotted i, whose small one is any other's.
    return " ".join(told.replace("i\u0307", "i").split())


def line(text: str, chars_max: int = CONTENT_CHARS_MAX) -> str:
    """Return the text as one line of printable characters, cut to a length.

    So whatever somebody said cannot begin a line of its own where it is shown.
    """
    spaced = _UNSEEN_JOINER.sub("", " ".join(text.split()))
    printable = "".join(
        char for char in spaced if char in JOINERS or unicodedata.category(char)[0] != "C"
    )
    return printable[:chars_max].rstrip()


def _short(key: str) -> str:
    if len(key) <= _KEY_CHARS_MAX:
        return key
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()
