"""The tools of one installation."""

from typing import Any

import pytest

from milepost.core.errors import ToolValidationError
from milepost.tools import Registry, Tool, tool, tool_of


def named(name: str, description: str = "Do.") -> Tool:
    """Return a tool called `name`."""

    @tool(name=name, description=description)
    def do(count: int) -> None: ...

    return tool_of(do)


def test_a_tool_is_found_by_its_name() -> None:
    add = named("add")
    registry = Registry([add, named("multiply")])

    assert registry.get("add") is add
    assert registry.get("divide") is None
    assert registry.names == ("add", "multiply")
    assert [tool.name for tool in registry] == ["add", "multiply"]
    assert (len(registry), "add" in registry, "divide" in registry) == (2, True, False)


def test_a_name_is_taken_once() -> None:
    registry = Registry([named("add")])

    with pytest.raises(ToolValidationError, match="there is a tool 'add' already"):
        registry.add(named("add"))
    with pytest.raises(ToolValidationError, match="there is a tool 'twice' already"):
        registry.add(named("twice"), named("twice"))

    assert registry.names == ("add",)


def test_a_registry_decorates_and_registers_in_one() -> None:
    registry = Registry()

    @registry.tool
    def add(a: int) -> int:
        """Add."""
        return a

    @registry.tool(name="multiply", effect="read")
    async def times(a: int) -> int:
        """Multiply."""
        return a

    assert registry.names == ("add", "multiply")
    assert registry.get("multiply") is tool_of(times)
    assert add(1) == 1


def test_a_name_is_taken_once_by_the_decorator_too() -> None:
    registry = Registry([named("add")])

    with pytest.raises(ToolValidationError, match="there is a tool 'add' already"):

        @registry.tool
        def add() -> None:
            """Add."""


def test_tools_are_declared_to_a_vendor_in_the_order_asked_and_none_as_none() -> None:
    registry = Registry([named("add"), named("multiply")])

    declared: Any = registry.projected(["multiply", "gone", "add"], "openai")

    assert [entry["function"]["name"] for entry in declared] == ["multiply", "add"]
    assert registry.projected(["add"], "openai")[0] is declared[1]
    assert registry.projected([], "openai") == []


def test_replacing_is_said_aloud() -> None:
    registry = Registry([named("add"), named("multiply")])
    better = named("add", "Add better.")

    registry.replace(better)

    assert registry.get("add") is better
    assert registry.names == ("add", "multiply")


def test_registries_are_merged_whole_or_not_at_all() -> None:
    registry = Registry([named("add")])

    with pytest.raises(ToolValidationError):
        registry.merge(Registry([named("multiply"), named("add")]))
    assert registry.names == ("add",)

    assert registry.merge(Registry([named("multiply")])).names == ("add", "multiply")


def test_schemas_are_given_in_the_order_asked_and_made_once() -> None:
    registry = Registry([named("add"), named("multiply")])

    schemas = registry.schemas(["multiply", "gone", "add"])

    assert [schema.name for schema in schemas] == ["multiply", "add"]
    assert registry.schemas(["add"])[0] is schemas[1]
    assert registry.schemas([]) == ()


def test_a_method_without_its_instance_is_refused() -> None:
    class Shop:
        @tool
        def address(self) -> str:
            """Return the address."""
            return "Oslo"

    with pytest.raises(ToolValidationError, match=r"add tool_of\(instance\.method\)"):
        Registry([tool_of(Shop.address)])
    assert Registry([tool_of(Shop().address)]).names == ("address",)


def test_tools_that_may_be_repeated_without_end_are_told_apart() -> None:
    @tool(allow_repeat=True)
    def poll() -> str:
        """Look again."""
        return "not yet"

    registry = Registry([named("add"), tool_of(poll)])

    assert registry.repeat_allowed() == frozenset({"poll"})
    registry.replace(named("poll"))
    assert registry.repeat_allowed() == frozenset()


def test_a_tool_that_takes_anothers_place_is_declared_anew_by_itself() -> None:
    registry = Registry([named("add")])
    before: Any = registry.projected(["add"], "openai")

    registry.replace(named("add", "Add better."))

    after: Any = registry.projected(["add"], "openai")
    assert before[0]["function"]["description"] == "Do."
    assert after[0]["function"]["description"] == "Add better."
    assert registry.schemas(["add"])[0].description == "Add better."


def test_there_is_no_registry_that_all_of_a_process_shares() -> None:
    assert Registry().names == ()
    Registry([named("add")])
    assert Registry().names == ()
