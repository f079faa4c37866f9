"""What a tool is given without any model having a say."""

import functools
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from milepost.core.errors import ToolError, ToolValidationError
from milepost.core.json import Json
from milepost.tools import Injected, Invoker, Tool, ToolContext, tool, tool_of


class Database:
    """Something that no model can write down."""

    def __init__(self, url: str) -> None:
        self.url = url


async def test_a_constant_is_passed(invoker: Invoker, context: ToolContext) -> None:
    database = Database("db:1")

    @tool(inject={"database": database})
    async def where(database: Injected[Database]) -> str:
        """Tell where the data is."""
        return database.url

    assert await invoker.invoke(tool_of(where), {}, context) == "db:1"


async def test_a_factory_is_called_for_every_call(invoker: Invoker, context: ToolContext) -> None:
    made = []

    def connect() -> Database:
        made.append("one")
        return Database(f"db:{len(made)}")

    @tool(inject={"database": connect})
    def where(database: Injected[Database]) -> str:
        """Tell where the data is."""
        return database.url

    results = [await invoker.invoke(tool_of(where), {}, context) for _ in range(2)]

    assert results == ["db:1", "db:2"]


async def test_a_factory_may_be_asynchronous_and_know_the_context(
    invoker: Invoker, context: ToolContext
) -> None:
    async def connect(context: ToolContext) -> Database:
        return Database(f"db:{context.tenant}")

    @tool(inject={"database": connect})
    def where(database: Injected[Database]) -> str:
        """Tell where the data is."""
        return database.url

    assert await invoker.invoke(tool_of(where), {}, context) == "db:acme"


async def test_the_context_is_passed_to_the_parameter_that_is_annotated_with_it(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    async def who(question: str, anything: ToolContext, /, more: ToolContext | None = None) -> str:
        """Tell who asks."""
        assert more is anything
        return f"{question} {anything.user} {anything.idempotency_key}"

    assert await invoker.invoke(tool_of(who), {"question": "Who?"}, context) == "Who? ada key-1"


async def test_naming_a_parameter_in_inject_is_enough_to_hide_it(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool(inject={"key": "s3cret"})
    async def call(query: str, key: str) -> str:
        """Call."""
        return key.upper()

    assert tool_of(call).schema.parameters["required"] == ["query"]
    assert await invoker.invoke(tool_of(call), {"query": "x"}, context) == "S3CRET"


async def test_an_injected_parameter_that_nobody_fills_keeps_its_default(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    async def call(key: Injected[str] = "none", /, other: Injected[str | None] = None) -> str:
        """Call."""
        return f"{key} {other}"

    assert await invoker.invoke(tool_of(call), {}, context) == "none None"


def test_an_injected_parameter_that_nothing_can_fill_is_refused() -> None:
    with pytest.raises(ToolValidationError, match="nothing fills the injected parameter 'key'"):

        @tool
        def call(key: Injected[str]) -> None:
            """Call."""


def test_a_value_for_a_parameter_that_is_not_there_is_refused() -> None:
    with pytest.raises(ToolValidationError, match="inject names 'keys', which its function"):

        @tool(inject={"keys": 1})
        def call(key: str) -> None:
            """Call."""


def test_nothing_injected_shows_in_what_the_api_tells() -> None:
    @tool(inject={"key": "s3cret"})
    def call(query: str, key: Injected[str], context: ToolContext) -> None:
        """Call."""

    told = str(tool_of(call).describe())

    assert "key" not in told
    assert "s3cret" not in told
    assert "context" not in told


async def test_a_factory_that_fails_does_not_tell_the_model_its_secrets(
    invoker: Invoker, context: ToolContext
) -> None:
    def connect() -> Database:
        raise ConnectionError("postgresql://root:s3cret@db")

    @tool(inject={"database": connect})
    def where(database: Injected[Database]) -> str:
        """Tell where the data is."""
        return database.url

    with pytest.raises(ToolError) as failure:
        await invoker.invoke(tool_of(where), {}, context)

    assert str(failure.value) == (
        "where failed: could not prepare 'database', which it needs: ConnectionError"
    )


async def test_a_model_that_supplies_an_injected_parameter_is_told_it_is_unexpected(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool(inject={"key": lambda: "factory", "url": "constant"})
    def look_up(query: str, key: Injected[str], url: Injected[str]) -> None:
        """Look it up."""

    for name in ("key", "url"):
        with pytest.raises(ToolValidationError, match=f"[Uu]nexpected parameter.*{name}"):
            await invoker.invoke(tool_of(look_up), {"query": "x", name: "mine"}, context)


async def test_the_context_cannot_be_supplied_either(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool
    def who(context: ToolContext) -> str | None:
        """Tell who asks."""
        return context.user

    with pytest.raises(ToolValidationError, match=r"[Uu]nexpected parameter.*context"):
        await invoker.invoke(tool_of(who), {"context": {"user": "root"}}, context)
    assert await invoker.invoke(tool_of(who), {}, context) == "ada"


async def test_what_is_declared_goes_before_the_functions_own_default(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool(inject={"key": lambda: "factory", "url": "constant"})
    def which(key: Injected[str] = "own", url: Injected[str] = "own") -> list[str]:
        """Tell which."""
        return [key, url]

    assert await invoker.invoke(tool_of(which), {}, context) == ["factory", "constant"]


async def test_a_factory_that_makes_nothing_injects_nothing(
    invoker: Invoker, context: ToolContext
) -> None:
    @tool(inject={"key": lambda: None})
    def which(key: Injected[str | None]) -> bool:
        """Tell whether there is one."""
        return key is None

    assert await invoker.invoke(tool_of(which), {}, context) is True


def test_the_deadline_is_a_time_where_there_is_one(context: ToolContext) -> None:
    assert context.deadline is None
    assert replace(context, deadline_ms=1_500).deadline == datetime(
        1970, 1, 1, 0, 0, 1, 500_000, UTC
    )


def look(city: str, key: Injected[str] = "own", _page: int = 1, **more: Json) -> Json:
    """Look a city up."""
    return {"city": city, "key": key, "_page": _page, **more}


def look_closely(city: str, key: Injected[str] = "own") -> Json:
    """Look a city up."""
    return {"city": city, "key": key}


OPEN: dict[str, Json] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": True,
}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (look, "key"),
        (look, "_page"),
        (look_closely, "key"),
        (functools.partial(look_closely, key="settled"), "key"),
        (functools.partial(look, page="settled"), "page"),
    ],
)
def test_no_open_schema_lets_a_model_fill_what_is_kept_from_it(function: Any, name: str) -> None:
    definition = Tool(name="look", description="Look.", function=function, parameters=OPEN)
    told = f"unexpected parameter '{name}'.* Expected parameters: city$"

    for judge in (definition.validate, definition.values):
        with pytest.raises(ToolValidationError, match=told):
            judge({"city": "Oslo", name: "evil"})


@pytest.mark.parametrize("name", ["key", "_page"])
def test_no_schema_offers_a_model_what_is_kept_from_it(name: str) -> None:
    shown: dict[str, Json] = {**OPEN, "properties": {name: {}, "city": {"type": "string"}}}

    with pytest.raises(ToolValidationError, match=f"'{name}'. is injected or private"):
        Tool(name="look", description="Look.", function=look, parameters=shown)


async def test_an_open_schema_lets_a_model_fill_the_rest(
    invoker: Invoker, context: ToolContext
) -> None:
    definition = Tool(name="look", description="Look.", function=look, parameters=OPEN)

    found = await invoker.invoke(definition, {"city": "Oslo", "at": "noon"}, context)

    assert found == {"city": "Oslo", "key": "own", "_page": 1, "at": "noon"}
