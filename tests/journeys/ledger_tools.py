"""Tools that write down that they ran, and wait at a gate before and after it if there is one."""

import os
from pathlib import Path

from milepost.tools import Absent, Found, ToolContext, executor, stash_pending, tool

FOLDER = Path(os.environ["LEDGER_FOLDER"])


def _act(name: str, context: ToolContext) -> str:
    _wait_at(FOLDER / "gate_before")
    with (FOLDER / "ledger").open("a") as ledger:
        ledger.write(f"{name} {context.run_id} {context.call_id} {context.idempotency_key}\n")
    _wait_at(FOLDER / "gate")
    return f"{name} done"


def _wait_at(gate: Path) -> None:
    if gate.exists():
        gate.read_bytes()  # A named pipe: reading ends when the test opens it.


def _entered(key: str) -> Found | Absent:
    """Say whether a call with this key is in the ledger."""
    ledger = FOLDER / "ledger"
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return Found("book done, says the ledger") if any(key in line for line in lines) else Absent()


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


@tool(effect="checkable", lookup=_entered)
def book(room: int, context: ToolContext) -> str:
    """Book a room: whether it is booked can be looked up."""
    return f"{_act('book', context)}: {room}"


@tool(effect="transactional")
async def count(place: str, context: ToolContext) -> str:
    """Count a visitor, in the database of the runs."""
    tx = context.tx
    await tx.execute("UPDATE visitors SET many = many + 1 WHERE place = :place", {"place": place})
    [row] = await tx.execute("SELECT many FROM visitors WHERE place = :place", {"place": place})
    return f"visitor {row['many']}"


@tool(effect="read")
async def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order} is blue"


@tool(effect="idempotent")
def pay_later(order: str, kind: str, context: ToolContext) -> object:
    """Put a payment off until the user of a chat has said yes."""
    put_off = stash_pending(kind, f"{kind} {order}", {"order": order})
    _act("pay_later", context)
    return put_off


@executor("charge_once", effect="once")
def charge_once(order: str, context: ToolContext) -> str:
    """Charge: never to be repeated."""
    return f"{_act('charge_once', context)}: {order}"


@executor("charge_by_key", effect="idempotent")
def charge_by_key(order: str, context: ToolContext) -> str:
    """Charge: safe to repeat with the same key."""
    return f"{_act('charge_by_key', context)}: {order}"
