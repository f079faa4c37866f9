"""An MCP server's process, of which nothing may be left."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import mcp_types
import pytest
from mcp.shared.message import SessionMessage

from milepost.core.errors import ToolError
from milepost.tools.mcp import process as mcp_process
from milepost.tools.mcp.process import speaking_with

TIMEOUT_S = 20
ENVIRONMENT = {"PATH": os.environ["PATH"]}

OBEDIENT = """
import json, pathlib, sys
for line in sys.stdin:
    pathlib.Path(sys.argv[1]).write_text(json.loads(line)["method"])
pathlib.Path(sys.argv[2]).write_text("left")
"""
# It tells its own number and its child's, and neither of them hears of an end.
DEAF = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
told = pathlib.Path(sys.argv[1])
told.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
told.with_suffix(".part").rename(told)
time.sleep(600)
"""

# Anybody may trace it (Yama, where there is one, would allow it to its ancestors alone).
TRACEABLE = """
import ctypes, os, pathlib, sys, time
PR_SET_PTRACER, ANYBODY = 0x59616D61, ctypes.c_ulong(-1)
ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANYBODY)
told = pathlib.Path(sys.argv[1])
told.with_suffix(".part").write_text(str(os.getpid()))
told.with_suffix(".part").rename(told)
time.sleep(600)
"""
# As long as it lives, nobody else sees the end of what it traces.
TRACER = """
import ctypes, sys
PTRACE_SEIZE = 0x4206
print(ctypes.CDLL(None).ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None), flush=True)
sys.stdin.read()
"""


def unheard(error: ToolError) -> None:
    """Take what must not be said."""
    raise AssertionError(error)


async def said_in(path: Path) -> str:
    """Return what the file says once it is there."""
    has_come = path.exists
    async with asyncio.timeout(TIMEOUT_S):
        while not has_come():  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.01)
    return path.read_text()  # noqa: ASYNC240 - a few bytes, and nothing else runs


def is_there(pid: int) -> bool:
    """Say whether a process runs: one that has ended, and is not yet reaped, does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def gone(pids: list[int]) -> None:
    """Wait until none of them is there."""
    async with asyncio.timeout(TIMEOUT_S):
        while any(is_there(pid) for pid in pids):  # noqa: ASYNC110 - the system's doing
            await asyncio.sleep(0.01)


@asynccontextmanager
async def traced(pid: str) -> AsyncIterator[None]:
    """Have another process trace this one, so that whoever started it waits for its end in vain."""
    tracer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", TRACER, pid),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert tracer.stdin is not None
    assert tracer.stdout is not None
    try:
        if await tracer.stdout.readline() != b"0\n":
            pytest.skip("no process may trace another one here")
        yield
    finally:
        tracer.stdin.close()
        await tracer.wait()


async def reaped(pid: str) -> None:
    """Wait until whoever started it has seen its end, and the event loop has heard of that."""
    is_known = Path(f"/proc/{pid}").exists
    async with asyncio.timeout(TIMEOUT_S):
        while is_known() or _waits_for_a_process():  # noqa: ASYNC110 - the system's doing
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)  # The thread has left it with the loop.


def _waits_for_a_process() -> bool:
    """Say whether one of asyncio's threads does, which are there before Python 3.12."""
    return any(thread.name.startswith("waitpid-") for thread in threading.enumerate())


async def test_what_was_told_last_reaches_a_process_that_then_leaves_by_itself(
    tmp_path: Path,
) -> None:
    heard, left = tmp_path / "heard", tmp_path / "left"
    command = [sys.executable, "-c", OBEDIENT, str(heard), str(left)]
    last = mcp_types.JSONRPCNotification(jsonrpc="2.0", method="farewell")

    async with speaking_with(command, ENVIRONMENT, None, unheard) as (_, told):
        await told.send(SessionMessage(last))

    assert heard.read_text() == "farewell"
    assert left.read_text() == "left"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("way_out", ["its end", "a cancellation"])
async def test_a_process_that_will_not_leave_is_killed_with_all_that_it_has_started(
    way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_process, "LEAVE_S", 0.1)
    command = [sys.executable, "-c", DEAF, str(tmp_path / "pids")]
    pids: list[int] = []
    is_left = asyncio.Event()

    async def hold() -> None:
        async with speaking_with(command, ENVIRONMENT, None, unheard):
            pids.extend(int(each) for each in (await said_in(tmp_path / "pids")).split())
            is_left.set()
            if way_out == "a cancellation":
                await asyncio.Event().wait()

    holding = asyncio.create_task(hold())
    await is_left.wait()
    if way_out == "a cancellation":
        holding.cancel()
    await asyncio.wait({holding})

    assert len(pids) == 2
    await gone(pids)


async def test_a_process_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with speaking_with([str(tmp_path / "none")], ENVIRONMENT, None, unheard):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="traces a process")
async def test_a_process_that_not_even_a_kill_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_process, "LEAVE_S", 0.1)
    command = [sys.executable, "-c", TRACEABLE, str(tmp_path / "pid")]

    async with AsyncExitStack() as outlasting:
        async with speaking_with(command, ENVIRONMENT, None, unheard):
            pid = await said_in(tmp_path / "pid")
            await outlasting.enter_async_context(traced(pid))
        assert Path(f"/proc/{pid}").exists()  # noqa: ASYNC240 - no disk is asked

    await reaped(pid)
