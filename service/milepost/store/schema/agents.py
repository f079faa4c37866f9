"""Agents and their versions."""

from sqlalchemy import Column, Integer, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

agents = Table(
    "agents",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("name"),
    Column("version", Integer, nullable=False),
    number("created_ms", 0),
    number("deleted_ms"),
    partial_index("uq_agents_name", "tenant", "name", where="deleted_ms IS NULL", unique=True),
)

agent_versions = Table(
    "agent_versions",
    metadata,
    Column("agent_id", Text, primary_key=True),
    Column("version", Integer, primary_key=True),
    string("tenant"),
    string("definition"),
    number("created_ms", 0),
)
