"""Secrets of tenants, as the parameters of functions get them."""

import functools
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict

import pytest

from milepost.core.errors import ConfigurationError, ToolError, ToolValidationError
from milepost.core.json import Json
from milepost.tools import (
    Injected,
    Invoker,
    Secret,
    Tool,
    ToolContext,
    ToolParameter,
    ToolThreads,
    aexecute,
    execute,
    tool,
    tool_of,
)

VALUE = "s3cret-7d1f"
STORED = {"SHOP_TOKEN": VALUE}
Token = Annotated[str, Secret("SHOP_TOKEN")]


@tool
async def charge(order: str, token: Token) -> str:
    """Charge an order."""
    return f"{order} with {len(token)} characters"


@tool
def charge_in_thread(order: str, token: Token) -> str:
    """Charge an order."""
    return f"{order} with {len(token)} characters"


@tool(blocking=False)
def charge_on_the_loop(token: Token, /, order: str) -> str:
    """Charge an order."""
    return f"{order} with {len(token)} characters"


@pytest.mark.parametrize("function", [charge, charge_in_thread, charge_on_the_loop])
async def test_a_function_gets_the_secret_that_its_parameter_names(function: Any) -> None:
    outcome = await aexecute(function, {"order": "7"}, secrets=STORED)

    assert outcome.content == f"7 with {len(VALUE)} characters"


def test_a_function_is_given_secrets_without_a_loop_as_well() -> None:
    assert execute(charge, {"order": "7"}, secrets=STORED).content == "7 with 11 characters"


def test_no_model_and_no_client_hears_of_the_parameter() -> None:
    definition = tool_of(charge)

    assert definition.schema.parameters["required"] == ["order"]
    assert "token" not in str(definition.describe())
    assert "SHOP_TOKEN" not in str(definition.describe())


async def test_a_model_that_supplies_the_parameter_is_told_it_is_unexpected() -> None:
    outcome = await aexecute(charge, {"order": "7", "token": "mine"}, secrets=STORED)

    assert outcome.error is not None
    assert outcome.error.type == "invalid_arguments"
    assert "unexpected parameter 'token'" in outcome.error.message


def test_no_schema_written_by_hand_offers_the_parameter() -> None:
    shown: dict[str, Json] = {"type": "object", "properties": {"token": {}, "order": {}}}

    with pytest.raises(ToolValidationError, match="is injected or private"):
        Tool(name="charge", description="Charge.", function=charge, parameters=shown)


async def test_it_is_looked_up_with_every_call_for_the_tenant_of_the_run(
    threads: ToolThreads, context: ToolContext
) -> None:
    asked = []

    async def find(tenant: str, name: str) -> str:
        asked.append((tenant, name))
        return "x" * len(asked)

    invoker = Invoker(threads, find_secret=find)
    mine = await invoker.invoke(tool_of(charge), {"order": "7"}, context)
    theirs = await invoker.invoke(
        tool_of(charge), {"order": "7"}, replace(context, tenant="globex")
    )

    assert asked == [("acme", "SHOP_TOKEN"), ("globex", "SHOP_TOKEN")]
    assert (mine, theirs) == ("7 with 1 characters", "7 with 2 characters")


async def test_without_the_secret_the_function_is_not_entered() -> None:
    entered = []

    @tool
    def pay(token: Token) -> None:
        """Pay."""
        entered.append(token)

    outcome = await aexecute(pay, {})

    assert entered == []
    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.retryable) == ("secret_not_found", False)
    assert outcome.error.message == (
        "pay failed: there is no secret 'SHOP_TOKEN'; hand it in, as text:"
        " secrets={'SHOP_TOKEN': ...}"
    )


async def test_what_is_no_text_counts_as_no_secret_and_is_not_told() -> None:
    broken: Any = {"SHOP_TOKEN": VALUE.encode()}

    outcome = await aexecute(charge, {"order": "7"}, secrets=broken)

    assert outcome.error is not None
    assert outcome.error.type == "secret_not_found"
    assert VALUE not in outcome.error.message


async def test_a_secret_that_cannot_be_read_fails_the_call_and_says_why(
    threads: ToolThreads, context: ToolContext
) -> None:
    async def unreadable(_: str, name: str) -> str:
        raise ConfigurationError(f"secret {name!r} cannot be read")

    with pytest.raises(ToolError, match=r"charge failed: .*'SHOP_TOKEN' cannot be read") as failure:
        await Invoker(threads, find_secret=unreadable).invoke(
            tool_of(charge), {"order": "7"}, context
        )

    assert failure.value.code == "tool_failed"


async def test_a_function_may_get_secrets_beside_what_is_injected_and_its_context() -> None:
    @tool(inject={"url": "https://shop", "who": lambda context: context.tenant})
    async def pay(
        context: ToolContext,
        one: Token,
        two: Annotated[str, "ignored", Secret("OTHER")],
        url: Injected[str],
        who: Injected[str],
    ) -> list[object]:
        """Pay."""
        return [len(one), len(two), url, who, context.tenant]

    outcome = await aexecute(pay, {}, secrets={**STORED, "OTHER": "four"})

    assert outcome.content == [11, 4, "https://shop", "default", "default"]


async def test_a_lookup_and_a_bound_function_get_secrets_too(
    threads: ToolThreads, context: ToolContext
) -> None:
    async def find(_: str, name: str) -> str:
        return name

    async def looked_up(key: str, token: Token) -> Any:
        raise ToolError(f"asked for {key} with {len(token)}")

    @tool(effect="checkable", lookup=looked_up)
    def pay(order: str) -> None:
        """Pay."""

    invoker, inquiry = Invoker(threads, find_secret=find), tool_of(pay).inquiry
    assert inquiry is not None
    asked = await invoker.call(inquiry, {"key": "key-1"}, context)
    settled = Tool(
        name="charge", description="Charge.", function=functools.partial(charge, token="settled")
    )

    assert asked.error is not None
    assert "asked for key-1 with 10" in asked.error.message
    assert await invoker.invoke(settled, {"order": "7"}, context) == "7 with 7 characters"


def bare(token: Annotated[str, Secret("1 x")]) -> None:
    """Pay."""


def optional(token: Annotated[str | None, Secret("SHOP_TOKEN")]) -> None:
    """Pay."""


def within(tokens: list[Token]) -> None:
    """Pay."""


def among(tokens: dict[str, Token]) -> None:
    """Pay."""


def alternative(token: str | Token) -> None:
    """Pay."""


def listed(*tokens: Token) -> None:
    """Pay."""


def more(**tokens: Token) -> None:
    """Pay."""


def several(token: Annotated[str, Secret("ONE"), Secret("TWO")]) -> None:
    """Pay."""


def preset(token: Token = "") -> None:
    """Pay."""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (bare, "wants the secret '1 x'; a secret's name is a letter or _"),
        (optional, r"which is text; write Annotated\[str, Secret\('SHOP_TOKEN'\)\]"),
        (within, "which is text; write Annotated"),
        (among, "which is text; write Annotated"),
        (alternative, "which is text; write Annotated"),
        (listed, "takes any number of values, and a secret is one"),
        (more, "takes any number of values, and a secret is one"),
        (several, "is marked with several secrets"),
        (preset, "its default is never used; drop it"),
    ],
)
def test_what_can_be_given_no_secret_is_refused_when_the_tool_is_defined(
    function: Any, why: str
) -> None:
    with pytest.raises(ToolValidationError, match=f"tool '{function.__name__}': .*{why}"):
        tool(function)


@dataclass
class Order:
    """An order with a token in it."""

    number: int
    token: Token


class Ordered(TypedDict):
    """The same."""

    token: Token


@pytest.mark.parametrize("taken", [Order, Ordered, dict[str, Order]])
def test_what_a_model_fills_has_no_secret_inside(taken: Any) -> None:
    def pay(order: Any) -> None:
        """Pay."""

    pay.__annotations__["order"] = taken

    with pytest.raises(ToolValidationError, match=r"'order'.*Secret marks a parameter as a whole"):
        tool(pay)


def test_a_parameter_written_by_hand_is_a_model_s_and_no_secret() -> None:
    written = [ToolParameter(name="token", type=Token)]

    with pytest.raises(ToolValidationError, match="Secret marks a parameter as a whole"):
        Tool(name="pay", description="Pay.", function=lambda token: token, parameters=written)


def connect(token: Token) -> str:
    """Make what needs a secret."""
    return token


class Connection:
    """What needs a secret to be made."""

    def __init__(self, token: Token) -> None:
        self.token = token


class Connecting:
    """Makes what needs a secret."""

    def __call__(self, token: Token) -> str:
        """Make it."""
        return token


@pytest.mark.parametrize(
    "factory",
    [connect, Connection, Connecting(), functools.partial(connect), Connecting().__call__],
)
def test_a_factory_that_wants_a_secret_is_refused_and_not_given_the_context_for_it(
    factory: Any,
) -> None:
    with pytest.raises(ToolValidationError, match="what makes 'shop' is given no secret"):

        @tool(inject={"shop": factory})
        def pay(shop: Injected[str]) -> None:
            """Pay."""


@pytest.mark.parametrize(
    "factory", [functools.partial(connect, "mine"), functools.partial(Connecting(), token="mine")]
)
def test_a_factory_that_has_a_token_already_wants_none(factory: Any) -> None:
    @tool(inject={"shop": factory})
    def pay(shop: Injected[str]) -> int:
        """Pay."""
        return len(shop)

    assert execute(tool_of(pay), {}).content == 4


def test_a_parameter_gets_its_value_from_one_place() -> None:
    with pytest.raises(ToolValidationError, match="inject names it as well; drop one of them"):

        @tool(inject={"token": "mine"})
        def pay(token: Token) -> None:
            """Pay."""
