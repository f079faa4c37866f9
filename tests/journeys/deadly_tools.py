"""Tools that no process survives."""

import os
import signal

from milepost.tools import tool


@tool(effect="read")
def die() -> str:
    """End the process that this is called in; may be called again."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "nobody hears this"


@tool
def exit_at_once() -> str:
    """End the process that this is called in; never to be repeated."""
    os._exit(1)
