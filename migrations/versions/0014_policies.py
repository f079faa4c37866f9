"""Rules of tenants and sessions, the yes that holds for a session, and counts for rates."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "policies",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("digest", sa.Text),
        sa.Column("approval_id", sa.Text, nullable=False),
        sa.Column("granted_by", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("expires_ms", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("revoked_by", sa.Text),
        sa.Column("revoked_ms", sa.BigInteger),
    )
    op.create_index("ix_grants_tenant_id", "grants", ["tenant", "id"])
    op.create_index("ix_grants_session_id", "grants", ["session_id"])
    op.create_table(
        "rate_counters",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("ticks", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("until_ms", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("ix_rate_counters_until_ms", "rate_counters", ["until_ms"])
    op.create_table(
        "rate_marks",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("call_id", sa.Text, primary_key=True),
        sa.Column("tick", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("until_ms", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("ix_rate_marks_tenant_key_tick", "rate_marks", ["tenant", "key", "tick"])
    op.create_index("ix_rate_marks_until_ms", "rate_marks", ["until_ms"])


def downgrade() -> None:
    for table in ("rate_marks", "rate_counters", "grants", "policies"):
        op.drop_table(table)
