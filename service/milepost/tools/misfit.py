"""How arguments fail to fit a schema, told so that the model which wrote them can mend them."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal, Self

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json, clean_text

SHOWN_CHARS_MAX = 80
_SIMILARITY_MIN = 0.6

_KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


MisfitKind = Literal["unexpected", "missing", "type", "enum", "bound", "value"]


class Misfit(Exception):  # noqa: N818 - a finding; it becomes a ToolValidationError at the edge
    """One value that does not fit. `issue` is a verb phrase about whatever `path` leads to.

    `attempt` is the Python of what might fit, without the parameter's name. `names` are the
    parameters that are unexpected or missing.
    """

    def __init__(
        self,
        issue: str,
        suggestion: str = "",
        *,
        attempt: str = "",
        kind: MisfitKind = "type",
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(issue)
        self.issue = issue
        self.suggestion = suggestion
        self.attempt = attempt
        self.kind: MisfitKind = kind
        self.names = names
        self.path: tuple[str | int, ...] = ()

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
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 1] + "…"


def unexpected(names: list[str], expected: list[str]) -> Misfit:
    """Return the finding for parameters that nothing asked for."""
    first, *others = sorted(names)
    issue = f"got the unexpected parameter {first!r}"
    if others:
        issue = f"got unexpected parameters: {', '.join([first, *others])}"
    close = get_close_matches(first, expected, n=1, cutoff=_SIMILARITY_MIN)
    advice = f"Did you mean {close[0]!r}?" if close else f"{first!r} is not a valid parameter."
    expectation = f"Expected parameters: {', '.join(expected) or 'none'}"
    return Misfit(issue, f"{advice} {expectation}", kind="unexpected", names=(first, *others))


def missing(names: list[str], required: list[str]) -> Misfit:
    """Return the finding for parameters that were left out."""
    plural = "s" if len(names) > 1 else ""
    listed = ", ".join(repr(name) for name in names)
    return Misfit(
        f"is missing the required parameter{plural} {listed}",
        f"Required parameters: {', '.join(required)}",
        kind="missing",
        names=names,
    )
