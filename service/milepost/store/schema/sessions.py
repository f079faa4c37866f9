"""Sessions, and what their runs see of what was said long ago."""

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    Column("user_id", Text),
    Column("title", Text),
    string("metadata", "{}"),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("turns", Integer, nullable=False, server_default="0"),
    number("created_ms", 0),
    number("updated_ms", 0),
    number("arrivals", 0),
    number("archived_ms"),
    number("ttl_ms"),
    number("expires_ms"),
    number("keep_ms"),
    number("forked_turn"),
    number("forked_index"),
    Column("forked_from", Text),
    string("kind", "chat"),
    Index(None, "tenant", "id"),
    partial_index("ix_sessions_user", "tenant", "user_id", "id", where="user_id IS NOT NULL"),
    partial_index("ix_sessions_forks", "forked_from", where="forked_from IS NOT NULL"),
    partial_index("ix_sessions_expiry", "expires_ms", where="expires_ms IS NOT NULL"),
    partial_index("ix_sessions_keep", "id", where="keep_ms IS NOT NULL"),
)

# What was trimmed of a session: a stretch of it, and what is told of that stretch from then on.
summaries = Table(
    "summaries",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("session_id"),
    Column("from_turn", BigInteger, nullable=False),
    Column("from_index", BigInteger, nullable=False),
    Column("through_turn", BigInteger, nullable=False),
    Column("through_index", BigInteger, nullable=False),
    string("content", ""),
    Column("model", Text),
    string("run_id"),
    number("created_ms", 0),
    number("reverted_ms"),
    Index(None, "session_id", "through_turn"),
    Index(None, "run_id"),
)

# Messages that are never trimmed.
pins = Table(
    "pins",
    metadata,
    string("tenant"),
    Column("session_id", Text, primary_key=True),
    Column("turn", BigInteger, primary_key=True),
    Column("message_index", BigInteger, primary_key=True),
    number("created_ms", 0),
)
