"""Results that say what kind of answer they are, so that a model need not guess."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool saw, as a frozen dataclass whose JSON begins with its `kind`.

    A subclass names its kind: `kind: ClassVar[str] = "weather"`. It is an observation, not the
    truth: one that knows where it comes from says so in fields such as `source` or `evidence`.
    What in it has no JSON form becomes its `str`.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Refuse a subclass that a model could not tell from another."""
        kind = getattr(cls, "kind", None)
        if not isinstance(kind, str) or not kind:
            raise TypeError(
                f'{cls.__name__} needs a kind; write `kind: ClassVar[str] = "..."` in its body'
            )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Show the kind as the constant that it is, before the fields."""
        shown = handler.resolve_ref_schema(handler(schema))
        described = {**shown.get("properties", {})}
        required = [name for name in shown.get("required", []) if name != "kind"]
        shown["properties"] = {"kind": {"const": cls.kind}, **described}
        shown["required"] = ["kind", *required]
        return shown


@dataclass(frozen=True, slots=True)
class NotFound(ToolResult):
    """There is no such thing: `entity` says what was looked for, `query` by which words."""

    kind: ClassVar[str] = "not_found"
    entity: str
    query: str


@dataclass(frozen=True, slots=True)
class Ambiguous(ToolResult):
    """Several things fit, which the model, or its user, has to choose from."""

    kind: ClassVar[str] = "ambiguous"
    entity: str
    query: str
    matches: tuple[Any, ...] | list[Any]


def members(result: ToolResult) -> Iterator[tuple[str, Any]]:
    """Yield what is in the result by name, its kind first."""
    yield "kind", result.kind
    for field in fields(result):
        if field.name != "kind":
            yield field.name, getattr(result, field.name)
