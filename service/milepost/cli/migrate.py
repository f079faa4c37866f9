"""`milepost migrate`."""

import typer

from milepost.cli.beginning import begin
from milepost.settings import Settings
from milepost.store import lockfile
from milepost.store.address import parse_address
from milepost.store.migrate import migrate as bring_up_to_date


def migrate(settings: Settings) -> None:
    """Bring the database to the newest schema; a file must not be in use by a service."""
    begin(settings)
    address = parse_address(settings.database_url)
    with lockfile.held(address):
        bring_up_to_date(address)
    typer.echo(f"{address.shown} is up to date.")
