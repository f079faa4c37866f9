"""`${secret:NAME}` and `${env:NAME}`: secrets that a declaration names and never holds."""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from milepost.core.errors import ToolError

_REFERENCE = re.compile(r"\$\{(env|secret):([A-Za-z_][A-Za-z0-9_.-]{0,127})\}")
_ANY = re.compile(r"\$\{[^}]*\}?")
_REDACTED = "[secret]"
# Shorter values occur by chance, and hiding them would garble what is told.
_HIDDEN_CHARS_MIN = 4


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

    texts: Mapping[str, str]
    values: frozenset[str]

    def hide(self, text: str) -> str:
        """Return `text`, which came from outside, without the secrets that it may repeat."""
        for value in self.values:
            text = text.replace(value, _REDACTED)
        return text


async def reveal(texts: Mapping[str, str], secrets: Secrets) -> Revealed:
    """Return `texts` with the secrets in them. Raises `ToolError` where one cannot be sent."""
    values: dict[Reference, str] = {}
    for text in texts.values():
        for reference in references_in(text):
            values[reference] = await secrets(reference)
    revealed = {
        key: _REFERENCE.sub(lambda found: values[Reference(found[1], found[2])], text)
        for key, text in texts.items()
    }
    for key, text in revealed.items():
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise ToolError(f"the value of {key} has control characters, so it is not sent")
    hidden = frozenset(value for value in values.values() if len(value) >= _HIDDEN_CHARS_MIN)
    return Revealed(revealed, hidden)
