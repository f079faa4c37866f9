"""The command line: `milepost serve`, and the rest."""

from milepost.cli.commands import main

__all__ = ["main"]
