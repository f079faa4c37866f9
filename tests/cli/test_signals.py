"""How a server ends: it drains at the first signal, and at once at the second Ctrl-C."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.journeys.processes import START_S, Installation, assert_sound, installed, types
from tests.stubs.directed_model import directed_model

TOOLS = """
import asyncio
import threading

from milepost import tool

@tool
async def hang() -> None:
    "Never return."
    await asyncio.Event().wait()

@tool(timeout_s=0.1)
async def deaf() -> None:
    "Go on, whatever one is told."
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            pass

@tool
async def fork() -> None:
    "Start what never ends."
    threading.Thread(target=threading.Event().wait, name="forked").start()
"""
NEVER_READY = """
import threading

print("starting", flush=True)
threading.Event().wait()
"""
SLOW_TO_LEAVE = """
import atexit
import threading

@atexit.register
def linger() -> None:
    print("leaving", flush=True)
    threading.Event().wait()

raise KeyboardInterrupt
"""
AGENTS = """
[[agents]]
name = "clerk"
model = "openai/directed"
tools = ["hang", "deaf", "fork"]
"""


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """A folder for services with a tool that never returns."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "agents.toml").write_text(AGENTS)
    async with directed_model() as model:
        environment = {
            "MILEPOST_TOOLS": "tools.py",
            "MILEPOST_AGENTS": "agents.toml",
            "MILEPOST_LOG_LEVEL": "warning",
            "OPENAI_BASE_URL": model.base_url,
            "PATH": os.environ["PATH"],
        }
        async with installed(tmp_path, environment) as installation:
            yield installation


@pytest.fixture
def ignored_hangups() -> Iterator[None]:
    """Whatever is started ignores hangups, as `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_server_that_is_told_to_stop_hands_its_run_to_the_next_one(
    installation: Installation, number: signal.Signals
) -> None:
    server = await installation.start()
    run = await server.create("slowly 20\n" + "word " * 50)
    await server.until(run["id"], "message.delta")

    server.process.send_signal(number)
    code = await server.process.wait()
    events = await (await installation.start()).whole(run["id"])

    assert code == 0
    assert_sound(events)
    assert {"run.retrying", "run.resumed", "run.completed"} <= set(types(events))


@pytest.mark.usefixtures("ignored_hangups")
async def test_a_server_that_is_to_outlive_its_terminal_does(installation: Installation) -> None:
    server = await installation.start()

    server.process.send_signal(signal.SIGHUP)
    events = await server.whole((await server.create("Hello."))["id"])

    assert "run.completed" in types(events)
    assert await server.stop() == 0


@pytest.mark.parametrize(("tool", "left"), [("deaf", "deaf"), ("fork", "forked")])
async def test_a_server_that_is_told_to_stop_leaves_behind_what_will_not_end(
    installation: Installation, tool: str, left: str
) -> None:
    server = await installation.start()
    run = await server.create(f"call {tool} {{}}")
    events = await server.whole(run["id"])

    code = await server.stop()

    assert "run.completed" in types(events)
    assert code == 0
    [line] = [
        line
        for line in (installation.folder / "stderr").read_text().splitlines()
        if "left behind what would not end" in line
    ]
    assert left in line


async def test_a_second_interrupt_does_not_wait_for_the_drain(installation: Installation) -> None:
    server = await installation.start("--drain-s", "1000")
    run = await server.create("call hang {}")

    with suppress(httpx2.RemoteProtocolError):  # The death may come before the stream's end.
        async for event in server.events(run["id"]):
            if event.type in {"tool_call.started", "stream.reconnect"}:
                server.process.send_signal(signal.SIGINT)
    code = await server.process.wait()

    assert code == -signal.SIGINT


@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_a_process_without_defaults_that_is_told_to_stop_as_it_starts_stops(
    tmp_path: Path, command: str
) -> None:
    """As the first process of a container: what it does not handle counts for nothing there."""
    (tmp_path / "tools.py").write_text(NEVER_READY)
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", "trap '' TERM; exec \"$@\"", "sh"),
        *(sys.executable, "-m", "milepost", command),
        cwd=tmp_path,
        env={**os.environ, "MILEPOST_TOOLS": "tools.py", "MILEPOST_PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            assert await process.stdout.readline() == b"starting\n"
            process.terminate()
            assert await process.wait() == -signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_second_interrupt_as_it_starts_ends_it_without_a_word(tmp_path: Path) -> None:
    """The first one comes while tools are imported, the second on the way out."""
    (tmp_path / "tools.py").write_text(SLOW_TO_LEAVE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "milepost", "serve"),
        cwd=tmp_path,
        env={**os.environ, "MILEPOST_TOOLS": "tools.py", "MILEPOST_PORT": "0"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            assert await process.stdout.readline() == b"leaving\n"
            process.send_signal(signal.SIGINT)
            _, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert (process.returncode, complaint) == (-signal.SIGINT, b"")
