"""Spans of runs."""

from sqlalchemy import BigInteger, Column, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

_HAS_TOOL = "tool IS NOT NULL"

_HAS_MODEL = "model IS NOT NULL"

spans = Table(
    "spans",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    string("tenant"),
    string("trace_id"),
    string("span_id"),
    Column("parent_id", Text),
    string("kind"),
    string("name"),
    number("start_ms", 0),
    number("end_ms", 0),
    string("status"),
    Column("error", Text),
    Column("model", Text),
    Column("tool", Text),
    string("attributes", "{}"),
    partial_index("ix_spans_tool", "tenant", "tool", "run_id", where=_HAS_TOOL),
    partial_index("ix_spans_tool_time", "tenant", "start_ms", where=_HAS_TOOL),
    partial_index("ix_spans_model", "tenant", "model", "run_id", where=_HAS_MODEL),
)  # fmt: skip
