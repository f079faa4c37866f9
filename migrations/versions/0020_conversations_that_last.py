"""Keep the order in which runs came to a session, what was trimmed of it, and how long it lasts."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    _number("sessions", "arrivals", "0")
    for name in ("archived_ms", "ttl_ms", "expires_ms", "keep_ms", "forked_turn", "forked_index"):
        _number("sessions", name)
    op.add_column("sessions", sa.Column("forked_from", sa.Text()))
    _number("runs", "place")
    op.add_column("runs", sa.Column("rolled_back_by", sa.Text()))
    op.create_table(
        "summaries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("from_turn", sa.BigInteger(), nullable=False),
        sa.Column("from_index", sa.BigInteger(), nullable=False),
        sa.Column("through_turn", sa.BigInteger(), nullable=False),
        sa.Column("through_index", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), server_default="", nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reverted_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_summaries")),
    )
    op.create_index(
        op.f("ix_summaries_session_id_through_turn"), "summaries", ["session_id", "through_turn"]
    )
    op.create_index(op.f("ix_summaries_run_id"), "summaries", ["run_id"])
    op.create_table(
        "pins",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("message_index", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("session_id", "turn", "message_index", name=op.f("pk_pins")),
    )


def downgrade() -> None:
    op.drop_table("pins")
    op.drop_table("summaries")
    op.drop_column("runs", "rolled_back_by")
    op.drop_column("runs", "place")
    for name in (
        "forked_from", "forked_index", "forked_turn", "keep_ms", "expires_ms", "ttl_ms",
        "archived_ms", "arrivals",
    ):  # fmt: skip
        op.drop_column("sessions", name)


def _number(table: str, name: str, default: str | None = None) -> None:
    op.add_column(
        table, sa.Column(name, sa.BigInteger(), nullable=default is None, server_default=default)
    )
