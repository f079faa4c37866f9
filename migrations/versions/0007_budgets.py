"""Keep budgets, what is spent of them, and what is reserved for calls under way."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

MEASURES = ("tokens", "cost_nanos", "model_calls", "tool_calls", "active_ms")


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("scope_value", sa.Text()),
        sa.Column("period", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger()) for name in MEASURES),
        sa.Column("warn_at", sa.Double(), server_default="0.8", nullable=False),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        _count("created_ms"),
        _count("updated_ms"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )
    op.create_index("ix_budgets_tenant_id", "budgets", ["tenant", "id"])
    op.create_table(
        "budget_counters",
        sa.Column("budget_id", sa.Text(), nullable=False),
        sa.Column("scope_value", sa.Text(), nullable=False),
        sa.Column("period_start_ms", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("resets_ms", sa.BigInteger()),
        *(_count(f"spent_{name}") for name in MEASURES),
        *(_count(f"reserved_{name}") for name in MEASURES),
        sa.Column("warned", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "budget_id", "scope_value", "period_start_ms", name=op.f("pk_budget_counters")
        ),
        postgresql_with={"fillfactor": 50, "autovacuum_vacuum_scale_factor": 0.01},
    )
    op.create_index(
        "ix_budget_counters_budget_id_period_start_ms_id",
        "budget_counters",
        ["budget_id", "period_start_ms", "id"],
    )
    op.create_index("ix_budget_counters_resets_ms", "budget_counters", ["resets_ms"])
    op.create_table(
        "budget_reservations",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("budget_id", sa.Text(), nullable=False),
        sa.Column("scope_value", sa.Text(), nullable=False),
        _count("period_start_ms"),
        *(_count(name) for name in MEASURES),
        sa.PrimaryKeyConstraint(
            "tenant",
            "run_id",
            "epoch",
            "subject",
            "budget_id",
            name=op.f("pk_budget_reservations"),
        ),
        postgresql_with={"autovacuum_vacuum_scale_factor": 0.01},
    )


def downgrade() -> None:
    op.drop_table("budget_reservations")
    op.drop_table("budget_counters")
    op.drop_table("budgets")
