"""How long things are kept, and what is being erased."""

from sqlalchemy import Column, Index, Integer, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

# How long a tenant has things kept.
retention = Table(
    "retention",
    metadata,
    Column("tenant", Text, primary_key=True),
    string("rules"),
    Column("version", Integer, nullable=False),
    number("updated_ms", 0),
)

# Up to and with which run all is gone of a resource that is to go.
retention_marks = Table(
    "retention_marks",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    string("through"),
)

# Users whose data is being erased; who they were is forgotten with the rest. `owner` is how caches
# know them, which nobody can read.
erasures = Table(
    "erasures",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("owner"),
    string("asked_by"),
    Column("user_id", Text),
    string("stage", "messages"),
    string("place", ""),
    string("counts", "{}"),
    number("until_ms", 0),
    number("created_ms", 0),
    number("ended_ms"),
    Index(None, "tenant", "id"),
    partial_index(
        "uq_erasures_user", "tenant", "user_id", where="user_id IS NOT NULL", unique=True
    ),
    partial_index("ix_erasures_open", "created_ms", where="ended_ms IS NULL"),
    Index(None, "ended_ms"),
)

# What may be left of what was erased: a content (its SHA-256) or a `folder` outside the database,
# or a `session` without its runs.
leftovers = Table(
    "leftovers",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("erasure_id", Text),
    number("due_ms", 0),
    Index(None, "due_ms"),
    partial_index("ix_leftovers_erasure", "erasure_id", where="erasure_id IS NOT NULL"),
)
