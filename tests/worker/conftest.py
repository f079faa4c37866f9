"""The runtime's workshop, for workers, and stores on each database."""

from tests.runtime.conftest import database, shop
from tests.store.conftest import (
    address,
    engine,
    postgres_address,
    sqlite_address,
    store,
)

__all__ = [
    "address",
    "database",
    "engine",
    "postgres_address",
    "shop",
    "sqlite_address",
    "store",
]
