"""The end of a process: what will not stop is named and left, not waited for.

By then nothing that could be left can write: the store is closed, and its lock with it. A tool that
goes on for the last moments has only what its own code holds.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any

import uvloop

from milepost.telemetry.logs import logger

LEAVE_S = 2.0
FAILED = 1


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` on a loop of its own; once it has ended, the process has `LEAVE_S` to be gone.

    An event loop waits for every task at its end, and Python for every thread that is no daemon: a
    tool that catches its cancellation, or starts a thread, could keep the process for ever.
    """
    gone = threading.Event()
    try:
        uvloop.run(_watched(main, gone))
    finally:
        if not _lasting():
            gone.set()


async def _watched(main: Coroutine[Any, Any, None], gone: threading.Event) -> None:
    code = FAILED
    try:
        await main
        code = 0
    finally:
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=_leave, args=(gone, loop, code), name="leaving", daemon=True
        ).start()


def _leave(gone: threading.Event, loop: asyncio.AbstractEventLoop, code: int) -> None:
    if gone.wait(LEAVE_S):
        return
    logger("process").warning(
        "left behind what would not end",
        tasks=sorted(task.get_name() for task in asyncio.all_tasks(loop)),
        threads=sorted(thread.name for thread in _lasting()),
    )
    sys.stdout.flush()
    os._exit(code)


def _lasting() -> list[threading.Thread]:
    """Return the threads that Python waits for at its end."""
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]
