"""Keep who may have which tool called, and with which scopes a run was asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "tool_permissions",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("permissions", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_tool_permissions")),
    )
    op.add_column("runs", sa.Column("scopes", sa.Text(), server_default="[]", nullable=False))


def downgrade() -> None:
    op.drop_column("runs", "scopes")
    op.drop_table("tool_permissions")
