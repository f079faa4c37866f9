"""`${secret:NAME}` and `${env:NAME}`: secrets that a declaration names and never holds."""

import html
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

from milepost.core.errors import ToolError
from milepost.core.hiding import sifted
from milepost.core.json import Json, clean_text

SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")

_REFERENCE = re.compile(r"\$\{(env|secret):(" + SECRET_NAME.pattern + r")\}")
_ANY = re.compile(r"\$\{[^}]*\}?")
_REDACTED = "[secret]"
# Shorter values occur by chance, and hiding them would garble what is told.
_HIDDEN_CHARS_MIN = 4
_CAUSES_MAX = 20
# The margin of a traceback grows with each exception group that is in another, so far at most.
_GROUP_DEPTH_MAX = 12
# What is not escaped in a part of a URL, in a path, and by clients that mend what they are given.
_MENDED = "!#$%&'()*+,/:;=?@[]~"
_IN_PATHS = "!$&'()*+,/:;=@"
_LEFT_IN_URLS = ("", "/", _IN_PATHS, _MENDED, _MENDED + "\\^|", _MENDED + "\\^|`{}")
# The same of a query in which a plus stands for a space: of a part of it, and of the whole.
_LEFT_IN_QUERIES = ("", "!$'()*,/:?@", _IN_PATHS + "?")
# So much of a long value is looked for before more of it is compared, and that so often at most.
_HEAD_CHARS = 32
_TRIES_MAX = 16


@dataclass(frozen=True, slots=True)
class Reference:
    """A secret by its name, and where it is kept: the environment, or the tenant's secrets."""

    source: str
    name: str

    def __str__(self) -> str:
        return f"${{{self.source}:{self.name}}}"


Secrets = Callable[[Reference], Awaitable[str]]
"""Returns a secret's value. Raises `MilepostError` where there is none."""


def references_in(text: str) -> Iterator[Reference]:
    """Yield the references in `text`. Raises `ValueError` for one that cannot be read."""
    for found in _ANY.finditer(text):
        match = _REFERENCE.fullmatch(found[0])
        if match is None:
            raise ValueError(f"{found[0]!r} is neither ${{secret:NAME}} nor ${{env:NAME}}")
        yield Reference(match[1], match[2])


def limited(secrets: Secrets, declared: Iterable[Reference]) -> Secrets:
    """Return `secrets` for what a declaration mentions itself; all else is refused unasked."""
    mentioned = frozenset(declared)

    async def mentioned_secrets(reference: Reference) -> str:
        if reference not in mentioned:
            raise ToolError(f"{reference} is not in the declaration, so it is not read")
        return await secrets(reference)

    return mentioned_secrets


@dataclass(frozen=True, slots=True)
class Revealed:
    """Texts with their references replaced; `values` are what must not be told to anybody."""

    texts: Mapping[str, str] = field(default_factory=dict)
    values: frozenset[str] = frozenset()

    def hide(self, text: str) -> str:
        """Return `text`, which came from outside, without the secrets that it may repeat."""
        return self.sifted(text, len(text))[0]

    def hide_in_bytes(self, content: bytes) -> bytes:
        """Return `content` without the secrets that it may repeat as text in UTF-8."""
        values = {value.encode(errors="replace") for value in self.values}
        return sifted(values, content, _REDACTED.encode(), len(content))[0]

    def sifted(self, text: str, end: int, hidden: int = 0) -> tuple[str, int]:
        """Return what may be told of `text` up to `end`, and how much behind that it hides.

        The first `hidden` characters are of secrets that were told of before.
        """
        return sifted(self.values, text, _REDACTED, end, hidden)

    def decided(self, text: str) -> int:
        """Return how much of `text` can be told apart from secrets, whatever may follow it.

        The rest may be the beginning of one, or is one that may turn out to be a longer one.
        """
        return min((_begun(value, text) for value in self.values), default=len(text))

    def hide_in(self, document: Json) -> Json:
        """Return a JSON answer without the secrets that its names, strings and numbers repeat."""
        match document:
            case dict():
                return {self.hide(key): self.hide_in(part) for key, part in document.items()}
            case list():
                return [self.hide_in(part) for part in document]
            case str():
                return self.hide(document)
            case int() | float() if not isinstance(document, bool):
                hidden = self.hide(word := json.dumps(document))
                return document if hidden == word else hidden
            case _:
                return document

    def hidden(self, error: ToolError) -> ToolError:
        """Return the error as it may be told and logged.

        It is the same if neither it nor a cause of it repeats a secret, else one without causes.
        """
        if all(self.hide(str(each)) == str(each) for each in _with_causes(error)):
            return error
        return type(error)(self.hide(str(error)), code=error.code, retryable=error.retryable)


NOTHING = Revealed()
"""What hides nothing, since nothing was revealed."""


class Sieve:
    """A text in pieces, without the secrets in it, wherever it was cut."""

    def __init__(self, revealed: Revealed) -> None:
        self._revealed = revealed
        self._held = ""
        self._hidden = 0  # So much of what is held is of secrets that were told of already.

    def sift(self, piece: str) -> str:
        """Take in a piece; return what may be told by now."""
        text = self._held + piece
        end = self._revealed.decided(text)
        told, self._hidden = self._revealed.sifted(text, end, self._hidden)
        self._held = text[end:]
        return told

    def rest(self) -> str:
        """Return the rest of what may be told: nothing follows."""
        told, _ = self._revealed.sifted(self._held, len(self._held), self._hidden)
        self._held, self._hidden = "", 0
        return told


def require_one_line(values: Mapping[str, str]) -> None:
    """Raise `ToolError` for a value that would not stay in its header."""
    for name, value in values.items():
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise ToolError(f"the value of {name} has control characters, so it is not sent")


async def reveal(texts: Mapping[str, str], secrets: Secrets) -> Revealed:
    """Return `texts` with the secrets in them."""
    values: dict[Reference, str] = {}
    for text in texts.values():
        for reference in references_in(text):
            values[reference] = await secrets(reference)
    revealed = {
        key: _REFERENCE.sub(lambda found: values[Reference(found[1], found[2])], text)
        for key, text in texts.items()
    }
    return Revealed(revealed, _hidden(values.values()))


def known(texts: Mapping[str, str]) -> Revealed:
    """Return `texts`, each of which is a secret as it stands."""
    return Revealed(texts, _hidden(texts.values()))


def _hidden(values: Iterable[str]) -> frozenset[str]:
    """Return what must not be told to anybody of these secrets."""
    # Who stored one with its line's end has functions take that off again.
    bare = {part for value in values for part in (value, value.strip())}
    hidden = (value for value in bare if len(value) >= _HIDDEN_CHARS_MIN)
    return frozenset(form for value in hidden for form in _forms(value))


def _forms(value: str) -> Iterator[str]:
    """Yield the value as it is, and as URLs, JSON, HTML and Python write it."""
    yield value
    yield clean_text(value)
    for left in _LEFT_IN_URLS:
        yield quote(value, safe=left, errors="replace")
    for left in _LEFT_IN_QUERIES:
        yield quote_plus(value, safe=left, errors="replace")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield (marked := html.escape(value))
    yield marked.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    yield html.escape(value, quote=False)
    yield repr(value)[1:-1]
    if "\n" in value:
        for depth in range(1, _GROUP_DEPTH_MAX + 1):
            yield value.replace("\n", "\n" + "  " * depth + "| ")


def _begun(value: str, text: str) -> int:
    """Return from where on the end of `text` may be the beginning of `value`.

    One that repeats itself may begin in very many places: some are tried, and the next is taken.
    """
    head, at = value[:_HEAD_CHARS], max(0, len(text) - len(value) + 1)
    for _ in range(_TRIES_MAX):
        if (at := text.find(head, at)) < 0:
            break
        if value.startswith(text[at:]):
            return at
        at += 1
    else:
        return at
    ends = range(max(0, len(text) - len(head) + 1), len(text))
    return next((at for at in ends if value.startswith(text[at:])), len(text))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and what a log would show as its causes."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
