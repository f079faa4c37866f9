"""Find the runs that were forked off another one."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_IS_FORK = sa.text("forked_from IS NOT NULL")


def upgrade() -> None:
    op.add_column("runs", sa.Column("forked_from", sa.Text()))
    op.add_column("runs", sa.Column("forked_seq", sa.BigInteger()))
    op.create_index(
        "ix_runs_forks",
        "runs",
        ["forked_from", "id"],
        sqlite_where=_IS_FORK,
        postgresql_where=_IS_FORK,
    )


def downgrade() -> None:
    op.drop_index("ix_runs_forks", "runs")
    op.drop_column("runs", "forked_seq")
    op.drop_column("runs", "forked_from")
