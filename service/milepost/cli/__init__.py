"""The command line: `milepost serve`, and the rest."""

import sys

from milepost.cli.garbage import none_expected

INTERRUPTED = 130
"""How shells tell that a command ended by SIGINT."""


def main() -> None:
    """Run the command that was typed; what goes wrong is said in one line."""
    try:
        with none_expected():
            from milepost.cli import commands  # noqa: PLC0415 - the reason is above
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    commands.main()


__all__ = ["main"]
