"""Runs, their logs and their inboxes."""

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, Table, Text, text

from milepost.store.schema.columns import metadata, number, partial_index, string

ACTIVE = ("queued", "running", "waiting")
PENDING = ("scheduled", "blocked", "queued")
ENDED = ("completed", "incomplete", "failed", "cancelled", "expired")
# Nearly all runs have completed. An index holds the rest, which is what people look for.
_IS_UNCOMPLETED = "status <> 'completed'"

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("session_id"),
    string("agent_id"),
    string("agent"),
    Column("agent_version", Integer, nullable=False),
    Column("user_id", Text),
    string("status"),
    Column("lane", SmallInteger, nullable=False, server_default="0"),
    number("run_at_ms", 0),
    number("wake_at_ms"),
    number("epoch", 0),
    Column("owner", Text),
    Column("resume_why", Text),
    Column("crashes", Integer, nullable=False, server_default="0"),
    number("deadline_ms"),
    number("cancel_ms"),
    number("inbox_seq", 0),
    Column("turn", Integer),
    number("created_ms", 0),
    number("ended_ms"),
    string("metadata", "{}"),
    Column("trace_parent", Text),
    Column("waiting_for", Text),
    Column("outcome", Text),
    string("scopes", "[]"),
    Column("parent_run_id", Text),
    Column("parent_call_id", Text),
    number("told_ms"),
    Column("made_by", Text),
    Column("forked_from", Text),
    number("forked_seq"),
    number("place"),
    Column("rolled_back_by", Text),
    partial_index("ix_runs_forks", "forked_from", "id", where="forked_from IS NOT NULL"),
    partial_index("ix_runs_place", "session_id", "place", where="place IS NOT NULL"),
    partial_index("ix_runs_children", "parent_run_id", "id", where="parent_run_id IS NOT NULL"),
    partial_index(
        "ix_runs_untold", "ended_ms", where="parent_run_id IS NOT NULL AND told_ms IS NULL"
    ),
    partial_index("ix_runs_ready", text("lane DESC"), "run_at_ms", "id", where="status = 'queued'"),
    partial_index("ix_runs_owned", "owner", where="status = 'running'"),
    partial_index("ix_runs_timers", "wake_at_ms", where="wake_at_ms IS NOT NULL"),
    partial_index("ix_runs_blocked", "session_id", "id", where="status = 'blocked'"),
    partial_index(
        "uq_runs_active",
        "session_id",
        where="status IN ('queued', 'running', 'waiting')",
        unique=True,
    ),
    partial_index("ix_runs_uncompleted", "tenant", "status", "id", where=_IS_UNCOMPLETED),
    Index("ix_runs_agent", "tenant", "agent", "id"),
    partial_index("ix_runs_user", "tenant", "user_id", "id", where="user_id IS NOT NULL"),
    partial_index("ix_runs_maker", "tenant", "made_by", "id", where="made_by IS NOT NULL"),
    Index(None, "tenant", "id"),
    Index(None, "session_id", "turn"),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01},
)

events = Table(
    "events",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    string("tenant"),
    number("epoch", 0),
    string("append_id"),
    string("type"),
    number("time_ms", 0),
    string("data"),
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (run_id)",
)

inbox = Table(
    "inbox",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    string("tenant"),
    string("kind"),
    string("data"),
    number("created_ms", 0),
)
