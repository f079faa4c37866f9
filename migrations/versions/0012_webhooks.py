"""Keep webhooks, what is to be told to them, and each delivery of it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_DUE = sa.text("status = 'pending'")


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("enabled", sa.SmallInteger(), server_default="1", nullable=False),
        sa.Column("disabled_reason", sa.Text()),
        sa.Column("approval_links", sa.SmallInteger(), server_default="1", nullable=False),
        sa.Column("approver", sa.Text()),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("secret_before", sa.Text()),
        sa.Column("secret_before_until_ms", sa.BigInteger()),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index("ix_webhooks_tenant_id", "webhooks", ["tenant", "id"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger()),
        sa.Column("data", sa.Text()),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        postgresql_with={"autovacuum_vacuum_scale_factor": 0.01},
    )
    op.create_index("ix_outbox_run_id", "outbox", ["run_id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("webhook_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("seq", sa.BigInteger()),
        sa.Column("data", sa.Text()),
        sa.Column("status", sa.Text(), server_default="pending", nullable=False),
        sa.Column("claims", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("settled", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failures", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("attempts", sa.Text(), server_default="[]", nullable=False),
        sa.Column("due_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("event_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ended_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
        postgresql_with={"fillfactor": 70, "autovacuum_vacuum_scale_factor": 0.01},
    )
    op.create_index(
        "ix_webhook_deliveries_webhook_id_id", "webhook_deliveries", ["webhook_id", "id"]
    )
    op.create_index(
        "ix_webhook_deliveries_due",
        "webhook_deliveries",
        ["due_ms"],
        sqlite_where=_DUE,
        postgresql_where=_DUE,
    )
    op.create_index(
        "ix_webhook_deliveries_waiting",
        "webhook_deliveries",
        ["webhook_id", "due_ms"],
        sqlite_where=_DUE,
        postgresql_where=_DUE,
    )
    op.create_index("ix_webhook_deliveries_run_id", "webhook_deliveries", ["run_id"])
    op.create_index("ix_webhook_deliveries_created_ms", "webhook_deliveries", ["created_ms"])


def downgrade() -> None:
    for table in ("webhook_deliveries", "outbox", "webhooks"):
        op.drop_table(table)
