"""Tools that write down that they ran, and then wait at a gate if there is one."""

import os
from pathlib import Path

from milepost.tools import ToolContext, tool

FOLDER = Path(os.environ["LEDGER_FOLDER"])


def _act(name: str, context: ToolContext) -> str:
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{name} {context.run_id} {context.call_id} {context.idempotency_key}\n")
    gate = FOLDER / "gate"
    if gate.exists():
        gate.read_bytes()  # A named pipe: reading ends when the test opens it.
    return f"{name} done"


@tool(effect="once")
def charge(amount: int, context: ToolContext) -> str:
    """Charge an amount: never to be repeated."""
    return f"{_act('charge', context)}: {amount}"


@tool(effect="idempotent")
def reserve(seat: str, context: ToolContext) -> str:
    """Reserve a seat: safe to repeat with the same key."""
    return f"{_act('reserve', context)}: {seat}"


@tool(effect="once", requires_approval=True)
def refund(order: int, context: ToolContext) -> str:
    """Refund an order, once a person has said yes."""
    return f"{_act('refund', context)}: {order}"


@tool(effect="read")
async def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order} is blue"
