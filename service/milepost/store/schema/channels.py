"""Conversations in chats, and what waits there for an answer."""

from sqlalchemy import Column, Index, Table, Text

from milepost.store.schema.columns import metadata, number, partial_index, string

conversations = Table(
    "conversations",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("conversation", Text, primary_key=True),
    Column("user_id", Text, primary_key=True),
    string("session_id"),
    Column("agent", Text),
    Column("shown_id", Text),
    Column("shown_digest", Text),
    number("created_ms", 0),
    number("updated_ms", 0),
    Index(None, "session_id"),
)

pending_actions = Table(
    "pending_actions",
    metadata,
    Column("id", Text, primary_key=True),
    string("tenant"),
    string("channel"),
    string("conversation"),
    string("user_id"),
    string("run_id"),
    string("call_id"),
    string("kind"),
    string("preview"),
    string("args"),
    string("digest"),
    string("user_prompt"),
    string("status", "pending"),
    Column("answered_by", Text),
    Column("parser", Text),
    Column("executed_by", Text),
    number("requested_ms", 0),
    number("expires_ms", 0),
    number("answered_ms"),
    partial_index(
        "uq_pending_actions_scope",
        "tenant",
        "channel",
        "conversation",
        "user_id",
        where="status = 'pending'",
        unique=True,
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
    string("user_id"),
    string("said_hash"),
    string("outcome", ""),
    Column("session_id", Text),
    Column("run_id", Text),
    number("after_seq", 0),
    Column("pending_id", Text),
    number("created_ms", 0),
    Index(None, "created_ms"),
    Index(None, "run_id"),
)
