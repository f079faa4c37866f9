"""What a transactional tool may be, and what there is where it has no transaction."""

import asyncio
from typing import Any

import pytest

from milepost.agent import Agent
from milepost.core.errors import ConfigurationError, ToolError, ToolValidationError
from milepost.tools import Tool, ToolContext, tool
from milepost.tools.transaction import Row, Transaction
from tests.tools.isolated_tools import who


async def put(amount: int, context: ToolContext) -> None:
    """Put something on the shelf."""
    await context.tx.execute("INSERT INTO shelf VALUES (:amount)", {"amount": amount})


def put_blocking(amount: int, context: ToolContext) -> None:
    """Put something on the shelf."""
    context.tx.execute_blocking("INSERT INTO shelf VALUES (:amount)", {"amount": amount})


def blind(amount: int) -> int:
    """See no transaction."""
    return amount


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"function": blind}, "never sees its transaction; take a ToolContext"),
        ({"function": who, "isolation": "process"}, "has no part in the run's transaction"),
        ({"function": put_blocking, "blocking": False}, "drop blocking=False"),
        ({"function": put, "timeout_s": 60}, "say 10 or less"),
        ({"function": put, "kind": "client"}, "its kind is 'client'"),
        ({"function": put, "cacheable": True}, "drop cacheable"),
        ({"function": put, "on_unknown": "ask"}, "drop on_unknown"),
    ],
)
def test_what_has_no_part_in_a_transaction_is_refused(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ToolValidationError) as refusal:
        Tool(name="put", description="Put.", effect="transactional", **options)

    assert complaint in str(refusal.value)


def test_what_is_injected_may_be_what_writes() -> None:
    def write(amount: int, shelf: str) -> str:
        return f"{shelf} {amount}"

    Tool(
        name="put",
        description="Put.",
        effect="transactional",
        function=write,
        inject={"shelf": lambda context: context.tx},
    )


def test_an_agent_in_process_has_no_database_to_commit_with() -> None:
    transactional = tool(effect="transactional")(put)

    with pytest.raises(ConfigurationError, match="a run in process has no database"):
        Agent("test/model", tools=[transactional])


async def test_without_a_transaction_nothing_is_written(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="declare the tool with effect='transactional'"):
        await put(1, context)
    with pytest.raises(ToolError, match="declare the tool with effect='transactional'"):
        put_blocking(1, context)


async def _echo(sql: str, parameters: Any) -> list[Row]:
    return [{"sql": sql, **parameters}]


async def test_the_blocking_form_is_for_threads() -> None:
    tx = Transaction(_echo, asyncio.get_running_loop())

    with pytest.raises(ToolError, match=r"await context\.tx\.execute"):
        tx.execute_blocking("SELECT 1")
    found = await asyncio.to_thread(tx.execute_blocking, "SELECT :a", {"a": 1})

    assert found == [{"sql": "SELECT :a", "a": 1}]


async def test_nothing_is_written_when_it_is_over() -> None:
    tx = Transaction(_echo, asyncio.get_running_loop())
    tx.close()

    with pytest.raises(ToolError, match="the call's transaction is over"):
        await tx.execute("SELECT 1")
