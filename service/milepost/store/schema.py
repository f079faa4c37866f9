"""The tables. Every row has a tenant; times are Unix milliseconds; JSON is opaque text.

`events` is only ever inserted into. On Postgres it is partitioned by the time that run ids begin
with: see `milepost.store.partitions`. Nothing that an index of `runs` covers changes while a run is
running, so that Postgres updates its row in place.
"""

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    event,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ACTIVE = ("queued", "running", "waiting")
PENDING = ("scheduled", "blocked", "queued")
ENDED = ("completed", "incomplete", "failed", "cancelled", "expired")
BATCH_OPEN = ("running", "cancelling")
# Nearly all runs have completed. An index holds the rest, which is what people look for.
_IS_UNCOMPLETED = text("status <> 'completed'")
_REMINDS = text("status = 'pending' AND remind_ms IS NOT NULL")
_HAS_TOOL = text("tool IS NOT NULL")
_HAS_MODEL = text("model IS NOT NULL")
_DUE = text("status = 'pending'")
_IS_OPEN = text(f"status IN ({', '.join(map(repr, BATCH_OPEN))})")


def _number(name: str, default: int | None = None) -> Column[int]:
    if default is None:
        return Column(name, BigInteger)
    return Column(name, BigInteger, nullable=False, server_default=str(default))


def _text(name: str, default: str | None = None) -> Column[str]:
    if default is None:
        return Column(name, Text, nullable=False)
    return Column(name, Text, nullable=False, server_default=default)


# One row: the oldest version of the code that may still use the database, by the newest schema that
# it knows.
schema_compat = Table("schema_compat", metadata, Column("oldest_code", Text, primary_key=True))

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    _number("until_ms", 0),
    Column("dead", SmallInteger, nullable=False, server_default="0"),
    _number("started_ms", 0),
    Column("knows", Text),
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
)

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("name"),
    Column("version", Integer, nullable=False),
    _number("created_ms", 0),
    _number("deleted_ms"),
    Index(
        "uq_agents_name",
        "tenant",
        "name",
        unique=True,
        sqlite_where=text("deleted_ms IS NULL"),
        postgresql_where=text("deleted_ms IS NULL"),
    ),
)

agent_versions = Table(
    "agent_versions",
    metadata,
    Column("agent_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    _text("tenant"),
    _text("definition"),
    _number("created_ms", 0),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    Column("user_id", Text),
    Column("title", Text),
    _text("metadata", "{}"),
    Column("version", Integer, nullable=False, server_default="1"),
    Column("turns", Integer, nullable=False, server_default="0"),
    _number("created_ms", 0),
    _number("updated_ms", 0),
    _number("arrivals", 0),
    _number("archived_ms"),
    _number("ttl_ms"),
    _number("expires_ms"),
    _number("keep_ms"),
    _number("forked_turn"),
    _number("forked_index"),
    Column("forked_from", Text),
    _text("kind", "chat"),
    Index(None, "tenant", "id"),
    Index(
        "ix_sessions_user",
        "tenant",
        "user_id",
        "id",
        sqlite_where=text("user_id IS NOT NULL"),
        postgresql_where=text("user_id IS NOT NULL"),
    ),
    Index(
        "ix_sessions_forks",
        "forked_from",
        sqlite_where=text("forked_from IS NOT NULL"),
        postgresql_where=text("forked_from IS NOT NULL"),
    ),
    Index(
        "ix_sessions_expiry",
        "expires_ms",
        sqlite_where=text("expires_ms IS NOT NULL"),
        postgresql_where=text("expires_ms IS NOT NULL"),
    ),
    Index(
        "ix_sessions_keep",
        "id",
        sqlite_where=text("keep_ms IS NOT NULL"),
        postgresql_where=text("keep_ms IS NOT NULL"),
    ),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("session_id"),
    _text("agent_id"),
    _text("agent"),
    Column("agent_version", Integer, nullable=False),
    Column("user_id", Text),
    _text("status"),
    Column("lane", SmallInteger, nullable=False, server_default="0"),
    _number("run_at_ms", 0),
    _number("wake_at_ms"),
    _number("epoch", 0),
    Column("owner", Text),
    Column("resume_why", Text),
    Column("crashes", Integer, nullable=False, server_default="0"),
    _number("deadline_ms"),
    _number("cancel_ms"),
    _number("inbox_seq", 0),
    Column("turn", Integer),
    _number("created_ms", 0),
    _number("ended_ms"),
    _text("metadata", "{}"),
    Column("trace_parent", Text),
    Column("waiting_for", Text),
    Column("outcome", Text),
    _text("scopes", "[]"),
    Column("parent_run_id", Text),
    Column("parent_call_id", Text),
    _number("told_ms"),
    Column("made_by", Text),
    Column("forked_from", Text),
    _number("forked_seq"),
    _number("place"),
    Column("rolled_back_by", Text),
    Index(
        "ix_runs_forks",
        "forked_from",
        "id",
        sqlite_where=text("forked_from IS NOT NULL"),
        postgresql_where=text("forked_from IS NOT NULL"),
    ),
    Index(
        "ix_runs_place",
        "session_id",
        "place",
        sqlite_where=text("place IS NOT NULL"),
        postgresql_where=text("place IS NOT NULL"),
    ),
    Index(
        "ix_runs_children",
        "parent_run_id",
        "id",
        sqlite_where=text("parent_run_id IS NOT NULL"),
        postgresql_where=text("parent_run_id IS NOT NULL"),
    ),
    Index(
        "ix_runs_untold",
        "ended_ms",
        sqlite_where=text("parent_run_id IS NOT NULL AND told_ms IS NULL"),
        postgresql_where=text("parent_run_id IS NOT NULL AND told_ms IS NULL"),
    ),
    Index(
        "ix_runs_ready",
        text("lane DESC"),
        "run_at_ms",
        "id",
        sqlite_where=text("status = 'queued'"),
        postgresql_where=text("status = 'queued'"),
    ),
    Index(
        "ix_runs_owned",
        "owner",
        sqlite_where=text("status = 'running'"),
        postgresql_where=text("status = 'running'"),
    ),
    Index(
        "ix_runs_timers",
        "wake_at_ms",
        sqlite_where=text("wake_at_ms IS NOT NULL"),
        postgresql_where=text("wake_at_ms IS NOT NULL"),
    ),
    Index(
        "ix_runs_blocked",
        "session_id",
        "id",
        sqlite_where=text("status = 'blocked'"),
        postgresql_where=text("status = 'blocked'"),
    ),
    Index(
        "uq_runs_active",
        "session_id",
        unique=True,
        sqlite_where=text("status IN ('queued', 'running', 'waiting')"),
        postgresql_where=text("status IN ('queued', 'running', 'waiting')"),
    ),
    Index(
        "ix_runs_uncompleted",
        "tenant",
        "status",
        "id",
        sqlite_where=_IS_UNCOMPLETED,
        postgresql_where=_IS_UNCOMPLETED,
    ),
    Index("ix_runs_agent", "tenant", "agent", "id"),
    Index(
        "ix_runs_user",
        "tenant",
        "user_id",
        "id",
        sqlite_where=text("user_id IS NOT NULL"),
        postgresql_where=text("user_id IS NOT NULL"),
    ),
    Index(
        "ix_runs_maker",
        "tenant",
        "made_by",
        "id",
        sqlite_where=text("made_by IS NOT NULL"),
        postgresql_where=text("made_by IS NOT NULL"),
    ),
    Index(None, "tenant", "id"),
    Index(None, "session_id", "turn"),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01},
)

events = Table(
    "events",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    _text("tenant"),
    _number("epoch", 0),
    _text("append_id"),
    _text("type"),
    _number("time_ms", 0),
    _text("data"),
    sqlite_with_rowid=False,
    postgresql_partition_by="RANGE (run_id)",
)

inbox = Table(
    "inbox",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    _text("tenant"),
    _text("kind"),
    _text("data"),
    _number("created_ms", 0),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("run_id"),
    _text("session_id"),
    _text("call_id"),
    Column("filename", Text),
    _text("mime_type"),
    _number("size"),
    Column("sha256", Text),
    Column("url", Text),
    Column("role", Text),
    Column("retention", Text),
    _number("created_ms", 0),
    Index(None, "run_id", "id"),
)

artifact_contents = Table(
    "artifact_contents",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("session_id", Text, primary_key=True),
    Column("sha256", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("run_id"),
    _text("session_id"),
    _text("agent"),
    Column("user_id", Text),
    _text("call_id"),
    _text("tool"),
    _text("arguments"),
    _text("digest"),
    _text("preview"),
    _text("reason"),
    _text("status", "pending"),
    Column("required", Integer, nullable=False, server_default="1"),
    Column("decided_by", Text),
    Column("decision", Text),
    Column("comment", Text),
    _number("decided_ms"),
    _number("created_ms", 0),
    _number("expires_ms", 0),
    _text("kind", "call"),
    _text("terms", "{}"),
    Column("requester", Text),
    Column("original", Text),
    _number("remind_ms"),
    Column("escalated", SmallInteger, nullable=False, server_default="0"),
    Column("version", Integer, nullable=False, server_default="1"),
    _number("changed_ms", 0),
    _text("change", "requested"),
    Column("made_by", Text),
    Index(None, "tenant", "status", "id"),
    Index(None, "tenant", "changed_ms"),
    Index(None, "run_id"),
    Index("ix_approvals_remind", "remind_ms", sqlite_where=_REMINDS, postgresql_where=_REMINDS),
    Index(
        "ix_approvals_expiry",
        "expires_ms",
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
)

votes = Table(
    "votes",
    metadata,
    Column("approval_id", Text, primary_key=True),
    Column("voter", Text, primary_key=True),
    _text("tenant"),
    _text("decision"),
    _text("digest"),
    Column("comment", Text),
    _number("created_ms", 0),
    _text("actor", ""),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _text("request_hash"),
    _text("resource_id"),
    _number("created_ms", 0),
    Index(None, "created_ms"),
)

spans = Table(
    "spans",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    _text("tenant"),
    _text("trace_id"),
    _text("span_id"),
    Column("parent_id", Text),
    _text("kind"),
    _text("name"),
    _number("start_ms", 0),
    _number("end_ms", 0),
    _text("status"),
    Column("error", Text),
    Column("model", Text),
    Column("tool", Text),
    _text("attributes", "{}"),
    Index(
        "ix_spans_tool", "tenant", "tool", "run_id", sqlite_where=_HAS_TOOL,
        postgresql_where=_HAS_TOOL,
    ),
    Index(
        "ix_spans_tool_time", "tenant", "start_ms", sqlite_where=_HAS_TOOL,
        postgresql_where=_HAS_TOOL,
    ),
    Index(
        "ix_spans_model", "tenant", "model", "run_id", sqlite_where=_HAS_MODEL,
        postgresql_where=_HAS_MODEL,
    ),
)  # fmt: skip

usage = Table(
    "usage",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    _text("tenant"),
    _text("session_id"),
    _text("agent"),
    _text("model"),
    Column("user_id", Text),
    _text("metadata", "{}"),
    _number("time_ms", 0),
    _number("input_tokens", 0),
    _number("output_tokens", 0),
    _number("cache_read_tokens", 0),
    _number("cache_write_tokens", 0),
    _number("reasoning_tokens", 0),
    _number("model_calls", 0),
    _number("cost_nanos", 0),
    _number("unpriced_calls", 0),
    _number("saved_input_tokens", 0),
    _number("saved_output_tokens", 0),
    _number("saved_cost_nanos", 0),
    _number("unknown_calls", 0),
    Index(None, "tenant", "time_ms"),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("name"),
    _text("hash"),
    _text("hint"),
    _text("scopes"),
    Column("subject", Text),
    _number("created_ms", 0),
    _number("expires_ms"),
    _number("revoked_ms"),
    Index(None, "hash", unique=True),
    Index(None, "tenant", "id"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("actor"),
    _text("action"),
    _text("target"),
    _text("details", "{}"),
    _number("time_ms", 0),
    Index(None, "tenant", "id"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    _text("ciphertext"),
    _number("created_ms", 0),
)

tool_sources = Table(
    "tool_sources",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("name"),
    _text("kind"),
    _text("spec"),
    _text("listing", "[]"),
    _text("tools", "[]"),
    _number("created_ms", 0),
    Index(None, "tenant", "id"),
    Index(None, "tenant", "name", unique=True),
)

tool_permissions = Table(
    "tool_permissions",
    metadata,
    Column("tenant", Text, primary_key=True),
    _text("permissions"),
    Column("version", Integer, nullable=False),
    _number("updated_ms", 0),
)

policies = Table(
    "policies",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    _text("policy"),
    Column("version", Integer, nullable=False),
    _number("updated_ms", 0),
)

grants = Table(
    "grants",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("session_id"),
    _text("tool"),
    Column("digest", Text),
    _text("approval_id"),
    _text("granted_by"),
    _number("created_ms", 0),
    _number("expires_ms", 0),
    Column("revoked_by", Text),
    _number("revoked_ms"),
    Index(None, "tenant", "id"),
    Index(None, "session_id"),
)

rate_counters = Table(
    "rate_counters",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    _number("ticks", 0),
    _number("until_ms", 0),
    Index(None, "until_ms"),
)

rate_marks = Table(
    "rate_marks",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("call_id", Text, primary_key=True),
    _number("tick", 0),
    _number("until_ms", 0),
    Index(None, "tenant", "key", "tick"),
    Index(None, "until_ms"),
)

budgets = Table(
    "budgets",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("scope"),
    Column("scope_value", Text),
    _text("period"),
    _number("tokens"),
    _number("cost_nanos"),
    _number("model_calls"),
    _number("tool_calls"),
    _number("active_ms"),
    Column("warn_at", Double, nullable=False, server_default="0.8"),
    _text("metadata", "{}"),
    Column("version", Integer, nullable=False, server_default="1"),
    _number("created_ms", 0),
    _number("updated_ms", 0),
    Index(None, "tenant", "id"),
)

budget_counters = Table(
    "budget_counters",
    metadata,
    Column("budget_id", Text, primary_key=True),
    Column("scope_value", Text, primary_key=True),
    Column("period_start_ms", BigInteger, primary_key=True),
    _text("id"),
    _text("tenant"),
    _number("resets_ms"),
    _number("spent_tokens", 0),
    _number("spent_cost_nanos", 0),
    _number("spent_model_calls", 0),
    _number("spent_tool_calls", 0),
    _number("spent_active_ms", 0),
    _number("reserved_tokens", 0),
    _number("reserved_cost_nanos", 0),
    _number("reserved_model_calls", 0),
    _number("reserved_tool_calls", 0),
    _number("reserved_active_ms", 0),
    Column("warned", Integer, nullable=False, server_default="0"),
    Index(None, "budget_id", "period_start_ms", "id"),
    Index(None, "resets_ms"),
    postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
)

budget_reservations = Table(
    "budget_reservations",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("budget_id", Text, primary_key=True),
    _text("scope_value"),
    _number("period_start_ms", 0),
    _number("tokens", 0),
    _number("cost_nanos", 0),
    _number("model_calls", 0),
    _number("tool_calls", 0),
    _number("active_ms", 0),
    postgresql_with={"autovacuum_vacuum_scale_factor": 0.01},
)

batches = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("agent_id"),
    _text("agent"),
    Column("agent_version", Integer, nullable=False),
    Column("user_id", Text),
    _text("status"),
    Column("concurrency", Integer, nullable=False),
    Column("lane", SmallInteger, nullable=False, server_default="0"),
    _number("deadline_after_ms"),
    _text("metadata", "{}"),
    _text("scopes", "[]"),
    Column("trace_parent", Text),
    _text("queued_event"),
    Column("total", Integer, nullable=False),
    Column("started", Integer, nullable=False, server_default="0"),
    _text("counts", "{}"),
    _text("usage", "{}"),
    _number("seq", 1),
    _number("created_ms", 0),
    _number("changed_ms", 0),
    _number("ended_ms"),
    Column("cancelled_by", Text),
    Column("cancel_reason", Text),
    Column("made_by", Text),
    Index(None, "tenant", "id"),
    Index("ix_batches_open", "status", "tenant", sqlite_where=_IS_OPEN, postgresql_where=_IS_OPEN),
    postgresql_with={"fillfactor": 50},
)

batch_items = Table(
    "batch_items",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("place", BigInteger, primary_key=True),
    _text("tenant"),
    Column("custom_id", Text),
    Column("input", Text),
    Column("metadata", Text),
    _text("status", "pending"),
    Column("run_id", Text),
    Index(
        "ix_batch_items_started",
        "batch_id",
        "place",
        sqlite_where=text("status = 'started'"),
        postgresql_where=text("status = 'started'"),
    ),
    sqlite_with_rowid=False,
)

# `run` is what was asked for, `queued_event` what the first events of its runs have in common.
schedules = Table(
    "schedules",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    Column("name", Text),
    _text("cron"),
    _text("timezone"),
    _text("overlap"),
    _number("late_max_ms"),
    Column("enabled", SmallInteger, nullable=False, server_default="1"),
    _text("agent"),
    Column("user_id", Text),
    _text("run"),
    _text("queued_event"),
    _text("metadata", "{}"),
    _text("scopes", "[]"),
    _text("made_by"),
    _number("next_ms"),
    Column("last", Text),
    Column("last_run_id", Text),
    Column("version", Integer, nullable=False, server_default="1"),
    _number("created_ms", 0),
    _number("updated_ms", 0),
    Index(None, "tenant", "id"),
    Index(
        "ix_schedules_next",
        "next_ms",
        sqlite_where=text("next_ms IS NOT NULL"),
        postgresql_where=text("next_ms IS NOT NULL"),
    ),
    postgresql_with={"fillfactor": 50},
)

conversations = Table(
    "conversations",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("conversation", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    _text("session_id"),
    Column("agent", Text),
    Column("shown_id", Text),
    Column("shown_digest", Text),
    _number("created_ms", 0),
    _number("updated_ms", 0),
    Index(None, "session_id"),
)

pending_actions = Table(
    "pending_actions",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("channel"),
    _text("conversation"),
    _text("user_id"),
    _text("run_id"),
    _text("call_id"),
    _text("kind"),
    _text("preview"),
    _text("args"),
    _text("digest"),
    _text("user_prompt"),
    _text("status", "pending"),
    Column("answered_by", Text),
    Column("parser", Text),
    Column("executed_by", Text),
    _number("requested_ms", 0),
    _number("expires_ms", 0),
    _number("answered_ms"),
    Index(
        "uq_pending_actions_scope",
        "tenant",
        "channel",
        "conversation",
        "user_id",
        unique=True,
        sqlite_where=text("status = 'pending'"),
        postgresql_where=text("status = 'pending'"),
    ),
    Index(None, "run_id", "call_id", unique=True),
)

channel_messages = Table(
    "channel_messages",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("conversation", Text, primary_key=True),
    Column("message_id", Text, primary_key=True),
    _text("user_id"),
    _text("said_hash"),
    _text("outcome", ""),
    Column("session_id", Text),
    Column("run_id", Text),
    _number("after_seq", 0),
    Column("pending_id", Text),
    _number("created_ms", 0),
    Index(None, "created_ms"),
    Index(None, "run_id"),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("url"),
    _text("events"),
    Column("description", Text),
    Column("enabled", SmallInteger, nullable=False, server_default="1"),
    Column("disabled_reason", Text),
    Column("approval_links", SmallInteger, nullable=False, server_default="1"),
    Column("approver", Text),
    _text("metadata", "{}"),
    _text("secret"),
    Column("secret_before", Text),
    _number("secret_before_until_ms"),
    Column("version", Integer, nullable=False, server_default="1"),
    _number("created_ms", 0),
    _number("updated_ms", 0),
    Index(None, "tenant", "id"),
)

# `webhooks` are the ids of those that were there: machines' clocks do not say who came first.
outbox = Table(
    "outbox",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("type"),
    _text("run_id"),
    _number("seq"),
    Column("data", Text),
    _number("created_ms", 0),
    Column("webhooks", Text),
    Index(None, "run_id"),
    postgresql_with={"autovacuum_vacuum_scale_factor": 0.01},
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("webhook_id"),
    _text("type"),
    Column("run_id", Text),
    _number("seq"),
    Column("data", Text),
    _text("status", "pending"),
    _number("claims", 0),
    _number("settled", 0),
    _number("failures", 0),
    _text("attempts", "[]"),
    _number("due_ms", 0),
    _number("event_ms", 0),
    _number("created_ms", 0),
    _number("ended_ms"),
    Index(None, "webhook_id", "id"),
    Index(
        "ix_webhook_deliveries_due",
        "due_ms",
        sqlite_where=_DUE,
        postgresql_where=_DUE,
    ),
    Index(
        "ix_webhook_deliveries_waiting",
        "webhook_id",
        "due_ms",
        sqlite_where=_DUE,
        postgresql_where=_DUE,
    ),
    Index(None, "run_id"),
    Index(None, "created_ms"),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01},
)

# What was trimmed of a session: a stretch of it, and what is told of that stretch from then on.
summaries = Table(
    "summaries",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("session_id"),
    Column("from_turn", BigInteger, nullable=False),
    Column("from_index", BigInteger, nullable=False),
    Column("through_turn", BigInteger, nullable=False),
    Column("through_index", BigInteger, nullable=False),
    _text("content", ""),
    Column("model", Text),
    _text("run_id"),
    _number("created_ms", 0),
    _number("reverted_ms"),
    Index(None, "session_id", "through_turn"),
    Index(None, "run_id"),
)

# Messages that are never trimmed.
pins = Table(
    "pins",
    metadata,
    _text("tenant"),
    Column("session_id", Text, primary_key=True),
    Column("turn", BigInteger, primary_key=True),
    Column("message_index", BigInteger, primary_key=True),
    _number("created_ms", 0),
)

# What was learned of conversations. `words` is what it is found by, `number` its row in SQLite's
# index of words.
memories = Table(
    "memories",
    metadata,
    Column(
        "number",
        BigInteger().with_variant(Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    _text("id"),
    _text("tenant"),
    _text("scope"),
    _text("owner"),
    _text("kind"),
    _text("key"),
    _text("origin"),
    _text("subject", ""),
    _text("predicate", ""),
    _text("object", ""),
    _text("content", ""),
    _text("words", ""),
    _text("attributes", "{}"),
    Column("user_id", Text),
    Column("run_id", Text),
    Column("session_id", Text),
    Column("place", Text),
    Column("embedding", Text),
    Column("embedded_by", Text),
    Column("mentions", Integer, nullable=False, server_default="1"),
    Column("version", Integer, nullable=False, server_default="1"),
    _number("created_ms", 0),
    _number("updated_ms", 0),
    _number("seen_ms", 0),
    Index(None, "tenant", "id"),
    Index(None, "id", unique=True),
    Index("uq_memories_key", "tenant", "scope", "owner", "kind", "key", unique=True),
    Index("ix_memories_seen", "tenant", "scope", "owner", "kind", "seen_ms"),
    Index(None, "tenant", "updated_ms"),
    Index(
        "ix_memories_user",
        "tenant",
        "user_id",
        "id",
        sqlite_where=text("user_id IS NOT NULL"),
        postgresql_where=text("user_id IS NOT NULL"),
    ),
    Index(
        "ix_memories_run",
        "run_id",
        sqlite_where=text("run_id IS NOT NULL"),
        postgresql_where=text("run_id IS NOT NULL"),
    ),
    Index(
        "ix_memories_bare",
        "number",
        sqlite_where=text("embedding IS NULL"),
        postgresql_where=text("embedding IS NULL"),
    ),
)

# Whose a memory is stands in the index as one word, so that others' words are not looked through.
_OWNED = "lower(hex({0}.tenant || char(10) || {0}.scope || char(10) || {0}.owner))"
_ADD_WORDS = (
    "INSERT INTO memory_words(rowid, words, owned)"  # noqa: S608 - our own text
    f" VALUES (new.number, new.words, {_OWNED.format('new')});"
)
_TAKE_WORDS = (
    "INSERT INTO memory_words(memory_words, rowid, words, owned)\n"
    f"VALUES ('delete', old.number, old.words, {_OWNED.format('old')});"
)
_WORDS_OF_SQLITE = (
    """CREATE VIRTUAL TABLE memory_words USING fts5(words, owned, content='',
tokenize='unicode61 remove_diacritics 0')""",
    f"CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN\n{_ADD_WORDS} END",
    f"CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN\n{_TAKE_WORDS} END",
    f"""CREATE TRIGGER memories_reworded AFTER UPDATE OF words ON memories
WHEN old.words <> new.words BEGIN
{_TAKE_WORDS}
{_ADD_WORDS} END""",
)
_WORDS_OF_POSTGRES = (
    "CREATE INDEX ix_memories_words ON memories USING gin (to_tsvector('simple', words))",
)


def _beside(table: Table, moment: str, statements: tuple[str, ...], dialect: str) -> None:
    """Have one database do what the others have no word for."""
    for statement in statements:
        made = DDL(statement)  # type: ignore[no-untyped-call]  # untyped upstream
        event.listen(table, moment, made.execute_if(dialect=dialect))


_beside(memories, "after_create", _WORDS_OF_SQLITE, "sqlite")
_beside(memories, "before_drop", ("DROP TABLE IF EXISTS memory_words",), "sqlite")
_beside(memories, "after_create", _WORDS_OF_POSTGRES, "postgresql")

# Runs that are over, and from which something is to be learned.
recollections = Table(
    "recollections",
    metadata,
    Column("run_id", Text, primary_key=True),
    _text("tenant"),
    _number("created_ms", 0),
    Index(None, "created_ms"),
)

# How long a tenant has things kept.
retention = Table(
    "retention",
    metadata,
    Column("tenant", Text, primary_key=True),
    _text("rules"),
    Column("version", Integer, nullable=False),
    _number("updated_ms", 0),
)

# Up to and with which run all is gone of a resource that is to go.
retention_marks = Table(
    "retention_marks",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("resource", Text, primary_key=True),
    _text("through"),
)

# Users whose data is being erased; who they were is forgotten with the rest. `owner` is how caches
# know them, which nobody can read.
erasures = Table(
    "erasures",
    metadata,
    Column("id", Text, primary_key=True),
    _text("tenant"),
    _text("owner"),
    _text("asked_by"),
    Column("user_id", Text),
    _text("stage", "messages"),
    _text("place", ""),
    _text("counts", "{}"),
    _number("until_ms", 0),
    _number("created_ms", 0),
    _number("ended_ms"),
    Index(None, "tenant", "id"),
    Index(
        "uq_erasures_user",
        "tenant",
        "user_id",
        unique=True,
        sqlite_where=text("user_id IS NOT NULL"),
        postgresql_where=text("user_id IS NOT NULL"),
    ),
    Index(
        "ix_erasures_open",
        "created_ms",
        sqlite_where=text("ended_ms IS NULL"),
        postgresql_where=text("ended_ms IS NULL"),
    ),
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
    _number("due_ms", 0),
    Index(None, "due_ms"),
    Index(
        "ix_leftovers_erasure",
        "erasure_id",
        sqlite_where=text("erasure_id IS NOT NULL"),
        postgresql_where=text("erasure_id IS NOT NULL"),
    ),
)
