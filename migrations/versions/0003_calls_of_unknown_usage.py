"""Count the model calls whose usage nobody learned."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column(
        "usage",
        sa.Column("unknown_calls", sa.BigInteger(), server_default="0", nullable=False),
    )


def downgrade() -> None:
    op.drop_column("usage", "unknown_calls")
