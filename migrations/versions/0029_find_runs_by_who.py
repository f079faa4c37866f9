"""Find runs by their agent, their user and who made them, and all that have not completed."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"

_INDEXES = {
    "ix_runs_agent": (["tenant", "agent", "id"], None),
    "ix_runs_user": (["tenant", "user_id", "id"], "user_id IS NOT NULL"),
    "ix_runs_maker": (["tenant", "made_by", "id"], "made_by IS NOT NULL"),
    "ix_runs_uncompleted": (["tenant", "status", "id"], "status <> 'completed'"),
}
_STOPPED = sa.text("status NOT IN ('scheduled', 'blocked', 'queued', 'running', 'completed')")


def upgrade() -> None:
    with op.get_context().autocommit_block():
        for name, (columns, where) in _INDEXES.items():
            condition = None if where is None else sa.text(where)
            op.create_index(
                name,
                "runs",
                columns,
                sqlite_where=condition,
                postgresql_where=condition,
                postgresql_concurrently=True,
                if_not_exists=True,
            )
        # The version before asks for less than the last of these holds, and Postgres takes it, too.
        op.drop_index("ix_runs_stopped", "runs", postgresql_concurrently=True, if_exists=True)


def downgrade() -> None:
    op.create_index(
        "ix_runs_stopped",
        "runs",
        ["tenant", "status", "id"],
        sqlite_where=_STOPPED,
        postgresql_where=_STOPPED,
    )
    for name in _INDEXES:
        op.drop_index(name, "runs")
