"""Keep schedules: runs that come again and again."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

_COMES = sa.text("next_ms IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("cron", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("overlap", sa.Text(), nullable=False),
        sa.Column("late_max_ms", sa.BigInteger()),
        sa.Column("enabled", sa.SmallInteger(), server_default="1", nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text()),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("queued_event", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), server_default="{}", nullable=False),
        sa.Column("scopes", sa.Text(), server_default="[]", nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("next_ms", sa.BigInteger()),
        sa.Column("last", sa.Text()),
        sa.Column("last_run_id", sa.Text()),
        sa.Column("version", sa.Integer(), server_default="1", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        postgresql_with={"fillfactor": 50},
    )
    op.create_index("ix_schedules_tenant_id", "schedules", ["tenant", "id"])
    op.create_index(
        "ix_schedules_next",
        "schedules",
        ["next_ms"],
        sqlite_where=_COMES,
        postgresql_where=_COMES,
    )


def downgrade() -> None:
    op.drop_table("schedules")
