"""What a model is told about a function's parameters and its result."""

import json
import sys
import typing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Required, Union, cast
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, Field
from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - both from one place

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Injected, Registry, ToolContext, tool, tool_of
from milepost.tools.schema import ParameterNotes


class Unit(Enum):
    """Degrees."""

    CELSIUS = "C"
    FAHRENHEIT = "F"


class Level(IntEnum):
    """How loud."""

    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A place."""

    x: float
    y: float = 0.0


class Options(TypedDict):
    """How to look."""

    depth: Annotated[int, Field(ge=0)]
    tag: NotRequired[str]


class Node(BaseModel):
    """A list of its own kind."""

    value: int
    next: "Node | None" = None


class Titled(BaseModel):
    """Has a field that is called like a keyword of JSON Schema."""

    title: str = Field(title="A title")


class Database:
    """Nothing that JSON knows."""


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the schema of `function`'s parameters, proven to be one."""
    schema = dict(tool_of(tool(description="Any.")(function)).schema.parameters)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def properties_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the properties that the model is offered."""
    return cast("dict[str, Any]", schema_of(function)["properties"])


def property_of(annotation: Any) -> Any:
    """Return the schema for one parameter of that annotation."""

    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return properties_of(function)["value"]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list, {"type": "array"}),
        (tuple, {"type": "array"}),
        (set, {"type": "array", "uniqueItems": True}),
        (dict, {"type": "object"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (deque[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (
            frozenset[str],
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (
            list[dict[str, list[int]]],
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": {"type": "array", "items": {"type": "integer"}},
                },
            },
        ),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (Union[str, int], {"anyOf": [{"type": "string"}, {"type": "integer"}]}),  # noqa: UP007
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (Literal[1, "a"], {"enum": [1, "a"]}),
        (Literal[True, 2], {"enum": [True, 2]}),
        (None, {"type": "null", "default": None}),
        (datetime, {"type": "string", "format": "date-time"}),
        (date, {"type": "string", "format": "date"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Path, {"type": "string", "format": "path"}),
    ],
)
def test_an_annotation_has_its_schema(annotation: Any, schema: Json) -> None:
    assert property_of(annotation) == schema


@pytest.mark.parametrize("annotation", [Optional[str], str | None, None | str])  # noqa: UP045
def test_an_optional_parameter_is_nullable_and_not_required(annotation: Any) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    schema = schema_of(function)

    assert schema["required"] == []
    value = schema["properties"]["value"]
    assert value["default"] is None
    assert {"type": "null"} in value["anyOf"]


@pytest.mark.parametrize("annotation", [Optional[Literal["a", "b"]], list[int] | None])  # noqa: UP045
def test_what_an_optional_holds_keeps_its_schema(annotation: Any) -> None:
    found = property_of(annotation)

    solid, null = found["anyOf"]
    assert null == {"type": "null"}
    assert solid in (
        {"type": "string", "enum": ["a", "b"]},
        {"type": "array", "items": {"type": "integer"}},
    )


def test_a_decimal_may_be_written_as_a_number_or_as_text() -> None:
    number, text = property_of(Decimal)["anyOf"]

    assert number == {"type": "number"}
    assert text["type"] == "string"


def test_a_default_is_shown_and_makes_a_parameter_optional() -> None:
    def look(city: str, unit: Unit = Unit.CELSIUS, days: int = 3) -> None: ...

    definition = tool_of(tool(description="Look.")(look))
    properties = properties_of(look)

    assert definition.schema.parameters["required"] == ["city"]
    assert properties["days"] == {"type": "integer", "default": 3}
    assert properties["unit"] == {"$ref": "#/$defs/Unit", "default": "C"}


def test_a_default_that_json_cannot_show_still_is_one() -> None:
    class Missing:
        pass

    def look(city: Any = Missing) -> None: ...

    assert properties_of(look) == {"city": {}}


def test_classes_are_described_by_their_fields_without_titles() -> None:
    def look(at: Point, how: Options, level: Level, titled: Titled) -> None: ...

    schema = schema_of(look)
    definitions = schema["$defs"]

    assert definitions["Level"] == {"type": "integer", "enum": [1, 2], "description": "How loud."}
    assert definitions["Titled"]["properties"] == {"title": {"type": "string"}}
    assert definitions["Options"]["required"] == ["depth"]
    assert definitions["Point"]["properties"]["y"] == {"type": "number", "default": 0.0}


def test_a_class_that_contains_itself_refers_to_what_is_there() -> None:
    def look(node: Node, nodes: list[Node]) -> None: ...

    schema = schema_of(look)

    judge = jsonschema.Draft202012Validator(schema)
    assert judge.is_valid({"node": {"value": 1, "next": {"value": 2}}, "nodes": []})
    assert not judge.is_valid({"node": {"value": 1, "next": {"value": "x"}}, "nodes": []})


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (
            Annotated[int, Field(ge=1, lt=9, multiple_of=2)],
            {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 2},
        ),
        (
            Annotated[str, Field(min_length=1, max_length=5, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a"},
        ),
        (Annotated[list[int], Field(min_length=1)], {"type": "array", "minItems": 1}),
        (Annotated[int, Field(gt=0), Field(le=3)], {"exclusiveMinimum": 0, "maximum": 3}),
    ],
)
def test_a_field_bounds_its_parameter(annotation: Any, schema: dict[str, Json]) -> None:
    found = property_of(annotation)

    assert schema.items() <= found.items()


def test_a_bound_on_an_optional_is_a_bound_on_its_values() -> None:
    found = property_of(Annotated[list[int] | None, Field(min_length=1)])

    assert found["anyOf"] == [
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        {"type": "null"},
    ]


def test_a_string_in_annotated_describes_and_a_field_describes_better() -> None:
    shorthand = property_of(Annotated[str, "City name"])
    both = property_of(Annotated[str, Field(description="A city"), "City name"])

    assert shorthand == {"type": "string", "description": "City name"}
    assert both == {"type": "string", "description": "A city"}


def test_param_metadata_describes_and_restricts() -> None:
    def look(city: Annotated[str, "A town"], unit: str | None) -> None: ...

    notes: dict[str, ParameterNotes] = {
        "city": {"description": "City name"},
        "unit": {"enum": ["C", "F"]},
    }
    definition = tool_of(tool(description="Look.", param_metadata=notes)(look))

    assert definition.schema.parameters["properties"] == {
        "city": {"type": "string", "description": "City name"},
        "unit": {
            "anyOf": [{"type": "string", "enum": ["C", "F"]}, {"type": "null"}],
            "default": None,
        },
    }
    assert definition.validate({"city": "Oslo", "unit": None})["unit"] is None
    with pytest.raises(ToolValidationError, match='must be one of "C", "F", got "K"'):
        definition.validate({"city": "Oslo", "unit": "K"})


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (list[str], {"type": "array", "items": {"type": "string", "enum": ["C", "F"]}}),
        (list, {"type": "array", "items": {"enum": ["C", "F"]}}),
        (
            set[Unit],
            {
                "type": "array",
                "items": {"$ref": "#/$defs/Unit", "enum": ["C", "F"]},
                "uniqueItems": True,
            },
        ),
        (
            list[str | None] | None,
            {
                "anyOf": [
                    {
                        "type": "array",
                        "items": {
                            "anyOf": [{"type": "string", "enum": ["C", "F"]}, {"type": "null"}]
                        },
                    },
                    {"type": "null"},
                ],
                "default": None,
            },
        ),
    ],
)
def test_a_choice_for_a_list_is_among_its_items(annotation: Any, schema: Json) -> None:
    def look(units: Any) -> None: ...

    look.__annotations__["units"] = annotation
    definition = tool_of(
        tool(description="Look.", param_metadata={"units": {"enum": ["C", "F"]}})(look)
    )

    assert definition.schema.parameters["properties"] == {"units": schema}
    assert definition.validate({"units": ["F", "C"]}) == {"units": ["F", "C"]}
    with pytest.raises(ToolValidationError, match=r'must be one of "C", "F", got "K"'):
        definition.validate({"units": ["C", "K"]})


@pytest.mark.parametrize(
    ("annotation", "choices"),
    [
        (dict[str, str], ["C"]),
        (tuple[str, str], ["C"]),
        (int, [1, "2"]),
        (Annotated[int, Field(ge=1)], [0, 1]),
        (Literal["C", "F"], ["C", "K"]),
        (list[int], ["C"]),
    ],
)
def test_a_choice_that_no_value_can_be_is_refused(annotation: Any, choices: list[Any]) -> None:
    def look(unit: Any) -> None: ...

    look.__annotations__["unit"] = annotation

    with pytest.raises(ToolValidationError, match=r"param_metadata of 'unit'.* in enum") as refusal:
        tool(description="Look.", param_metadata={"unit": {"enum": choices}})(look)

    assert refusal.value.code == "invalid_tool"


def test_a_text_is_no_list_of_choices() -> None:
    def look(unit: str) -> None: ...

    with pytest.raises(ToolValidationError, match="'metric' for enum; it must be a list"):
        tool(description="Look.", param_metadata={"unit": {"enum": "metric"}})(look)


def test_param_metadata_for_nothing_is_refused() -> None:
    def look(city: str) -> None: ...

    with pytest.raises(ToolValidationError, match="names 'town', which the model does not fill"):
        tool(description="Look.", param_metadata={"town": {"description": "A town"}})(look)


def test_a_parameter_without_annotation_is_a_string_and_warned_about() -> None:
    def look(city) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.warns(UserWarning, match="'city' has no annotation and is taken for a string"):
        properties = properties_of(look)

    assert properties == {"city": {"type": "string"}}


def test_what_the_model_does_not_fill_is_not_in_the_schema() -> None:
    def look(
        city: str,
        context: ToolContext,
        maybe: ToolContext | None = None,
        key: Injected[str] = "k",
        _page: int = 1,
        *more: int,
        **others: int,
    ) -> None: ...

    schema = tool_of(tool(description="Look.")(look)).schema.parameters

    assert schema["properties"] == {"city": {"type": "string"}}
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False


def test_a_function_of_nothing_has_an_empty_object() -> None:
    def now() -> None: ...

    assert tool_of(tool(description="Tell the time.")(now)).schema.parameters == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_parameters_may_be_called_like_pydantics_own_attributes() -> None:
    def look(
        json: int, schema: int, copy: int, model_config: int, field_json: int, validate: int = 1
    ) -> list[int]:
        return [json, schema, copy, model_config, field_json, validate]

    properties = properties_of(look)
    arguments: dict[str, Json] = {
        "json": 1,
        "schema": 2,
        "copy": 3,
        "model_config": 4,
        "field_json": 5,
    }

    assert list(properties) == [*arguments, "validate"]
    assert tool_of(look).validate(arguments) == arguments
    assert look(**tool_of(look).values(arguments)) == [1, 2, 3, 4, 5, 1]


@pytest.mark.parametrize("annotation", [Database, list[Database], Callable[[int], int], type])
def test_an_annotation_without_json_form_is_refused_with_the_parameter_and_the_remedy(
    annotation: Any,
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        property_of(annotation)

    assert "parameter 'value' is annotated" in str(refusal.value)
    assert "Injected[...]" in str(refusal.value)
    assert refusal.value.code == "invalid_tool"


@pytest.mark.parametrize("annotation", [dict[int, str], list[dict[UUID, int]], Mapping[bool, int]])
def test_keys_that_are_no_strings_are_refused(annotation: Any) -> None:
    with pytest.raises(ToolValidationError, match=r"the keys of a JSON object are strings"):
        property_of(annotation)


@pytest.mark.parametrize("annotation", [dict[Literal["a"], int], dict[Annotated[str, "k"], int]])
def test_keys_that_are_some_strings_are_taken(annotation: Any) -> None:
    assert isinstance(property_of(annotation), dict)


def test_an_annotation_that_cannot_be_read_is_refused_by_name() -> None:
    def look(city: str, when: "Whenever") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ToolValidationError, match=r"'Whenever' of parameter 'when' cannot be read"):
        tool(description="Look.")(look)


def test_a_private_parameter_without_default_is_refused() -> None:
    def look(_page: int) -> None: ...

    with pytest.raises(ToolValidationError, match="private parameter '_page'"):
        tool(description="Look.")(look)


@pytest.mark.parametrize(
    ("returns", "schema"),
    [
        (str, {"type": "string"}),
        (list[dict[str, int]], {"type": "array"}),
        (Decimal, {"type": "string"}),
        (Point, {"type": "object"}),
        (bytes, {"type": "object"}),
        (None, None),
        (Any, None),
        (Database, None),
    ],
)
def test_the_return_annotation_is_the_output_schema(returns: Any, schema: Json) -> None:
    def look() -> Any: ...

    look.__annotations__["return"] = returns
    found = tool_of(tool(description="Look.")(look)).output_schema

    if schema is None:
        assert found is None
    else:
        assert isinstance(schema, dict)
        assert found is not None
        assert schema.items() <= found.items()


def test_what_a_generator_yields_is_one_text() -> None:
    def count() -> Iterator[int]:
        yield 1

    assert tool_of(tool(description="Count.")(count)).output_schema == {"type": "string"}


def test_no_annotation_of_the_result_means_no_output_schema() -> None:
    def look():  # type: ignore[no-untyped-def]
        return 1

    assert tool_of(tool(description="Look.")(look)).output_schema is None


def test_a_schema_is_json() -> None:
    here, today = Point(1, 2), date(2026, 1, 2)

    def look(at: Point = here, unit: Unit = Unit.CELSIUS, on: date = today) -> None: ...

    text = json.dumps(schema_of(look))

    assert '"default": "2026-01-02"' in text
    assert '"default": {"x": 1, "y": 2}' in text


def test_a_field_as_default_bounds_and_is_passed() -> None:
    some: Any = Field(default_factory=list)

    def look(days: int = Field(3, ge=1), tags: list[str] = some) -> None: ...

    definition = tool_of(tool(description="Look.")(look))

    assert schema_of(look)["properties"]["days"] == {"type": "integer", "default": 3, "minimum": 1}
    assert definition.values({}) == {"days": 3, "tags": []}


def test_a_type_that_contains_itself_needs_a_name() -> None:
    with pytest.raises(ToolValidationError, match=r"'value' is .* which contains itself"):
        property_of(Json)


def test_a_result_of_any_json_has_no_output_schema() -> None:
    def look() -> Json: ...

    assert tool_of(tool(description="Look.")(look)).output_schema is None


class Plain(typing.TypedDict, total=False):
    """Of Python's own."""

    depth: Required[Annotated[int, Field(ge=0)]]
    tag: str
    inner: "list[Plain]"


class Derived(Plain):
    """Says more."""

    word: "Annotated[NotRequired[str], 'A word']"
    size: int | None


def test_a_typed_dict_of_typing_keeps_what_it_requires_on_every_python() -> None:
    def look(one: Derived, many: dict[str, list[Derived | None]]) -> Plain:
        return one

    definition = tool_of(tool(description="Look.")(look))
    schema: Any = definition.schema.parameters["$defs"]
    values: Any = definition.values(
        {"one": {"depth": 1, "size": None, "inner": [{"depth": "2"}]}, "many": {}}
    )

    assert sorted(schema) == ["Derived", "Plain"]
    assert schema["Derived"]["required"] == ["depth", "size"]
    assert schema["Plain"]["required"] == ["depth"]
    assert schema["Plain"]["description"] == "Of Python's own."
    assert schema["Plain"]["properties"]["inner"]["items"] == {"$ref": "#/$defs/Plain"}
    assert definition.output_schema is not None
    assert values["one"] == {"depth": 1, "size": None, "inner": [{"depth": 2}]}
    with pytest.raises(ToolValidationError, match=r"'one' is missing .* 'depth'"):
        definition.validate({"one": {"size": 1}, "many": {}})


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="read by Python itself since 3.12")
def test_a_typed_dict_of_typing_inside_a_class_is_refused_with_the_one_to_take() -> None:
    @dataclass
    class Holder:
        held: Plain

    with pytest.raises(ToolValidationError, match="import TypedDict from typing_extensions"):
        property_of(Holder)


def test_param_metadata_that_says_something_else_is_refused() -> None:
    def look(city: str) -> None: ...

    for notes, message in (({"default": 1}, "says default"), ({"enum": []}, "no value at all")):
        with pytest.raises(ToolValidationError, match=message):
            tool(description="Look.", param_metadata={"city": cast("Any", notes)})(look)


def test_a_schema_is_made_once() -> None:
    def look(city: str) -> None: ...

    definition = tool_of(tool(description="Look.")(look))

    assert definition.schema is tool_of(look).schema
    assert Registry([definition]).schemas(["look"])[0] is definition.schema
