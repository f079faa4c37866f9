"""Find runs that stopped short among all those that completed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_STOPPED = sa.text("status NOT IN ('scheduled', 'blocked', 'queued', 'running', 'completed')")


def upgrade() -> None:
    op.create_index(
        "ix_runs_stopped",
        "runs",
        ["tenant", "status", "id"],
        sqlite_where=_STOPPED,
        postgresql_where=_STOPPED,
    )


def downgrade() -> None:
    op.drop_index("ix_runs_stopped", "runs", sqlite_where=_STOPPED, postgresql_where=_STOPPED)
