"""Requests that may come twice, and how many came."""

from sqlalchemy import Column, Index, Table, Text

from milepost.store.schema.columns import metadata, number, string

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    string("request_hash"),
    string("resource_id"),
    number("created_ms", 0),
    Index(None, "created_ms"),
)

rate_counters = Table(
    "rate_counters",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    number("ticks", 0),
    number("until_ms", 0),
    Index(None, "until_ms"),
)

rate_marks = Table(
    "rate_marks",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("call_id", Text, primary_key=True),
    number("tick", 0),
    number("until_ms", 0),
    Index(None, "tenant", "key", "tick"),
    Index(None, "until_ms"),
)
