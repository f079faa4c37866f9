"""What tools leave behind."""

from sqlalchemy import Column, Index, LargeBinary, Table, Text

from milepost.store.schema.columns import metadata, number, string

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("run_id"),
    string("session_id"),
    string("call_id"),
    Column("filename", Text),
    string("mime_type"),
    number("size"),
    Column("sha256", Text),
    Column("url", Text),
    Column("role", Text),
    Column("retention", Text),
    number("created_ms", 0),
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
