"""Who may ask, what they did, and what they keep secret."""

from sqlalchemy import Column, Index, Table, Text

from milepost.store.schema.columns import metadata, number, string

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("name"),
    string("hash"),
    string("hint"),
    string("scopes"),
    Column("subject", Text),
    number("created_ms", 0),
    number("expires_ms"),
    number("revoked_ms"),
    Index(None, "hash", unique=True),
    Index(None, "tenant", "id"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("actor"),
    string("action"),
    string("target"),
    string("details", "{}"),
    number("time_ms", 0),
    Index(None, "tenant", "id"),
)

secrets = Table(
    "secrets",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    string("ciphertext"),
    number("created_ms", 0),
)
