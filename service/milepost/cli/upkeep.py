"""`milepost storage`, `export-user` and `erase-user`: what takes the space, and what is to go."""

from typing import Annotated

import typer

from milepost.cli.calling import connected, finite
from milepost.cli.printing import show_json, show_line, show_table
from milepost.core.errors import UnavailableError
from milepost.settings import Settings

WAIT_S = 600.0
_MIB = 1_048_576


def storage(
    settings: Settings,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Print what takes the space in the database, the largest table first."""
    with connected(settings) as milepost:
        told = milepost.users.storage()
    if as_json:
        show_json(told)
        return
    rows = [
        (each["name"], each["rows_estimate"], _mib(each["table_bytes"]), _mib(each["index_bytes"]))
        for each in told["tables"]
    ]
    show_table(("TABLE", "ROWS", "MIB", "INDEX MIB"), rows)
    typer.echo(f"{told['database']}: {_mib(told['total_bytes'])} MiB in all")


def export_user(
    settings: Settings, *, user: Annotated[str, typer.Argument(help="whose data is to be shown")]
) -> None:
    """Print all that there is of a user as JSON, a thing a line."""
    with connected(settings) as milepost:
        for thing in milepost.users.export(user):
            show_line(thing)


def erase_user(
    settings: Settings,
    *,
    user: Annotated[str, typer.Argument(help="whose data is to be erased, for good")],
    wait_s: Annotated[float | None, typer.Option(help="how long to wait for it")] = WAIT_S,
) -> None:
    """Erase all that there is of a user, and print how much that was."""
    timeout_s = finite(wait_s)
    with connected(settings) as milepost:
        try:
            erasure = milepost.users.erase(user, timeout_s=timeout_s)
        except TimeoutError as error:
            raise UnavailableError(
                f"after {timeout_s:g} s not all of {user!r} is erased; the erasure goes on, and the"
                " same command waits for it again"
            ) from error
    show_json(erasure.raw)


def _mib(count: int | None) -> str | None:
    return None if count is None else f"{count / _MIB:.1f}"
