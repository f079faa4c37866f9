"""Stores for those who ask and those who work: neither keeps the other waiting."""

import asyncio

import pytest

from milepost.settings import Settings
from milepost.store import secrets
from milepost.store.address import PostgresAddress, SqliteAddress
from milepost.store.opening import open_stores
from tests.store.making import TENANT

TIMEOUT_S = 8.0  # Whoever waits for a connection in vain gives up after ten seconds.


async def test_an_open_transaction_leaves_who_works_a_connection_of_the_fewest(
    postgres_address: PostgresAddress,
) -> None:
    async with (
        open_stores(postgres_address, pool_max=3, queue_max=10) as (_, working),
        working.transaction(TIMEOUT_S),
        asyncio.timeout(TIMEOUT_S),
    ):
        await working.write(secrets.put(TENANT, "a", "sealed", 1))
        found = await working.read(secrets.names(TENANT))

    assert found == ["a"]


async def test_a_file_has_one_store_for_all(sqlite_address: SqliteAddress) -> None:
    async with open_stores(sqlite_address, pool_max=3, queue_max=10) as (asking, working):
        assert asking is working


def test_fewer_connections_than_both_need_are_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 3"):
        Settings(pool_max=2)
