"""What an agent's guardrails are to be: rails at four places, as data.

What each of them does is in `guardrails/`; here stand its name and its options alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from milepost.core.json import Json

Place = Literal["input", "output", "tool_arguments", "tool_results"]
"""What a guardrail looks at: what the client says, what the model answers, a tool's two ends."""

Action = Literal["block", "rewrite", "warn"]
OnError = Literal["block", "pass"]

PiiKind = Literal["email", "phone", "iban", "card", "ssn", "ip", "secret"]
PII_KINDS: tuple[PiiKind, ...] = ("email", "phone", "iban", "card", "ssn", "ip", "secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiRail:
    """Finds what tells who somebody is, or what opens doors, and puts its kind in its place."""

    type: Literal["pii"] = "pii"
    action: Action = "rewrite"
    kinds: tuple[PiiKind, ...] = PII_KINDS
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionRail:
    """Finds words that are meant for the model; with `decode` also in base64 and leetspeak."""

    type: Literal["injection"] = "injection"
    action: Literal["block", "warn"] = "block"
    decode: bool = False
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRail:
    """Bounds a text's length. To rewrite one that is too long is to cut it."""

    type: Literal["length"] = "length"
    action: Action = "block"
    min_chars: int | None = None
    max_chars: int | None = None
    min_words: int | None = None
    max_words: int | None = None
    max_tokens: int | None = None
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexRail:
    """Denies what fits a pattern, or requires something that does."""

    type: Literal["regex"] = "regex"
    pattern: str
    mode: Literal["deny", "require"] = "deny"
    action: Action = "block"
    replacement: str = "[removed]"
    ignore_case: bool = False
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsRail:
    """Denies words and phrases, whatever their case, where they stand by themselves."""

    type: Literal["topics"] = "topics"
    words: tuple[str, ...]
    action: Action = "block"
    replacement: str = "[removed]"
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaRail:
    """Denies what does not fit a JSON Schema (2020-12); a text must be JSON that does."""

    type: Literal["json_schema"] = "json_schema"
    schema: Mapping[str, Json]
    action: Literal["block", "warn"] = "block"
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRail:
    """A rail that the installation has in Python. Without `on_error` its own holds."""

    type: Literal["python"] = "python"
    name: str
    on_error: OnError | None = None
    tools: tuple[str, ...] = ()


RailSpec = (
    PiiRail | InjectionRail | LengthRail | RegexRail | TopicsRail | JsonSchemaRail | PythonRail
)
"""One rail as it is declared. `tools` are globs over the tools that it looks at; none: all."""


def looks_at(tools: tuple[str, ...], tool: str | None) -> bool:
    """Say whether who is declared with these `tools` looks at what concerns this one."""
    return not tools or any(fnmatchcase(tool or "", glob) for glob in tools)


@dataclass(frozen=True, slots=True)
class Coherence:
    """`model` says of each call of a tool that a glob of `tools` names if it is what was asked for.

    `on_error` says what becomes of a call of which the model says nothing that can be read.
    """

    model: str
    on_error: OnError = "pass"
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Guardrails:
    """The rails at each place, in the order in which they look.

    With `hold_output` no text is shown before all of it has passed.
    """

    input: tuple[RailSpec, ...] = ()
    output: tuple[RailSpec, ...] = ()
    tool_arguments: tuple[RailSpec, ...] = ()
    tool_results: tuple[RailSpec, ...] = ()
    coherence: Coherence | None = None
    hold_output: bool = False

    @property
    def screens_calls(self) -> bool:
        """Whether calls are looked at before they are made."""
        return bool(self.tool_arguments or self.coherence)
