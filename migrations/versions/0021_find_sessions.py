"""Find the sessions of a user, forked off another one or past their time, and runs by place."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_INDEXES = {
    "ix_sessions_user": ("sessions", ["tenant", "user_id", "id"], "user_id IS NOT NULL"),
    "ix_sessions_forks": ("sessions", ["forked_from"], "forked_from IS NOT NULL"),
    "ix_sessions_expiry": ("sessions", ["expires_ms"], "expires_ms IS NOT NULL"),
    "ix_runs_place": ("runs", ["session_id", "place"], "place IS NOT NULL"),
}


def upgrade() -> None:
    with op.get_context().autocommit_block():
        for name, (table, columns, where) in _INDEXES.items():
            op.create_index(
                name,
                table,
                columns,
                sqlite_where=sa.text(where),
                postgresql_where=sa.text(where),
                postgresql_concurrently=True,
                if_not_exists=True,
            )


def downgrade() -> None:
    for name, (table, *_) in _INDEXES.items():
        op.drop_index(name, table)
