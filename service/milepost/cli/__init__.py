"""The command line: `milepost serve`, and the rest."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.cli.garbage import none_expected

INTERRUPTED = 130
"""How shells tell that a command ended by SIGINT."""


def main() -> None:
    """Run the command that was typed; what goes wrong is said in one line."""
    try:
        with _ended_by_later_interrupts():
            with none_expected():
                from milepost.cli import commands  # noqa: PLC0415 - the reason is above
            commands.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@contextmanager
def _ended_by_later_interrupts() -> Iterator[None]:
    """Have a Ctrl-C that comes behind this end the process at once, as a signal does by default.

    Python takes a while to its end, has nobody there to hear of it, and would show where it was.
    """
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


__all__ = ["main"]
