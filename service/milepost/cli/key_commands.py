"""`milepost keys`: make API keys, list them, take them back. It works on the database itself."""

from datetime import UTC, datetime
from typing import Annotated

import orjson
import typer

from milepost.cli.flags import KEYS, with_settings
from milepost.cli.printing import show_table
from milepost.settings import Settings

app = typer.Typer(
    help="Make API keys, list them, take them back: in the database itself, not over HTTP.",
    no_args_is_help=True,
)

Tenant = Annotated[str, typer.Option(help="whose they are")]

EVERYDAY_SCOPES = ("runs:read", "runs:write", "approvals:decide")


@app.command()
@with_settings(KEYS)
def create(
    settings: Settings,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="what it is for")],
    tenant: Tenant = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"may be repeated [default: {', '.join(EVERYDAY_SCOPES)}]"),
    ] = None,
    subject: Annotated[str | None, typer.Option(help="the user that it stands for")] = None,
    expires_days: Annotated[int | None, typer.Option(help="after how many days it ends")] = None,
) -> None:
    """Make a key and print it, this once: only its hash is stored."""
    from milepost.cli.keys import create_key  # noqa: PLC0415 - half a second of imports

    key = create_key(
        settings,
        tenant=tenant,
        name=name,
        scopes=scope or EVERYDAY_SCOPES,
        subject=subject,
        expires_days=expires_days,
    )
    typer.echo(key)


@app.command("list")
@with_settings(KEYS)
def list_all(settings: Settings, *, tenant: Tenant = "default") -> None:
    """List keys, the newest first, by what may be shown of them."""
    from milepost.cli.keys import list_keys  # noqa: PLC0415 - half a second of imports

    rows = (
        (
            key.id,
            key.name,
            key.hint,
            ",".join(orjson.loads(key.scopes)),
            _day(key.expires_ms),
            _day(key.revoked_ms),
        )
        for key in list_keys(settings, tenant=tenant)
    )
    show_table(("KEY", "NAME", "HINT", "SCOPES", "EXPIRES", "REVOKED"), rows)


@app.command()
@with_settings(KEYS)
def revoke(
    settings: Settings,
    *,
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID")],
    tenant: Tenant = "default",
) -> None:
    """End a key's validity for good."""
    from milepost.cli.keys import revoke_key  # noqa: PLC0415 - half a second of imports

    key = revoke_key(settings, tenant=tenant, key_id=key_id)
    typer.echo(f"{key.id} ({key.name}) is revoked.")


def _day(time_ms: int | None) -> str | None:
    return None if time_ms is None else f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"
