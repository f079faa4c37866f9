"""What a lookup may be, and what may be declared of an effect."""

from collections.abc import Callable
from typing import Any

import pytest

from milepost.core.errors import ToolError, ToolValidationError
from milepost.tools import Absent, Found, Injected, Invoker, Tool, ToolContext, Unknown, tool_of
from milepost.tools import tool as as_tool
from milepost.tools.inquiry import asked
from milepost.tools.results import RESULT_CHARS_MAX


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def by_key(key: str) -> Found | Absent:
    return Found(key) if key == "key-1" else Absent()


def checkable(lookup: Callable[..., Any], **options: Any) -> Tool:
    return tool_of(as_tool(effect="checkable", lookup=lookup, **options)(pay))


async def answered(tool: Tool, context: ToolContext, invoker: Invoker) -> Any:
    assert tool.inquiry is not None
    given = asked(tool.inquiry.schema.parameters, context.idempotency_key, {"amount": 5})
    return await invoker.invoke(tool.inquiry, given, context, timeout_s=5)


async def test_a_lookup_is_given_the_calls_key(context: ToolContext, invoker: Invoker) -> None:
    assert await answered(checkable(by_key), context, invoker) == {
        "kind": "found",
        "result": "key-1",
    }


async def test_a_lookup_is_given_arguments_context_and_what_is_injected_if_it_names_them(
    context: ToolContext, invoker: Invoker
) -> None:
    async def lookup(
        key: str, arguments: dict[str, Any], call: ToolContext, bank: Injected[str], **_: Any
    ) -> Found:
        return Found([key, arguments, call.user, bank])

    def pay_at(amount: int, bank: Injected[str]) -> str:
        """Pay an amount."""
        return f"{bank} {amount}"

    options: dict[str, Any] = {"inject": {"bank": lambda: "Bank"}}
    tool = tool_of(as_tool(effect="checkable", lookup=lookup, **options)(pay_at))

    found = await answered(tool, context, invoker)

    assert found["result"] == ["key-1", {"amount": 5}, "ada", "Bank"]


async def test_a_synchronous_lookup_may_return_what_only_the_loop_can_finish(
    context: ToolContext, invoker: Invoker
) -> None:
    async def later() -> Unknown:
        return Unknown()

    def lookup(key: str) -> Any:
        return later()

    assert await answered(checkable(lookup), context, invoker) == {"kind": "unknown"}


async def test_a_lookup_that_answers_anything_else_has_failed(
    context: ToolContext, invoker: Invoker
) -> None:
    with pytest.raises(ToolError, match=r"returned bool; return Found\(result\), Absent\(\) or"):
        await answered(checkable(lambda key: key == "key-1"), context, invoker)


async def test_what_was_found_is_bounded_as_any_result_is(
    context: ToolContext, invoker: Invoker
) -> None:
    long = "x" * (RESULT_CHARS_MAX + 1)

    found = await answered(checkable(lambda key: Found(key and long)), context, invoker)

    assert found["kind"] == "found"
    assert found["result"].startswith("x" * RESULT_CHARS_MAX)
    assert found["result"].endswith("are shown]")


def test_a_lookup_has_the_time_that_its_tool_has() -> None:
    tool = checkable(by_key, timeout_s=3)

    assert tool.inquiry is not None
    assert tool.inquiry.timeout_s == 3


class Bank:
    def look_up(self, key: str) -> Absent | Unknown:
        return Absent() if key else Unknown()


async def test_a_bound_method_is_a_lookup(context: ToolContext, invoker: Invoker) -> None:
    assert await answered(checkable(Bank().look_up), context, invoker) == {"kind": "absent"}


def keyless() -> Absent:
    return Absent()


def wanting(key: str, bank: str) -> Found:
    return Found(key + bank)


@pytest.mark.parametrize(
    ("lookup", "complaint"),
    [
        (int, "its lookup is <class 'int'>; give a function"),
        (keyless, "does not take the call's key; write `key: str`"),
        (wanting, "wants 'bank', and is given `key`, `arguments`, a ToolCont"),
        (Bank.look_up, "lacks its instance; give a function"),
        ("by_key", "its lookup is 'by_key'; give a function"),
    ],
)
def test_a_lookup_that_could_not_be_called_is_refused(lookup: Any, complaint: str) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        checkable(lookup)

    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"effect": "checkable"}, "has no lookup; say lookup=<a function that takes the key>"),
        ({"effect": "once", "lookup": by_key}, "'once', and only of a checkable tool"),
        ({"lookup": by_key}, 'say effect="checkable", or drop lookup'),
        ({"effect": "read", "on_unknown": "ask"}, "simply called again; drop on_unknown"),
        ({"effect": "idempotent", "on_unknown": "fail"}, "drop on_unknown"),
        ({"on_unknown": "guess"}, "must be one of None, 'ask', 'tell_model', 'fail'"),
        ({"effect": "checkable", "lookup": by_key, "cacheable": True}, "drop cacheable"),
        ({"effect": "checkable", "lookup": by_key, "kind": "client"}, "its kind is 'client'"),
    ],
)
def test_an_effect_that_lacks_what_it_takes_is_refused(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        Tool(name="pay", description="Pay.", function=pay, **options)

    assert complaint in str(refusal.value)
