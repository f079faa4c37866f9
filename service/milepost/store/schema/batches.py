"""Many runs that are made at once."""

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

BATCH_OPEN = ("running", "cancelling")

_IS_OPEN = f"status IN ({', '.join(map(repr, BATCH_OPEN))})"

batches = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("agent_id"),
    string("agent"),
    Column("agent_version", Integer, nullable=False),
    Column("user_id", Text),
    string("status"),
    Column("concurrency", Integer, nullable=False),
    Column("lane", SmallInteger, nullable=False, server_default="0"),
    number("deadline_after_ms"),
    string("metadata", "{}"),
    string("scopes", "[]"),
    Column("trace_parent", Text),
    string("queued_event"),
    Column("total", Integer, nullable=False),
    Column("started", Integer, nullable=False, server_default="0"),
    string("counts", "{}"),
    string("usage", "{}"),
    number("seq", 1),
    number("created_ms", 0),
    number("changed_ms", 0),
    number("ended_ms"),
    Column("cancelled_by", Text),
    Column("cancel_reason", Text),
    Column("made_by", Text),
    Index(None, "tenant", "id"),
    partial_index("ix_batches_open", "status", "tenant", where=_IS_OPEN),
    postgresql_with={"fillfactor": 50},
)

batch_items = Table(
    "batch_items",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("place", BigInteger, primary_key=True),
    string("tenant"),
    Column("custom_id", Text),
    Column("input", Text),
    Column("metadata", Text),
    string("status", "pending"),
    Column("run_id", Text),
    partial_index("ix_batch_items_started", "batch_id", "place", where="status = 'started'"),
    sqlite_with_rowid=False,
)
