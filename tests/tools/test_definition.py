"""A tool is checked when it is defined, not when it is first called."""

import functools
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from milepost.core.errors import ToolValidationError
from milepost.core.json import Json
from milepost.tools import Injected, Invoker, Tool, ToolContext

CITY: dict[str, Json] = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 2}, "days": {"type": "integer"}},
    "required": ["city"],
}


async def forecast(**arguments: Json) -> Json:
    """Tell the weather."""
    return arguments


def test_a_plain_tool_reads_its_function_like_the_decorator() -> None:
    def double(number: int) -> int:
        return number * 2

    definition = Tool(name="double", description="Double a number.", function=double)

    assert definition.schema.parameters["properties"] == {"number": {"type": "integer"}}
    assert definition.output_schema == {"type": "integer"}


def test_it_describes_itself_to_the_api() -> None:
    definition = Tool(
        name="forecast", description="Tell the weather.", function=forecast, parameters=CITY
    )

    assert definition.describe() == {
        "name": "forecast",
        "description": "Tell the weather.",
        "parameters": {**CITY, "additionalProperties": False},
        "long_description": "Tell the weather.",
        "output_schema": None,
        "kind": "server",
        "effect": "once",
        "requires_approval": False,
        "permissions": None,
        "terminal": False,
        "streaming": False,
        "screen_output": False,
        "cache_ttl_s": None,
        "no_background": False,
        "allow_repeat": False,
        "strict": False,
        "timeout_s": None,
        "isolation": None,
        "executes": None,
    }


def test_every_option_shows_in_what_it_tells_the_api() -> None:
    definition = Tool(
        name="forecast",
        description="Tell the weather.",
        function=forecast,
        parameters=CITY,
        effect="read",
        requires_approval=True,
        permissions=["ada", "scope:weather"],
        terminal=True,
        streaming=True,
        screen_output=True,
        cacheable=True,
        cache_ttl_s=60,
        no_background=True,
        allow_repeat=True,
        strict=True,
        timeout_s=5,
        isolation="process",
    )

    told = definition.describe()

    assert definition.permissions == ("ada", "scope:weather")
    assert told["permissions"] == ["ada", "scope:weather"]
    assert (told["cache_ttl_s"], told["timeout_s"], told["isolation"]) == (60, 5, "process")
    switches = ("requires_approval", "terminal", "streaming", "screen_output")
    assert all(told[name] for name in (*switches, "no_background", "allow_repeat", "strict"))


def test_every_switch_is_off_until_it_is_said_and_a_result_is_kept_five_minutes() -> None:
    definition = Tool(name="a", description="A.", function=forecast, parameters=CITY)

    switches = ("requires_approval", "terminal", "streaming", "screen_output", "cacheable")
    assert not any(getattr(definition, name) for name in switches)
    assert not any((definition.no_background, definition.allow_repeat, definition.strict))
    assert (definition.permissions, definition.isolation) == (None, None)
    assert definition.blocking
    assert definition.cache_ttl_s == 300


def test_a_generator_is_said_to_stream_without_being_marked() -> None:
    def count() -> Iterator[str]:
        yield "1"

    assert Tool(name="a", description="A.", function=count).describe()["streaming"] is True


def test_a_synchronous_function_that_needs_no_thread_has_none() -> None:
    def add(a: int) -> int:
        return a

    assert Tool(name="a", description="A.", function=add).in_thread
    assert not Tool(name="a", description="A.", function=add, blocking=False).in_thread


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permissions": "ada"}, "its permissions are 'ada'; they must be a list"),
        ({"permissions": ["ada", " "]}, "its permissions name ' '"),
        ({"permissions": ["scope:"]}, "its permissions name 'scope:'"),
        ({"permissions": [7]}, "its permissions name 7"),
        ({"terminal": "yes"}, "its terminal is 'yes'; it must be True or False"),
        ({"strict": 1}, "its strict is 1"),
        ({"isolation": "thread"}, "its isolation is 'thread'; it must be one of None, 'process'"),
        ({"kind": "remote"}, "its kind is 'remote'"),
        ({"cacheable": True}, 'declare effect="read" or "idempotent"'),
        ({"cacheable": True, "effect": "read", "cache_ttl_s": 0}, "its cache_ttl_s is 0"),
        ({"cacheable": True, "effect": "read", "cache_ttl_s": None}, "its cache_ttl_s is None"),
        ({"timeout_s": "5"}, "its timeout_s is '5'; it must be a number"),
        ({"timeout_s": True}, "its timeout_s is True; it must be a number"),
        ({"param_metadata": {"city": "Where"}}, "param_metadata of 'city' is 'Where'; write"),
        ({"param_metadata": {"city": {"description": None}}}, "says None for description"),
        ({"param_metadata": {"city": {"enum": 5}}}, "says 5 for enum; it must be a list"),
        ({"param_metadata": ["city"]}, "its param_metadata is ['city']; it must be a dict"),
        ({"inject": ["key"]}, "its inject is ['key']; it must be a dict"),
        ({"parameters": [{"name": "city"}]}, "its parameters hold {'name': 'city'}"),
        ({"parameters": "city"}, "its parameters hold 'c'"),
        ({"cache_ttl_s": 60}, "it has a cache_ttl_s, but no cache"),
        ({"blocking": False}, "blocking=False is for a synchronous function"),
        ({"isolation": "process", "inject": {"key": "k"}}, "gets JSON alone"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    async def call(city: str, key: Injected[str] = "k") -> None: ...

    with pytest.raises(ToolValidationError) as refusal:
        Tool(name="a", description="A.", function=call, **options)

    assert message in str(refusal.value)
    assert refusal.value.code == "invalid_tool"


def test_a_process_of_its_own_runs_on_no_event_loop() -> None:
    def add(a: int) -> int:
        return a

    with pytest.raises(ToolValidationError, match="blocking=False"):
        Tool(name="a", description="A.", function=add, blocking=False, isolation="process")


def test_nobody_may_call_a_tool_whose_permissions_are_empty() -> None:
    definition = Tool(name="a", description="A.", function=forecast, permissions=[])

    assert definition.permissions == ()
    assert definition.describe()["permissions"] == []


async def test_a_ready_schema_calls_its_function_with_coerced_arguments(
    invoker: Invoker, context: ToolContext
) -> None:
    definition = Tool(
        name="forecast", description="Tell the weather.", function=forecast, parameters=CITY
    )

    result = await invoker.invoke(definition, {"city": "Oslo", "days": "3"}, context)

    assert result == {"city": "Oslo", "days": 3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "is missing the required parameter 'city'"),
        ({"city": "Oslo", "day": 3}, "unexpected parameter 'day'. Did you mean 'days'?"),
        ({"city": "O"}, "'city' must have at least 2 characters, got 1"),
        ({"city": "Oslo", "days": "many"}, "'days' must be an integer"),
    ],
)
def test_a_ready_schema_is_judged_whole(arguments: dict[str, Json], message: str) -> None:
    definition = Tool(
        name="forecast", description="Tell the weather.", function=forecast, parameters=CITY
    )

    with pytest.raises(ToolValidationError) as refusal:
        definition.validate(arguments)

    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string"}, "must be of type object, not 'string'"),
        ({"type": "object", "patternProperties": {}}, "uses patternProperties"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "#/properties/a uses not"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}}, "refers to #/$defs/b"),
        ({"type": "object", "properties": {"a": {"$ref": "https://a.b"}}}, "refers to https"),
        (
            {"type": "object", "properties": {"a": {"type": "text"}}},
            "has the type 'text'; it must be one of",
        ),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "pattern that cannot be read"),
        (
            {"type": "object", "properties": {"a": {"pattern": "a{99999999999}"}}},
            "pattern that cannot be read",
        ),
        (
            {"type": "object", "properties": {"a": {"pattern": "(" * 5_000 + ")" * 5_000}}},
            "pattern that cannot be read",
        ),
        ({"type": "object", "properties": {"a": {"items": [{}]}}}, "since 2020-12"),
        ({"type": "object", "allOf": [{"oneOf": [{"$ref": "#"}]}]}, "nothing but that again"),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/of/b"}}, "of": {"b": {"not": {}}}},
            "#/of/b uses not",
        ),
        (
            {"type": "object", "allOf": [{"$ref": "#/of"}], "of": {"items": {"$ref": "#/no"}}},
            "#/of/items refers to #/no",
        ),
    ],
)
def test_a_ready_schema_that_cannot_be_judged_is_refused(
    schema: dict[str, Json], message: str
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        Tool(name="any", description="Anything.", function=forecast, parameters=schema)

    assert message in str(refusal.value)
    assert refusal.value.code == "invalid_tool"


@pytest.mark.timeout(10)
def test_a_ready_schema_whose_parts_double_with_every_level_keeps_nobody_waiting() -> None:
    levels: dict[str, Json] = {
        f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}, {"$ref": f"#/$defs/l{n + 1}"}]}
        for n in range(60)
    }
    schema: dict[str, Json] = {
        "type": "object",
        "allOf": [{"$ref": "#/$defs/l0"}],
        "$defs": {**levels, "l60": {"type": "object"}},
    }

    definition = Tool(name="any", description="Any.", function=forecast, parameters=schema)

    assert definition.schema.parameters["additionalProperties"] is False


NAMED = "it must be an object whose values are schemas"
SCHEMA = "it must be a schema: an object, true or false"
SCHEMAS = "it must be a list of one schema or more"


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"required": "a"}, "has the required 'a'; it must be a list of different names"),
        ({"required": ["a", 1]}, "it must be a list of different names"),
        ({"required": ["a", "a"]}, "it must be a list of different names"),
        ({"anyOf": 5}, f"has the anyOf 5; {SCHEMAS}"),
        ({"oneOf": []}, f"has the oneOf []; {SCHEMAS}"),
        ({"allOf": [5]}, f"has the allOf [5]; {SCHEMAS}"),
        ({"prefixItems": {}}, f"has the prefixItems {{}}; {SCHEMAS}"),
        ({"type": {}}, "has the type {}; it must be one of array, boolean"),
        ({"type": []}, "has the type []; it must be one of array, boolean"),
        ({"type": ["string", "string"]}, "or a list of different ones"),
        ({"type": None}, "has the type None; it must be one of"),
        ({"properties": []}, f"has the properties []; {NAMED}"),
        ({"properties": {"b": 5}}, f"has the properties {{'b': 5}}; {NAMED}"),
        ({"$defs": {"b": "x"}}, NAMED),
        ({"items": 3}, f"has the items 3; {SCHEMA}"),
        ({"additionalProperties": "no"}, f"has the additionalProperties 'no'; {SCHEMA}"),
        ({"enum": {}}, "has the enum {}; it must be a list of one value or more"),
        ({"enum": []}, "has the enum []; it must be a list of one value or more"),
        ({"uniqueItems": 1}, "has the uniqueItems 1; it must be true or false"),
        ({"$ref": 5}, "has the $ref 5; it must be text such as #/$defs/name"),
        ({"$ref": "#/required"}, "refers to #/required, where it has no schema"),
        ({"$ref": "#/properties/a"}, "refers to #/properties/a, which is nothing but that again"),
        ({"description": ["x" * 100]}, "xxx…; it must be text"),
    ],
)
def test_a_keyword_that_says_nothing_as_it_stands_is_refused_with_its_place_and_form(
    part: dict[str, Json], message: str
) -> None:
    schema: dict[str, Json] = {"type": "object", "required": [], "properties": {"a": part}}

    with pytest.raises(ToolValidationError) as refusal:
        Tool(name="any", description="Anything.", function=forecast, parameters=schema)

    assert message in str(refusal.value)
    assert str(refusal.value).startswith("tool 'any': the schema at #/properties/a ")


def test_a_ready_schema_that_is_nested_without_end_is_refused() -> None:
    schema: dict[str, Json] = {"type": "object"}
    for _ in range(500):
        schema = {"type": "object", "properties": {"a": schema}}

    with pytest.raises(ToolValidationError, match="is nested deeper than 64 levels"):
        Tool(name="any", description="Anything.", function=forecast, parameters=schema)


def test_a_ready_schema_must_fit_the_function() -> None:
    def with_key(city: str, days: int, key: Injected[str] = "k") -> None: ...

    def without_days(city: str) -> None: ...

    def with_more(city: str, days: int, wind: bool) -> None: ...

    leaking: dict[str, Json] = {"type": "object", "properties": {"key": {}}}
    for function, schema, message in (
        (without_days, CITY, "offers ['days'], which its function does not take"),
        (with_more, CITY, "needs ['days', 'wind']"),
        (with_key, leaking, "['key'] is injected"),
    ):
        with pytest.raises(ToolValidationError) as refusal:
            Tool(
                name="a",
                description="A.",
                function=function,
                parameters=schema,
                inject={"key": "k"} if function is with_key else {},
            )
        assert message in str(refusal.value)


def test_a_ready_schema_may_use_alternatives_and_references() -> None:
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {
            "where": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "kind": {"type": ["string", "null"], "enum": ["a", None]},
            "tree": {"$ref": "#/$defs/tree"},
            "size": {"allOf": [{"type": "integer"}, {"minimum": 1}, {"multipleOf": 0.1}]},
        },
        "$defs": {
            "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}},
        },
    }
    definition = Tool(name="a", description="A.", function=forecast, parameters=schema)

    good: dict[str, Json] = {"where": 1.5, "kind": None, "tree": {"next": {}}, "size": 3}

    assert definition.validate(good) == good
    bad_ones: list[dict[str, Json]] = [
        {"where": 1},
        {"kind": "b"},
        {"tree": {"next": 1}},
        {"size": 0},
    ]
    for bad in bad_ones:
        with pytest.raises(ToolValidationError):
            definition.validate(bad)


def test_a_function_that_tells_no_parameters_needs_a_schema() -> None:
    with pytest.raises(ToolValidationError, match="give a JSON Schema"):
        Tool(name="untold", description="Tell nothing.", function=_Untold())
    Tool(name="untold", description="Tell nothing.", function=_Untold(), parameters=CITY)


@pytest.mark.parametrize("name", ["", "two words", "1st", "a" * 65, "naïve", "a.b"])
def test_a_name_that_some_vendor_refuses_is_refused_here(name: str) -> None:
    with pytest.raises(ToolValidationError, match="its name must be"):
        Tool(name=name, description="Named badly.", function=forecast)


def test_an_unknown_effect_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ToolValidationError) as refusal:
        Tool(name="a", description="A.", function=forecast, effect="twice")  # type: ignore[arg-type]

    known = "'read', 'idempotent', 'checkable', 'transactional', 'once'"
    assert f"'twice'; it must be one of {known}" in str(refusal.value)


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan")])
def test_a_timeout_that_bounds_nothing_is_refused(timeout_s: float) -> None:
    with pytest.raises(ToolValidationError, match="timeout_s"):
        Tool(name="a", description="A.", function=forecast, timeout_s=timeout_s)


def test_an_empty_description_and_a_function_that_is_none_are_refused() -> None:
    with pytest.raises(ToolValidationError, match="needs a description"):
        Tool(name="a", description="", function=forecast)
    with pytest.raises(ToolValidationError, match="cannot be called"):
        Tool(name="a", description="A.", function="forecast")  # type: ignore[arg-type]


async def test_a_partial_and_a_callable_object_are_tools(
    invoker: Invoker, context: ToolContext
) -> None:
    def scale(number: int, factor: int) -> int:
        return number * factor

    triple = Tool(name="triple", description="Triple.", function=functools.partial(scale, factor=3))
    counter = Tool(name="count", description="Count.", function=_Counter())

    assert triple.schema.parameters["properties"] == {"number": {"type": "integer"}}
    assert await invoker.invoke(triple, {"number": 2}, context) == 6
    assert await invoker.invoke(counter, {"step": 2}, context) == 2
    assert not counter.in_thread


def test_injected_values_are_not_in_the_repr() -> None:
    def call(key: Injected[str]) -> None: ...

    definition = Tool(name="a", description="A.", function=call, inject={"key": "s3cret"})

    assert "s3cret" not in repr(definition)


def test_the_schema_of_every_definition_is_a_valid_schema() -> None:
    definition = Tool(name="a", description="A.", function=forecast, parameters=CITY)

    jsonschema.Draft202012Validator.check_schema(dict(definition.schema.parameters))


class _Untold:
    """Callable, with a signature that cannot be read."""

    __signature__ = "none"

    def __call__(self, **arguments: Json) -> Json:
        """Return what came in."""
        return arguments


class _Counter:
    def __init__(self) -> None:
        self._count = 0

    async def __call__(self, step: int) -> int:
        """Count on."""
        self._count += step
        return self._count
