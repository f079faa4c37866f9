"""Questions to people, and their answers."""

from sqlalchemy import Column, Index, Integer, SmallInteger, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

_REMINDS = "status = 'pending' AND remind_ms IS NOT NULL"

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("run_id"),
    string("session_id"),
    string("agent"),
    Column("user_id", Text),
    string("call_id"),
    string("tool"),
    string("arguments"),
    string("digest"),
    string("preview"),
    string("reason"),
    string("status", "pending"),
    Column("required", Integer, nullable=False, server_default="1"),
    Column("decided_by", Text),
    Column("decision", Text),
    Column("comment", Text),
    number("decided_ms"),
    number("created_ms", 0),
    number("expires_ms", 0),
    string("kind", "call"),
    string("terms", "{}"),
    Column("requester", Text),
    Column("original", Text),
    number("remind_ms"),
    Column("escalated", SmallInteger, nullable=False, server_default="0"),
    Column("version", Integer, nullable=False, server_default="1"),
    number("changed_ms", 0),
    string("change", "requested"),
    Column("made_by", Text),
    Index(None, "tenant", "status", "id"),
    Index(None, "tenant", "changed_ms"),
    Index(None, "run_id"),
    partial_index("ix_approvals_remind", "remind_ms", where=_REMINDS),
    partial_index("ix_approvals_expiry", "expires_ms", where="status = 'pending'"),
)

votes = Table(
    "votes",
    metadata,
    Column("approval_id", Text, primary_key=True),
    Column("voter", Text, primary_key=True),
    string("tenant"),
    string("decision"),
    string("digest"),
    Column("comment", Text),
    number("created_ms", 0),
    string("actor", ""),
)
