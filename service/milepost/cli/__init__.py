"""The command line: `milepost serve`, and the rest."""

from milepost.cli.garbage import none_expected


def main() -> None:
    """Run the command that was typed; what goes wrong is said in one line."""
    with none_expected():
        from milepost.cli import commands  # noqa: PLC0415 - the reason is above

    commands.main()


__all__ = ["main"]
