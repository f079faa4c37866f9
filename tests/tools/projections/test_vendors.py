"""A tool as each vendor wants it declared, judged by that vendor's own rules."""

import re
from collections.abc import Callable
from datetime import date, datetime
from enum import IntEnum
from typing import Annotated, Any, Literal, get_args

import jsonschema
import mcp.types
import pytest
from hypothesis import given, settings
from pydantic import BaseModel, Field

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.core.model import ToolSchema
from milepost.tools import Tool, Vendor, prompt_block, tool, tool_of
from tests.tools.projections.dialects import GEMINI, OPENAI_STRICT, faults, parts
from tests.tools.signatures import Node, Options, Point, Unit, functions


class Level(IntEnum):
    """How loud."""

    LOW = 1
    HIGH = 2


@tool(effect="read")
def look(  # noqa: PLR0913, PLR0917 - a parameter for each kind of schema
    city: Annotated[str, Field(min_length=2, pattern="^[A-Z]")],
    at: Point,
    unit: Unit = Unit.CELSIUS,
    days: Annotated[int, Field(ge=1, le=9, multiple_of=2)] = 2,
    on: date | None = None,
    since: datetime | None = None,
    kind: Literal["a", 1] | None = None,
    pair: tuple[int, str] = (1, "a"),
    tags: set[str] | None = None,
    level: Level = Level.LOW,
    options: Options | list[Options] | None = None,
    things: list = [],  # type: ignore[type-arg]  # noqa: B006 - of any kind
) -> list[Point]:
    """Look at the weather.

    Args:
        unit: Of the degrees.
    """
    return [at]


def declared(vendor: Vendor, function: Callable[..., Any] = look) -> Any:
    """Return `function` as `vendor` wants it."""
    definition = tool_of(function) if function is look else _plain(function)
    return definition.projected(vendor)


def ready(schema: dict[str, Json]) -> Tool:
    """Return a tool with a schema by hand."""

    async def function(**_: Json) -> None: ...

    return Tool(name="ready", description="Be ready.", function=function, parameters=schema)


def _plain(function: Callable[..., Any]) -> Tool:
    return Tool(name="plain", description="Be plain.", function=function)


@pytest.mark.parametrize("vendor", get_args(Vendor))
def test_a_projection_is_made_once_per_tool(vendor: Vendor) -> None:
    assert tool_of(look).projected(vendor) is tool_of(look).projected(vendor)


@pytest.mark.parametrize("vendor", get_args(Vendor))
def test_no_projection_changes_the_schema_that_validation_judges_by(vendor: Vendor) -> None:
    before = repr(tool_of(look).schema)

    tool_of(look).projected(vendor)

    assert repr(tool_of(look).schema) == before


def test_openai_is_told_the_schema_with_items_in_every_array() -> None:
    entry = declared("openai")

    assert entry["type"] == "function"
    assert list(entry["function"]) == ["name", "description", "parameters"]
    parameters = entry["function"]["parameters"]
    assert parameters["properties"]["things"] == {"type": "array", "items": {}, "default": []}
    assert all("items" in part for part in parts(parameters) if part.get("type") == "array")
    jsonschema.Draft202012Validator.check_schema(parameters)


def test_openai_with_strict_is_told_what_its_dialect_can_say() -> None:
    entry = declared("openai_strict")

    parameters = entry["function"]["parameters"]
    assert entry["function"]["strict"] is True
    assert faults(OPENAI_STRICT, parameters) == []
    assert parameters["required"] == list(parameters["properties"])


def test_strict_says_in_words_what_its_dialect_cannot_say() -> None:
    told = declared("openai_strict")["function"]["parameters"]["properties"]

    assert told["city"] == {
        "type": "string",
        "pattern": "^[A-Z]",
        "description": "at least 2 characters",
    }
    assert told["unit"] == {
        "anyOf": [{"type": "string", "enum": ["C", "F"]}, {"type": "null"}],
        "description": 'Of the degrees. (default: "C")',
    }
    assert told["pair"]["description"] == (
        'default: [1, "a"] (its items in this order: integer, string)'
    )
    assert told["kind"]["anyOf"] == [
        {"type": "string", "enum": ["a"]},
        {"type": "integer", "enum": [1]},
        {"type": "null"},
    ]
    assert "description" not in told["on"]


def test_a_null_that_strict_makes_a_model_write_counts_as_left_out() -> None:
    given: dict[str, Json] = dict.fromkeys(tool_of(look).schema.parameters["properties"])  # type: ignore[arg-type]
    given |= {"city": "Oslo", "at": {"x": 1.5, "y": None}}

    judge = jsonschema.Draft202012Validator(declared("openai_strict")["function"]["parameters"])
    assert judge.is_valid(given)
    assert tool_of(look).values(given)["days"] == 2
    assert tool_of(look).values(given)["at"] == Point(1.5, 0)


def test_a_type_that_contains_itself_is_referred_to_with_strict() -> None:
    def walk(node: Node, other: Annotated[Node, "Another"]) -> None: ...

    parameters = declared("openai_strict", walk)["function"]["parameters"]

    assert faults(OPENAI_STRICT, parameters) == []
    assert parameters["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert parameters["properties"]["other"]["description"] == "Another"


def _deep(levels: int) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": "object", "properties": {}, "additionalProperties": False}
    for _ in range(levels - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"type": "object", "properties": {"a": {"type": "object"}}},
            "parameter 'a' takes any keys, which strict schemas cannot say; name them with",
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"allOf": [{"minimum": 1}, {"minimum": 2}]}},
            },
            "parameter 'a' must satisfy several schemas that differ in minimum",
        ),
        (_deep(11), "has 11 levels of nesting; strict takes 10"),
        (
            {"type": "object", "properties": {"a": {"enum": [*range(1001)]}}},
            "has 1001 values in its enums; strict takes 1000",
        ),
    ],
)
def test_what_strict_cannot_say_at_all_is_refused_in_words(
    schema: dict[str, Json], message: str
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        ready(schema).projected("openai_strict")

    assert "tool 'ready' cannot be declared to OpenAI with strict" in str(refusal.value)
    assert message in str(refusal.value)


def test_a_schema_by_hand_is_brought_into_strict_form() -> None:
    parameters: Any = ready(
        {
            "type": "object",
            "properties": {
                "a": {"oneOf": [{"const": 1}, {"const": "x"}]},
                "b": {"type": ["string", "null"], "maxLength": 3},
                "c": {"allOf": [{"type": "integer"}, {"minimum": 1}]},
                "d": {"pattern": "^(?=a)"},
                "e": {"$ref": "#/definitions/e"},
                "f": {},
            },
            "required": ["a", "b"],
            "definitions": {"e": {"enum": [True, None]}},
        }
    ).projected("openai_strict")["function"]

    assert faults(OPENAI_STRICT, parameters["parameters"]) == []
    told = parameters["parameters"]["properties"]
    assert told["d"]["description"] == "must match ^(?=a)"
    assert told["c"]["anyOf"][0] == {"type": "integer", "minimum": 1}


def test_anthropic_is_told_the_schema_as_it_is() -> None:
    entry = declared("anthropic")

    assert list(entry) == ["name", "description", "input_schema"]
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", entry["name"])
    assert entry["input_schema"] == tool_of(look).schema.parameters
    jsonschema.Draft202012Validator.check_schema(entry["input_schema"])


def test_anthropic_is_told_in_words_what_it_refuses_at_the_top() -> None:
    entry: Any = ready(
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}
    ).projected("anthropic")

    assert not entry["input_schema"].keys() & {"anyOf", "oneOf", "allOf"}
    assert entry["description"] == 'Be ready. (anyOf: [{"required": ["a"]}])'


def test_a_name_that_anthropic_refuses_is_refused_by_name() -> None:
    inner: dict[str, Json] = {"type": "object", "properties": {"größe": {}}}

    with pytest.raises(ToolValidationError, match="Anthropic: parameter 'größe' is named"):
        ready({"type": "object", "properties": {"a": {"items": inner}}}).projected("anthropic")


def test_gemini_is_told_what_its_dialect_can_say_and_no_output_schema() -> None:
    entry = declared("gemini")

    assert list(entry) == ["name", "description", "parameters"]
    assert faults(GEMINI, entry["parameters"]) == []


def test_gemini_says_null_with_a_flag_and_the_rest_in_words() -> None:
    told = declared("gemini")["parameters"]["properties"]

    assert told["since"] == {"type": "STRING", "format": "date-time", "nullable": True}
    assert told["on"] == {"type": "STRING", "nullable": True, "description": "format: date"}
    assert told["unit"] == {
        "type": "STRING",
        "format": "enum",
        "enum": ["C", "F"],
        "description": 'Of the degrees. (default: "C")',
    }
    assert told["level"]["description"] == "How loud. (one of 1, 2; default: 1)"
    assert told["at"]["properties"]["x"] == {"type": "NUMBER"}
    assert [branch["type"] for branch in told["options"]["anyOf"]] == ["OBJECT", "ARRAY"]
    assert all(branch["nullable"] for branch in told["options"]["anyOf"])


def test_a_function_of_nothing_has_no_parameters_for_gemini() -> None:
    def now() -> None: ...

    assert declared("gemini", now) == {"name": "plain", "description": "Be plain."}


def test_an_open_object_is_told_to_gemini_in_words() -> None:
    def count(numbers: dict[str, int], nodes: dict[str, list[int | None]]) -> None: ...

    parameters = declared("gemini", count)["parameters"]

    assert faults(GEMINI, parameters) == []
    assert parameters["properties"]["numbers"] == {
        "type": "OBJECT",
        "description": "any keys, each with integer",
    }


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Node, r"parameter 'node.next' contains itself \(Node\)"),
        (dict[str, Node], r"parameter 'node.\*.next' contains itself \(Node\)"),
        (list[Node], r"parameter 'node\[\].next' contains itself \(Node\)"),
    ],
)
def test_a_type_that_contains_itself_is_refused_for_gemini_in_words(
    annotation: Any, message: str
) -> None:
    def walk(node: Any) -> None: ...

    walk.__annotations__["node"] = annotation

    with pytest.raises(ToolValidationError, match=message):
        declared("gemini", walk)


def test_what_grows_beyond_all_bounds_without_references_is_refused_for_gemini() -> None:
    doubled: dict[str, Json] = {
        f"l{n}": {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/l{n + 1}"}, "b": {"$ref": f"#/$defs/l{n + 1}"}},
        }
        for n in range(12)
    }
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/l0"}},
        "$defs": {**doubled, "l12": {"type": "string"}},
    }

    with pytest.raises(ToolValidationError, match="makes more than 2000 schemas"):
        ready(schema).projected("gemini")


def test_a_name_that_gemini_refuses_is_refused_by_name() -> None:
    with pytest.raises(ToolValidationError, match="Gemini: parameter 'a-b' is named"):
        ready({"type": "object", "properties": {"a-b": {}}}).projected("gemini")


def test_mcp_is_told_both_schemas_and_what_the_tool_does_to_the_world() -> None:
    entry = declared("mcp")

    parsed = mcp.types.Tool.model_validate(entry)
    assert parsed.name == "look"
    assert entry["inputSchema"] == tool_of(look).schema.parameters
    assert entry["outputSchema"]["properties"]["result"]["type"] == "array"
    assert entry["annotations"] == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
    }
    jsonschema.Draft202012Validator.check_schema(entry["outputSchema"])
    assert jsonschema.Draft202012Validator(entry["outputSchema"]).is_valid(
        {"result": [{"x": 1.0, "y": 2}]}
    )


@pytest.mark.parametrize(("returns", "told"), [(Point, True), (None, False), (Any, False)])
def test_a_result_that_is_an_object_is_the_output_itself_and_nothing_is_nothing(
    returns: Any, told: bool
) -> None:
    def find() -> Any: ...

    find.__annotations__["return"] = returns
    entry = declared("mcp", find)

    assert ("outputSchema" in entry) is told
    assert not told or sorted(entry["outputSchema"]["properties"]) == ["x", "y"]


def test_tools_in_a_prompt_are_a_line_each_and_none_are_nothing() -> None:
    schema = ToolSchema("add", "Add.", {"type": "object"})

    assert prompt_block([schema]) == (
        "Available tools (JSON schema):\n"
        '{"name": "add", "description": "Add.", "parameters": {"type": "object"}}'
    )
    assert prompt_block([]) == ""


DIALECTS: dict[Vendor, Any] = {"openai_strict": OPENAI_STRICT, "gemini": GEMINI}
REFUSED = re.compile(r"parameter '[abcd]\b.* (takes any keys|contains itself)")


def parameters_or_refusal(definition: Tool, vendor: Vendor) -> tuple[Any, str | None]:
    """Return the parameters as declared, or why they cannot be."""
    try:
        entry: Any = definition.projected(vendor)
    except ToolValidationError as refusal:
        return None, str(refusal)
    return entry.get("function", entry).get("parameters"), None


class Reserved(BaseModel):
    """Has properties called like keywords."""

    type: str
    properties: int
    items: list[str]


@given(functions())
@settings(deadline=None, max_examples=100)
def test_any_signature_is_declared_by_each_vendors_rules_or_refused_with_the_parameter(
    function: Callable[..., Any],
) -> None:
    definition = _plain(function)

    for vendor, dialect in DIALECTS.items():
        parameters, refusal = parameters_or_refusal(definition, vendor)
        assert parameters is None or faults(dialect, parameters) == []
        assert refusal is None or REFUSED.search(refusal)
    entry: Any = definition.projected("openai")
    arrays = [p for p in parts(entry["function"]["parameters"]) if p.get("type") == "array"]
    assert all("items" in part for part in arrays)
    mcp.types.Tool.model_validate(definition.projected("mcp"))


@pytest.mark.parametrize("vendor", get_args(Vendor))
def test_properties_called_like_keywords_are_properties(vendor: Vendor) -> None:
    def keep(type: str, items: Reserved, default: int = 1) -> None: ...  # noqa: A002 - the point

    text = repr(declared(vendor, keep))

    assert all(f"'{name}'" in text for name in ("type", "items", "default", "properties"))
    if vendor == "openai_strict":
        told = declared(vendor, keep)["function"]["parameters"]
        assert list(told["properties"]) == ["type", "items", "default"]
        assert faults(OPENAI_STRICT, told) == []
    if vendor == "gemini":
        assert faults(GEMINI, declared(vendor, keep)["parameters"]) == []
