"""Let a run start others, and know which of them has told it that it ended."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_UNTOLD = "parent_run_id IS NOT NULL AND told_ms IS NULL"
_CHILD = "parent_run_id IS NOT NULL"


def upgrade() -> None:
    op.add_column("runs", sa.Column("parent_run_id", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("parent_call_id", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("told_ms", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_runs_children",
        "runs",
        ["parent_run_id", "id"],
        sqlite_where=sa.text(_CHILD),
        postgresql_where=sa.text(_CHILD),
    )
    op.create_index(
        "ix_runs_untold",
        "runs",
        ["ended_ms"],
        sqlite_where=sa.text(_UNTOLD),
        postgresql_where=sa.text(_UNTOLD),
    )


def downgrade() -> None:
    op.drop_index("ix_runs_untold", "runs")
    op.drop_index("ix_runs_children", "runs")
    op.drop_column("runs", "told_ms")
    op.drop_column("runs", "parent_call_id")
    op.drop_column("runs", "parent_run_id")
