"""Keep batches and their items."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_IS_OPEN = sa.text("status IN ('running', 'cancelling')")
_IS_STARTED = sa.text("status = 'started'")


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("lane", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("deadline_after_ms", sa.BigInteger()),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("scopes", sa.Text(), server_default="[]", nullable=False),
        sa.Column("trace_parent", sa.Text()),
        sa.Column("queued_event", sa.Text(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("started", sa.Integer(), server_default="0", nullable=False),
        sa.Column("counts", sa.Text(), server_default="{}", nullable=False),
        sa.Column("usage", sa.Text(), server_default="{}", nullable=False),
        sa.Column("seq", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ended_ms", sa.BigInteger()),
        sa.Column("cancelled_by", sa.Text()),
        sa.Column("cancel_reason", sa.Text()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        postgresql_with={"fillfactor": 50},
    )
    op.create_index("ix_batches_tenant_id", "batches", ["tenant", "id"])
    op.create_index(
        "ix_batches_open",
        "batches",
        ["status", "tenant"],
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    )
    op.create_table(
        "batch_items",
        sa.Column("batch_id", sa.Text(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("custom_id", sa.Text()),
        sa.Column("input", sa.Text()),
        sa.Column("metadata", sa.Text()),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.PrimaryKeyConstraint("batch_id", "place", name=op.f("pk_batch_items")),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_batch_items_started",
        "batch_items",
        ["batch_id", "place"],
        sqlite_where=_IS_STARTED,
        postgresql_where=_IS_STARTED,
    )


def downgrade() -> None:
    op.drop_table("batch_items")
    op.drop_table("batches")
