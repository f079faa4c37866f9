"""Runs that are made again and again."""

from sqlalchemy import Column, Index, Integer, SmallInteger, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

# `run` is what was asked for, `queued_event` what the first events of its runs have in common.
schedules = Table(
    "schedules",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    Column("name", Text),
    string("cron"),
    string("timezone"),
    string("overlap"),
    number("late_max_ms"),
    Column("enabled", SmallInteger, nullable=False, server_default="1"),
    string("agent"),
    Column("user_id", Text),
    string("run"),
    string("queued_event"),
    string("metadata", "{}"),
    string("scopes", "[]"),
    string("made_by"),
    number("next_ms"),
    Column("last", Text),
    Column("last_run_id", Text),
    Column("version", Integer, nullable=False, server_default="1"),
    number("created_ms", 0),
    number("updated_ms", 0),
    Index(None, "tenant", "id"),
    partial_index("ix_schedules_next", "next_ms", where="next_ms IS NOT NULL"),
    postgresql_with={"fillfactor": 50},
)
