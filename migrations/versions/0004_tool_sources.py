"""Keep the tools that tenants declare over the API."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "tool_sources",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("listing", sa.Text(), server_default="[]", nullable=False),
        sa.Column("tools", sa.Text(), server_default="[]", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_sources")),
    )
    op.create_index("ix_tool_sources_tenant_id", "tool_sources", ["tenant", "id"])
    op.create_index("ix_tool_sources_tenant_name", "tool_sources", ["tenant", "name"], unique=True)


def downgrade() -> None:
    op.drop_table("tool_sources")
