"""Tools that tenants declare, and who may call which."""

from sqlalchemy import Column, Index, Integer, Table, Text

from milepost.store.schema.columns import metadata, number, string

tool_sources = Table(
    "tool_sources",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("name"),
    string("kind"),
    string("spec"),
    string("listing", "[]"),
    string("tools", "[]"),
    number("created_ms", 0),
    Index(None, "tenant", "id"),
    Index(None, "tenant", "name", unique=True),
)

tool_permissions = Table(
    "tool_permissions",
    metadata,
    Column("tenant", Text, primary_key=True),
    string("permissions"),
    Column("version", Integer, nullable=False),
    number("updated_ms", 0),
)

policies = Table(
    "policies",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    string("policy"),
    Column("version", Integer, nullable=False),
    number("updated_ms", 0),
)

grants = Table(
    "grants",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("session_id"),
    string("tool"),
    Column("digest", Text),
    string("approval_id"),
    string("granted_by"),
    number("created_ms", 0),
    number("expires_ms", 0),
    Column("revoked_by", Text),
    number("revoked_ms"),
    Index(None, "tenant", "id"),
    Index(None, "session_id"),
)
