"""`milepost`: all commands. What is heavy is imported by the command that needs it."""

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from milepost.cli.approvals import app as approvals
from milepost.cli.batches import app as batches
from milepost.cli.flags import CLIENT, DATABASE, SERVER, WORKER, with_settings
from milepost.cli.garbage import none_expected
from milepost.cli.key_commands import app as keys
from milepost.cli.memories import app as memories
from milepost.cli.policies import grants, policies
from milepost.cli.printing import legible
from milepost.cli.retention import app as retention
from milepost.cli.runs import app as runs
from milepost.cli.schedules import app as schedules
from milepost.cli.sessions import app as sessions
from milepost.cli.unready import end_if_told
from milepost.cli.upkeep import erase_user, export_user, storage
from milepost.cli.wording import Worded
from milepost.core.errors import ConfigurationError, MilepostError
from milepost.settings import Settings

MISCONFIGURED = 2
FAILED = 1
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

app = typer.Typer(
    name="milepost",
    cls=Worded,
    help="Agents as a service: durable runs, streamed, with approvals, traces and cost.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(runs, name="runs")
app.add_typer(batches, name="batches")
app.add_typer(schedules, name="schedules")
app.add_typer(approvals, name="approvals")
app.add_typer(policies, name="policies")
app.add_typer(grants, name="grants")
app.add_typer(sessions, name="sessions")
app.add_typer(memories, name="memories")
app.add_typer(retention, name="retention")
app.add_typer(keys, name="keys")


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - a tenth of what others wait for

        typer.echo(f"milepost {version('milepost')}")
        raise typer.Exit


@app.callback()
def _milepost(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Say the version, and end."
        ),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command that was typed; what goes wrong is said in one line."""
    end_if_told()
    _show_what_the_terminal_can()
    try:
        _require_text(sys.argv[1:])
        app()
    except MilepostError as error:
        typer.echo(f"milepost: {legible(' '.join(str(error).split()))}", err=True)
        sys.exit(MISCONFIGURED if isinstance(error, ConfigurationError) else FAILED)
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        typer.echo(f"milepost: the output cannot be written: {error.strerror}", err=True)
        _drop_output()
        sys.exit(FAILED)


def _drop_output() -> None:
    """Have what is left of it go nowhere, where Python would fail once more at its very end."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _show_what_the_terminal_can() -> None:
    """Escape characters that the terminal's encoding lacks, instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _require_text(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(
                f"{word!r} is not text in this terminal's encoding; Milepost takes UTF-8"
            ) from error


@app.command()
@with_settings(SERVER)
def serve(settings: Settings) -> None:
    """Serve the API, and drive runs in this process's own slots."""
    with none_expected():
        from milepost.cli import serve as serving  # noqa: PLC0415 - a second of imports

    _see_current_folder()
    serving.serve(settings)


@app.command()
@with_settings(WORKER)
def worker(settings: Settings) -> None:
    """Drive runs beside servers that share the database, without an API."""
    with none_expected():
        from milepost.cli import serve as serving  # noqa: PLC0415 - a second of imports

    _see_current_folder()
    serving.work(settings)


@app.command()
@with_settings(DATABASE)
def migrate(settings: Settings) -> None:
    """Bring the database to this version's schema."""
    from milepost.cli.migrate import migrate as bring_up_to_date  # noqa: PLC0415 - half a second

    bring_up_to_date(settings)


@app.command()
def demo() -> None:
    """Start a service of its own and walk through a whole journey, as a client would."""
    from milepost.cli.demo import walk  # noqa: PLC0415 - an event loop and a client

    walk()


app.command()(with_settings(CLIENT)(storage))
app.command()(with_settings(CLIENT)(export_user))
app.command()(with_settings(CLIENT)(erase_user))


def _see_current_folder() -> None:
    """Let `--tools pkg.mod` name what lies here, which `python -m milepost` does by itself."""
    try:
        here = str(Path.cwd())
    except OSError as error:
        raise ConfigurationError(
            f"the current folder cannot be seen ({error.strerror}); change to another one"
        ) from error
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
