"""Keep chats: which session each goes on in, what waits for a yes, and which messages came in."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_SCOPE = ("tenant", "channel", "conversation", "user_id")
_PENDING = sa.text("status = 'pending'")


def upgrade() -> None:
    op.create_table(
        "conversations",
        *_texts(*_SCOPE, "session_id"),
        *_texts("agent", "shown_id", "shown_digest", nullable=True),
        *_numbers("created_ms", "updated_ms"),
        sa.PrimaryKeyConstraint(*_SCOPE, name="pk_conversations"),
    )
    op.create_index("ix_conversations_session_id", "conversations", ["session_id"])
    op.create_table(
        "pending_actions",
        *_texts("id", *_SCOPE, "run_id", "call_id", "kind", "preview", "args", "digest"),
        *_texts("user_prompt"),
        sa.Column("status", sa.Text, nullable=False, server_default="pending"),
        *_texts("answered_by", "parser", "executed_by", nullable=True),
        *_numbers("requested_ms", "expires_ms"),
        sa.Column("answered_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_pending_actions"),
    )
    op.create_index(
        "uq_pending_actions_scope",
        "pending_actions",
        [*_SCOPE],
        unique=True,
        sqlite_where=_PENDING,
        postgresql_where=_PENDING,
    )
    op.create_index(
        "ix_pending_actions_run_id_call_id", "pending_actions", ["run_id", "call_id"], unique=True
    )
    op.create_table(
        "channel_messages",
        *_texts("tenant", "channel", "conversation", "message_id", "user_id", "said_hash"),
        sa.Column("outcome", sa.Text, nullable=False, server_default=""),
        *_texts("session_id", "run_id", nullable=True),
        *_numbers("after_seq"),
        *_texts("pending_id", nullable=True),
        *_numbers("created_ms"),
        sa.PrimaryKeyConstraint(
            "tenant", "channel", "conversation", "message_id", name="pk_channel_messages"
        ),
    )
    op.create_index("ix_channel_messages_created_ms", "channel_messages", ["created_ms"])
    op.create_index("ix_channel_messages_run_id", "channel_messages", ["run_id"])


def downgrade() -> None:
    for table in ("channel_messages", "pending_actions", "conversations"):
        op.drop_table(table)


def _texts(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in names]
