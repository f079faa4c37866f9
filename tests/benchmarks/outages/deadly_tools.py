"""A tool that no process survives."""

import os
import signal

from milepost.tools import tool


@tool(effect="read")
def die() -> str:
    """Kill the process that this is called in."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "nobody hears this"
