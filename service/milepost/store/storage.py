"""What takes the space: by table, as the database knows without reading it, and of one tenant."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Table, func, select

from milepost.store import schema
from milepost.store.dialect import DialectName, number, text
from milepost.store.work import Statement, Work

COUNTED_MAX = 100_000
"""Up to how many of a tenant's rows are counted: more are told as `at least` so many."""
MEASURED_BYTES_MAX = 268_435_456
"""Up to what size an SQLite file is measured table by table: that reads all of it."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """What a table takes with its indexes; None where that is not known. `rows` is an estimate."""

    name: str
    rows: int | None
    table_bytes: int | None
    index_bytes: int | None


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """What all of the database takes, and what of that is free for what is to come."""

    total_bytes: int
    free_bytes: int | None
    tables: tuple[TableSize, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows a tenant has; with `at_least`, there are more."""

    name: str
    count: int
    at_least: bool


# A partition's parent takes nothing itself: what its parts take counts as its own.
_POSTGRES = Statement(
    sa.text(
        "SELECT coalesce(parent.relname, part.relname),"
        " CAST(sum(greatest(part.reltuples, 0)) AS bigint), bool_and(part.reltuples >= 0),"
        " CAST(sum(pg_table_size(part.oid)) AS bigint),"
        " CAST(sum(pg_indexes_size(part.oid)) AS bigint)"
        " FROM pg_class AS part LEFT JOIN pg_inherits ON inhrelid = part.oid"
        " LEFT JOIN pg_class AS parent ON parent.oid = inhparent"
        " WHERE part.relnamespace = CAST(current_schema() AS regnamespace) AND part.relkind = 'r'"
        " GROUP BY 1 ORDER BY 1"
    )
)
_POSTGRES_TOTAL = Statement(sa.text("SELECT pg_database_size(current_database())"))
_SQLITE_TOTAL = Statement(
    sa.text(
        "SELECT page_count * page_size, freelist_count * page_size"
        " FROM pragma_page_count, pragma_page_size, pragma_freelist_count"
    )
)
_SQLITE_MEASURES = Statement(
    sa.text("SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'")
)
_SQLITE = Statement(
    sa.text(
        "SELECT master.tbl_name, sum(CASE master.type WHEN 'table' THEN pgsize ELSE 0 END),"
        " sum(CASE master.type WHEN 'index' THEN pgsize ELSE 0 END)"
        " FROM dbstat JOIN sqlite_master AS master ON master.name = dbstat.name"
        " WHERE aggregate = TRUE GROUP BY 1 ORDER BY 1"
    )
)


def _counting(table: Table) -> Statement:
    few = select(sa.literal(1)).where(table.c.tenant == text("tenant")).limit(number("most"))
    return Statement(select(func.count()).select_from(few.subquery()))


# Each has an index that begins with the tenant.
_COUNTS = {
    str(table.name): _counting(table)
    for table in (
        schema.approvals,
        schema.artifact_contents,
        schema.audit,
        schema.batches,
        schema.idempotency,
        schema.memories,
        schema.runs,
        schema.schedules,
        schema.sessions,
        schema.usage,
    )
}


def measure(dialect: DialectName) -> Work[DatabaseSize]:
    """Return what the database takes; rows are what its own statistics say."""
    match dialect:
        case "postgresql":
            ((total,),), found = yield _POSTGRES_TOTAL(), _POSTGRES()
            tables = [
                TableSize(name, rows if known else None, table_bytes, index_bytes)
                for name, rows, known, table_bytes, index_bytes in found
            ]
            return DatabaseSize(total, None, tuple(tables))
        case "sqlite":
            ((total, free),) = yield _SQLITE_TOTAL()
            return DatabaseSize(total, free, (yield from _measured(total)))


def _measured(total_bytes: int) -> Work[tuple[TableSize, ...]]:
    ((measures,),) = yield _SQLITE_MEASURES()
    if not measures or total_bytes > MEASURED_BYTES_MAX:
        return tuple(
            TableSize(name, None, None, None) for name in map(str, sorted(schema.metadata.tables))
        )
    return tuple(TableSize(name, None, *sizes) for name, *sizes in (yield _SQLITE()))


def counts(tenant: str) -> Work[list[Count]]:
    """Return how many of what the tenant has."""
    found = yield tuple(
        statement(tenant=tenant, most=COUNTED_MAX + 1) for statement in _COUNTS.values()
    )
    return [
        Count(name, min(count, COUNTED_MAX), count > COUNTED_MAX)
        for name, (((count,),)) in zip(_COUNTS, found, strict=True)
    ]
