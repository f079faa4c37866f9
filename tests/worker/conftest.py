"""The runtime's workshop, for workers."""

from tests.runtime.conftest import database, migrated_file, shop

__all__ = ["database", "migrated_file", "shop"]
