"""Who is told of what, and how that went."""

from sqlalchemy import Column, Index, Integer, SmallInteger, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

_DUE = "status = 'pending'"

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("url"),
    string("events"),
    Column("description", Text),
    Column("enabled", SmallInteger, nullable=False, server_default="1"),
    Column("disabled_reason", Text),
    Column("approval_links", SmallInteger, nullable=False, server_default="1"),
    Column("approver", Text),
    string("metadata", "{}"),
    string("secret"),
    Column("secret_before", Text),
    number("secret_before_until_ms"),
    Column("version", Integer, nullable=False, server_default="1"),
    number("created_ms", 0),
    number("updated_ms", 0),
    Index(None, "tenant", "id"),
)

# `webhooks` are the ids of those that were there: machines' clocks do not say who came first.
outbox = Table(
    "outbox",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("type"),
    string("run_id"),
    number("seq"),
    Column("data", Text),
    number("created_ms", 0),
    Column("webhooks", Text),
    Index(None, "run_id"),
    postgresql_with={"autovacuum_vacuum_scale_factor": 0.01},
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("webhook_id"),
    string("type"),
    Column("run_id", Text),
    number("seq"),
    Column("data", Text),
    string("status", "pending"),
    number("claims", 0),
    number("settled", 0),
    number("failures", 0),
    string("attempts", "[]"),
    number("due_ms", 0),
    number("event_ms", 0),
    number("created_ms", 0),
    number("ended_ms"),
    Index(None, "webhook_id", "id"),
    partial_index("ix_webhook_deliveries_due", "due_ms", where=_DUE),
    partial_index("ix_webhook_deliveries_waiting", "webhook_id", "due_ms", where=_DUE),
    Index(None, "run_id"),
    Index(None, "created_ms"),
    postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01},
)
