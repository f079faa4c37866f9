"""An agent's guardrails as people write them, as they are kept, and as they are shown."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from milepost.core.errors import InvalidError
from milepost.core.guardrails import (
    PII_KINDS,
    Action,
    Coherence,
    Guardrails,
    InjectionRail,
    JsonSchemaRail,
    LengthRail,
    OnError,
    PiiKind,
    PiiRail,
    Place,
    PythonRail,
    RailSpec,
    RegexRail,
    TopicsRail,
)
from milepost.core.json import Json
from milepost.core.json_schema import mapped
from milepost.guardrails.disguise import undisguised
from milepost.guardrails.patterns import PATTERN_CHARS_MAX, PatternError, reach_of
from milepost.runtime.spec import EXACT, Globs, ModelName
from milepost.runtime.structured import require_judged

RAILS_MAX = 20
PLACES: tuple[Place, ...] = ("input", "output", "tool_arguments", "tool_results")

_RAILS: Mapping[str, type[Any]] = {
    "pii": PiiRail,
    "injection": InjectionRail,
    "length": LengthRail,
    "regex": RegexRail,
    "topics": TopicsRail,
    "json_schema": JsonSchemaRail,
    "python": PythonRail,
}

_SHAPE = frozenset(
    {"properties", "required", "additionalProperties", "items", "prefixItems", "uniqueItems"}
)

Bound = Annotated[int, Field(ge=1, le=10_000_000)]
Replacement = Annotated[str, Field(max_length=200)]


class _Spec(BaseModel):
    model_config = EXACT


class _RailSpec(_Spec):
    """One rail; `tools` are those that it looks at, at a tool's two ends."""

    tools: Globs = []


class PiiSpec(_RailSpec):
    """Which kinds of personal data are looked for."""

    type: Literal["pii"]
    action: Action = "rewrite"
    kinds: Annotated[list[PiiKind], Field(min_length=1)] = [*PII_KINDS]


class InjectionSpec(_RailSpec):
    """Whether hidden words are decoded before they are looked at."""

    type: Literal["injection"]
    action: Literal["block", "warn"] = "block"
    decode: bool = False


class LengthSpec(_RailSpec):
    """The bounds of a length."""

    type: Literal["length"]
    action: Action = "block"
    min_chars: Bound | None = None
    max_chars: Bound | None = None
    min_words: Bound | None = None
    max_words: Bound | None = None
    max_tokens: Bound | None = None


class RegexSpec(_RailSpec):
    """A pattern, and whether it is denied or required."""

    type: Literal["regex"]
    pattern: Annotated[str, Field(min_length=1, max_length=PATTERN_CHARS_MAX)]
    mode: Literal["deny", "require"] = "deny"
    action: Action = "block"
    replacement: Replacement = "[removed]"
    ignore_case: bool = False


class TopicsSpec(_RailSpec):
    """Words and phrases that are denied."""

    type: Literal["topics"]
    words: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100, pattern=r"\S")]],
        Field(min_length=1, max_length=500),
    ]
    action: Action = "block"
    replacement: Replacement = "[removed]"


class JsonSchemaSpec(_RailSpec):
    """The schema that is to be fitted."""

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["json_schema"]
    fits: Annotated[dict[str, Any], Field(alias="schema")]
    action: Literal["block", "warn"] = "block"


class PythonRailSpec(_RailSpec):
    """A rail that the installation has, by its name."""

    type: Literal["python"]
    name: Annotated[str, Field(min_length=1, max_length=128)]
    on_error: OnError | None = None


AnyRailSpec = Annotated[
    PiiSpec | InjectionSpec | LengthSpec | RegexSpec | TopicsSpec | JsonSchemaSpec | PythonRailSpec,
    Field(discriminator="type"),
]
RailSpecs = Annotated[list[AnyRailSpec], Field(max_length=RAILS_MAX)]


class CoherenceSpec(_Spec):
    """Which model judges calls, the agent's own unless named; of which tools: all unless named."""

    model: ModelName | None = None
    on_error: OnError = "pass"
    tools: Globs = []


class GuardrailsSpec(_Spec):
    """The rails at each place, in the order in which they look."""

    input: RailSpecs = []
    output: RailSpecs = []
    tool_arguments: RailSpecs = []
    tool_results: RailSpecs = []
    coherence: CoherenceSpec | None = None
    hold_output: bool = False

    def guardrails(self, model: str) -> Guardrails:
        """Return the guardrails of an agent with this model."""
        coherence = self.coherence
        return Guardrails(
            **{place: tuple(map(_rail, getattr(self, place))) for place in PLACES},
            coherence=Coherence(coherence.model or model, coherence.on_error, (*coherence.tools,))
            if coherence
            else None,
            hold_output=self.hold_output,
        )


def _rail(spec: _RailSpec) -> RailSpec:
    return decode_rail(spec.model_dump())


def decode_rail(shown: Mapping[str, Any]) -> RailSpec:
    """Return a rail from its fields as JSON; an option that a later version added is dropped.

    A rail of a later version is not: to leave it out would be to let everything pass.
    """
    rail = _RAILS[shown["type"]]
    known = {field.name for field in fields(rail)}
    given = {name: value for name, value in shown.items() if name in known}
    made: RailSpec = rail(**{name: _frozen(value) for name, value in given.items()})
    return made


def decode_guardrails(shown: Mapping[str, Any] | None) -> Guardrails | None:
    """Return guardrails as they were kept."""
    if shown is None:
        return None
    coherence = shown.get("coherence")
    return Guardrails(
        **{place: tuple(map(decode_rail, shown.get(place, ()))) for place in PLACES},
        coherence=Coherence(**{**coherence, "tools": tuple(coherence["tools"])})
        if coherence
        else None,
        hold_output=shown.get("hold_output", False),
    )


def rails_of(guardrails: Guardrails) -> Iterator[tuple[str, Place, RailSpec]]:
    """Yield each rail with its place as a pointer into a spec."""
    for place in PLACES:
        for index, rail in enumerate(getattr(guardrails, place)):
            yield f"/guardrails/{place}/{index}", place, rail


def python_rails(guardrails: Guardrails) -> Iterator[tuple[str, PythonRail]]:
    """Yield the rails in Python, likewise."""
    for pointer, _, rail in rails_of(guardrails):
        if isinstance(rail, PythonRail):
            yield pointer, rail


def require_rails(guardrails: Guardrails, installed: Collection[str]) -> None:
    """Raise `InvalidError` for a rail that is not there, or that cannot do what it says.

    `installed` are the names of those in Python.
    """
    for pointer, rail in python_rails(guardrails):
        if rail.name not in installed:
            raise InvalidError(
                f"there is no guardrail {rail.name!r}; those of this installation are:"
                f" {', '.join(sorted(installed)) or 'none'}",
                code="unknown_guardrail",
                pointer=f"{pointer}/name",
            )
    for pointer, place, declared in rails_of(guardrails):
        if fault := fault_of(declared, place):
            raise InvalidError(
                f"guardrail {declared.type}: {fault}", code="invalid_guardrail", pointer=pointer
            )


def fault_of(rail: RailSpec, place: Place) -> str | None:
    """Return why a rail could not do there what it says, None where it can."""
    if rail.tools and place in {"input", "output"}:
        return f"no tool stands at the {place}; leave out `tools`"
    match rail:
        case LengthRail():
            return _fault_of_length(rail, place)
        case RegexRail(mode="require", action="rewrite"):
            return "what is missing cannot be rewritten; let it block or warn"
        case RegexRail(pattern=pattern):
            return _fault_of_pattern(pattern)
        case TopicsRail(words=words):
            return _fault_of_words(words)
        case JsonSchemaRail(schema=schema):
            return _fault_of_schema(schema)
        case _:
            return None


def _fault_of_length(rail: LengthRail, place: Place) -> str | None:
    least = rail.min_chars or rail.min_words
    if not (least or rail.max_chars or rail.max_words or rail.max_tokens):
        return "it bounds nothing; name a bound, such as max_chars"
    if rail.action == "rewrite" and least:
        return "what is too short cannot be rewritten; let it block or warn"
    if rail.action == "rewrite" and place == "tool_arguments":
        return "arguments cannot be cut; let it block or warn"
    return None


def _fault_of_words(words: Sequence[str]) -> str | None:
    unseen = next((word for word in words if not undisguised(word).split()), None)
    if unseen is not None:
        return f"nobody sees anything of {unseen!r}; name words that can be read"
    return None


def _fault_of_pattern(pattern: str) -> str | None:
    try:
        reach_of(pattern)
    except PatternError as error:
        return f"the pattern cannot be used: {error}"
    return None


def _fault_of_schema(schema: Mapping[str, Json]) -> str | None:
    try:
        require_judged(schema, "the guardrail")
    except InvalidError as error:
        return str(error)
    if untyped := next(_untyped(dict(schema)), None):
        return f"its schema says {untyped} of a value of any type; say which, beside it"
    return None


def _untyped(part: Json) -> Iterator[str]:
    """Yield the keywords that bind nothing, as nothing says what they are about."""
    if not isinstance(part, dict):
        return
    if not part.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf"}:
        yield from sorted(part.keys() & _SHAPE)
    for key, value in part.items():
        for schema in _schemas_under(key, value):
            yield from _untyped(schema)


def _schemas_under(key: str, value: Json) -> list[Json]:
    found: list[Json] = []

    def find(schema: Json) -> Json:
        found.append(schema)
        return schema

    mapped(key, value, find)
    return found


def show_guardrails(guardrails: Guardrails | None) -> dict[str, Any] | None:
    """Return guardrails in the words of their spec."""
    return _thawed(asdict(guardrails)) if guardrails else None


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _thawed(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_thawed(item) for item in value]
    return value
