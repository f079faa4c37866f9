"""A log's first and last entries, as statements insert them from outside of a claim."""

from typing import Any

from sqlalchemy import select

from milepost.store import schema
from milepost.store.dialect import rows
from milepost.store.records import Entry

_first = rows(
    "first", "run_id", "tenant", "append_id", "type", "data", numbers=("seq", "epoch", "time_ms")
)
NAMES = [column.name for column in schema.events.c]
ENTRIES = select(*(_first.c[name] for name in NAMES))
"""The entries that are handed over as `first`, made by `entry_row`."""


def entry_row(
    run_id: str, tenant: str, append_id: str, *, epoch: int, seq: int, entry: Entry
) -> dict[str, Any]:
    """Return an entry as `ENTRIES` takes it."""
    return {
        "run_id": run_id,
        "tenant": tenant,
        "append_id": append_id,
        "type": entry.type,
        "data": entry.data,
        "seq": seq,
        "epoch": epoch,
        "time_ms": entry.time_ms,
    }
