"""Being told to stop before there is anything to drain."""

import os
import signal
from types import FrameType


def end_if_told() -> None:
    """Have SIGTERM end the process at once, until somebody has another use for it.

    That is the default, but not for the first process of a container: told to stop as it starts, it
    would go on, take runs, and be killed with them in hand.
    """
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # The default was to go on.
