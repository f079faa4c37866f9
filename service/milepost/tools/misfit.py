"""How arguments fail to fit a schema, told so that the model which wrote them can mend them."""

import copy
import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Literal, Self, TypeVar

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json, clean_text

SHOWN_CHARS_MAX = 80
SOME_MAX = 50
_SIMILARITY_MIN = 0.6

_KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}

T = TypeVar("T")
MisfitKind = Literal["unexpected", "missing", "type", "enum", "bound", "value"]


class Misfit(Exception):  # noqa: N818 - a finding; it becomes a ToolValidationError at the edge
    """One value that does not fit. `issue` is a verb phrase about whatever `path` leads to.

    `attempt` is the Python of what might fit, without the parameter's name. `names` are the
    parameters that are unexpected or missing. A `suggestion` that takes long to find is looked for
    when it is told: most of what one alternative misses nobody ever hears.
    """

    def __init__(
        self,
        issue: str,
        suggestion: str | Callable[[], str] = "",
        *,
        attempt: str = "",
        kind: MisfitKind = "type",
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(issue)
        self.issue = issue
        self._suggestion = suggestion
        self.attempt = attempt
        self.kind: MisfitKind = kind
        self.names = names
        self.path: tuple[str | int, ...] = ()

    @property
    def suggestion(self) -> str:
        """What may help."""
        return self._suggestion if isinstance(self._suggestion, str) else self._suggestion()

    def again(self) -> Self:
        """Return the same finding, to be told from elsewhere."""
        return copy.copy(self)

    def within(self, key: str | int) -> Self:
        """Return this finding as the container sees it."""
        self.path = (key, *self.path)
        return self

    def to_error(self, tool: str) -> ToolValidationError:
        """Return the error that goes back to the model."""
        where = dotted(self.path)
        subject = f"{tool}: parameter {where!r}" if where else tool
        advice = f"Try: {where}={self.attempt}" if self.attempt else self.suggestion
        return ToolValidationError(
            clean_text(f"{subject} {self.issue}. {advice}".rstrip()),
            tool=tool,
            parameter=clean_text(where or ", ".join(self.names)),
            issue=clean_text(self.issue),
            suggestion=clean_text(advice),
        )


def dotted(path: tuple[str | int, ...]) -> str:
    """Return `opts.tags[0]` for `("opts", "tags", 0)`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def shown(value: Json) -> str:
    """Return `value` and its JSON type, short enough for a message."""
    if value is None:
        return "null"
    return f"{clipped(value)} ({_KINDS.get(type(value), type(value).__name__)})"


def clipped(value: Json) -> str:
    """Return the JSON text of `value`, short enough for a message."""
    text = ""
    # Piece by piece: there may be much more of it than is shown.
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += piece[: SHOWN_CHARS_MAX + 1]
        if len(text) > SHOWN_CHARS_MAX:
            return text[: SHOWN_CHARS_MAX - 1] + "…"
    return text


def some(items: Sequence[T], joint: str = ", ", word: Callable[[T], str] = str) -> str:
    """Return the items in words; of many, the first and how many there are."""
    told = joint.join(map(word, items[:SOME_MAX]))
    return told if len(items) <= SOME_MAX else f"{told}{joint}… ({len(items)} in all)"


def unexpected(names: list[str], expected: list[str]) -> Misfit:
    """Return the finding for parameters that nothing asked for."""
    first, *others = sorted(names)
    issue = f"got the unexpected parameter {first!r}"
    if others:
        issue = f"got unexpected parameters: {some([first, *others])}"

    def suggestion() -> str:
        close = get_close_matches(first, expected, n=1, cutoff=_SIMILARITY_MIN)
        advice = f"Did you mean {close[0]!r}?" if close else f"{first!r} is not a valid parameter."
        return f"{advice} Expected parameters: {some(expected) or 'none'}"

    return Misfit(issue, suggestion, kind="unexpected", names=(first, *others))


def missing(names: list[str], required: list[str]) -> Misfit:
    """Return the finding for parameters that were left out."""
    plural = "s" if len(names) > 1 else ""
    return Misfit(
        f"is missing the required parameter{plural} {some(names, word=repr)}",
        lambda: f"Required parameters: {some(required)}",
        kind="missing",
        names=names,
    )
