"""Tools whose effect is a line in a file, synced to the disk before anybody hears of it."""

import os
import time
from pathlib import Path

import orjson

from milepost.tools import ToolContext, tool

LEDGER = Path(os.environ.get("LEDGER", "ledger"))


def _act(effect: str, context: ToolContext, before_ms: int, after_ms: int) -> str:
    """Take some time, act, and take some time to say so: a process may die on either side."""
    time.sleep(before_ms / 1000)
    line = {
        "tool": context.tool,
        "effect": effect,
        "run_id": context.run_id,
        "call_id": context.call_id,
        "key": context.idempotency_key,
        "attempt": context.attempt,
        "pid": os.getpid(),
    }
    # One write to a file opened for appending: lines of several processes never mix.
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(ledger, orjson.dumps(line) + b"\n")
        os.fsync(ledger)
    finally:
        os.close(ledger)
    time.sleep(after_ms / 1000)
    return f"{context.tool} is done — äöü 🛤 — for call {context.call_id}"


@tool(effect="once")
def charge(before_ms: int, after_ms: int, context: ToolContext) -> str:
    """Charge: never to be repeated."""
    return _act("once", context, before_ms, after_ms)


@tool(effect="idempotent")
def reserve(before_ms: int, after_ms: int, context: ToolContext) -> str:
    """Reserve: safe to repeat with the same key."""
    return _act("idempotent", context, before_ms, after_ms)


@tool(effect="read")
def look_up(before_ms: int, after_ms: int, context: ToolContext) -> str:
    """Look something up."""
    return _act("read", context, before_ms, after_ms)


@tool(effect="once", requires_approval=True)
def refund(before_ms: int, after_ms: int, context: ToolContext) -> str:
    """Refund, once a person has said yes."""
    return _act("gated", context, before_ms, after_ms)


@tool(effect="read")
async def block(block_ms: int, context: ToolContext) -> str:
    """Stand in the way of everything else in this process."""
    time.sleep(block_ms / 1000)  # noqa: ASYNC251 - that the event loop stands still is its purpose
    return _act("read", context, 0, 0)
