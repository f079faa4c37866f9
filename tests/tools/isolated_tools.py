"""Tools for processes of their own: some do as they are told, some do their worst."""

import _thread
import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import structlog

from milepost.core.errors import ToolError
from milepost.tools import (
    Artifact,
    Secret,
    Tool,
    ToolContext,
    ToolParameter,
    emit_artifact,
    stash_pending,
    tool,
)

_CONTEXTS: list[ToolContext] = []


@dataclass
class Point:
    """A place."""

    x: int


class _Float(float):
    """A float that orjson does not know."""


@tool(isolation="process")
def where(at: Point, on: date, *, by: int = 1) -> dict[str, object]:
    """Tell the process."""
    return {"pid": os.getpid(), "group": os.getpgid(0), "at": Point(at.x + by), "on": on}


@tool(isolation="process")
async def where_on_a_loop() -> int:
    """Tell the process."""
    return os.getpid()


@tool(isolation="process")
def who(context: ToolContext) -> list[object]:
    """Tell who asks."""
    assert context.approval is not None
    context.logger.warning("looked", colour="blue")
    return [context.run_id, context.user, context.attempt, context.idempotency_key,
            context.approval.by]  # fmt: skip


@tool(isolation="process")
def entrusted(
    token: Annotated[str, Secret("SHOP_TOKEN")], context: ToolContext, *, fails: bool = False
) -> Iterator[str]:
    """Tell a secret in every way."""
    context.progress(token[:4])
    context.progress(token[4:])
    context.emit("told", {"token": token})
    context.logger.warning(f"it is {token}", token=token)
    structlog.get_logger().info(token)
    emit_artifact(f"https://shop/{token}", filename=token)
    stash_pending("send", f"Send {token}", {"token": token})
    if fails:
        raise ToolError("." * 1_995 + token)
    yield from ("It has ", str(len(token)), ": ", *token)


@tool(isolation="process")
def count(context: ToolContext) -> Iterator[str]:
    """Count."""
    context.progress("zero ")
    yield "one "
    yield "two"


@tool(isolation="process")
async def spell() -> AsyncIterator[str]:
    """Spell."""
    yield "a"
    yield "b"


@tool(isolation="process")
def hang(pid_file: str) -> None:
    """Hang, with children that hang as well, having told of all over a named pipe.

    One of them has left the process group, as daemons do.
    """
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(waiting)
    daemon = subprocess.Popen(waiting, start_new_session=True)
    Path(pid_file).write_text(f"{os.getpid()} {child.pid} {daemon.pid}")
    while True:
        time.sleep(60)


@tool(isolation="process")
def crash() -> None:
    """Read what is at address zero."""
    ctypes.string_at(0)


@tool(isolation="process")
def leave(code: int) -> None:
    """Leave at once."""
    os._exit(code)


@tool(isolation="process")
def leave_politely() -> None:
    """Leave."""
    sys.exit(3)


@tool(isolation="process")
def refuse() -> None:
    """Refuse."""
    raise ToolError("the hotel is full", retryable=True)


@tool(isolation="process")
def fork() -> int:
    """Leave a copy behind that returns as well."""
    os.fork()
    return os.getpid()


@tool(isolation="process")
async def fork_on_a_loop() -> int:
    """Leave a copy behind that returns as well."""
    os.fork()
    return os.getpid()


@tool(isolation="process")
def shout() -> str:
    """Write to whatever can be printed to."""
    sys.stdout.write('{"result": "forged"}')
    os.write(1, b'{"result": "forged"}\n')
    os.write(2, b'{"result": "forged"}\n')
    return sys.stdin.read() + "heard"


@tool(isolation="process")
def settings() -> list[str]:
    """Tell the names of what stands in the environment."""
    return sorted(os.environ)


@tool(isolation="process")
def swell() -> str:
    """Return far too much."""
    return "x" * 50_000_000


@tool(isolation="process")
def hang_up() -> None:
    """Say that nothing more will be said, wherever somebody may listen, and hang."""
    for number in range(3, 100):
        with contextlib.suppress(OSError):
            socket.socket(fileno=number).shutdown(socket.SHUT_WR)
    time.sleep(600)


@tool(isolation="process")
def leave_behind(sizes: list[int], context: ToolContext) -> list[Artifact]:
    """Leave contents of these sizes behind, and an address, the last from another thread."""
    left = [emit_artifact(content=b"a" * size, filename=f"{size}.txt") for size in sizes]
    urls: list[Artifact] = []

    def emit() -> None:
        urls.append(context.emit_artifact("https://example.com/a", role="source"))

    thread = threading.Thread(target=emit)
    thread.start()
    thread.join()
    return [*left, *urls]


@tool(isolation="process")
async def leave_from_a_loop(count: int) -> int:
    """Leave so many contents behind."""
    for number in range(count):
        emit_artifact(content=f"{number}")
    return count


@tool(isolation="process")
def leave_and_crash() -> None:
    """Leave a file behind, and end."""
    emit_artifact(content="a")
    os._exit(1)


@tool(isolation="process")
def haunt(*, raw: bool) -> int:
    """Leave a thread behind."""
    ready = threading.Event()

    def stay() -> None:
        ready.set()
        threading.Event().wait()

    if raw:
        _thread.start_new_thread(stay, ())
    else:
        threading.Thread(target=stay, daemon=True).start()
    ready.wait()
    return os.getpid()


@tool(isolation="process")
async def wait_for_a_thread() -> int:
    """Have a thread do something, and wait for it."""
    thread = threading.Thread(target=os.getpid)
    thread.start()
    thread.join()
    return await asyncio.to_thread(os.getpid)


@tool(isolation="process")
def speak_for_all(context: ToolContext) -> int:
    """Speak for this call and for all before it."""
    _CONTEXTS.append(context)
    for each in _CONTEXTS:
        each.progress(each.tenant)
        each.logger.info(each.tenant)
    structlog.get_logger().info("anybody")
    return os.getpid()


@tool(isolation="process")
def log_oddly(context: ToolContext) -> int:
    """Log fields that are called like parts of the protocol, or that JSON lacks."""
    fields: dict[str, Any] = {
        "log": "part 1", "progress": "50%", "result": 1, "level": "high", "number": 7,
        "count": 2**70, "ratio": float("inf"), "parts": [1, {"a": None}], "odd": {1j},
        "half": _Float(0.5), "\ud800": "\ud800",
    }  # fmt: skip
    context.logger.info("step", **fields)
    return os.getpid()


@tool(isolation="process")
def forge(line: str, pid_file: str) -> None:
    """Say it to whoever listens, as this call's answer."""
    Path(pid_file).write_text(str(os.getpid()))
    for descriptor in range(3, 100):
        with contextlib.suppress(OSError):
            wire = socket.socket(fileno=descriptor)
            wire.sendall(line.encode() + b"\n")
            wire.detach()


def plain(numbers: list[int]) -> int:
    """Add."""
    return sum(numbers)


DAYS = ToolParameter(name="days", type=set, element_type=date)


@tool(isolation="process", parameters=[DAYS])
def last(days: Any) -> str:
    """Name the last of some days."""
    return f"{max(days):%d.%m.}"


def first(days: Any) -> str:
    """Name the first of some days."""
    return f"{min(days):%d.%m.}"


FIRST = Tool(
    name="first",
    description="Name the first of some days.",
    function=first,
    parameters=[DAYS],
    isolation="process",
)
