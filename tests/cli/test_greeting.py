"""What a server says when it is ready: who drives its runs, and that nobody does."""

from pathlib import Path

import pytest

from milepost.cli.greeting import drivers
from milepost.store.address import Address, PostgresAddress, SqliteAddress

SQLITE = SqliteAddress(Path("milepost.db"))
POSTGRES = PostgresAddress("postgresql://localhost/milepost")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (POSTGRES, "`milepost worker` processes do"),
        (SQLITE, "nobody does: give it --slots"),
    ],
)
def test_a_server_without_slots_says_who_drives_its_runs(address: Address, told: str) -> None:
    assert told in drivers(address)
