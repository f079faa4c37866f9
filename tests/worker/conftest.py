"""The runtime's workshop, for workers, and stores on each database."""

from tests.runtime.conftest import database, migrated_file, shop
from tests.store.conftest import (
    address,
    engine,
    postgres_address,
    postgres_template,
    sqlite_address,
    sqlite_template,
    store,
)

__all__ = [
    "address",
    "database",
    "engine",
    "migrated_file",
    "postgres_address",
    "postgres_template",
    "shop",
    "sqlite_address",
    "sqlite_template",
    "store",
]
