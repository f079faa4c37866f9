"""Ask people by terms: how many, whom, and what silence means; and tell of every change."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_REMINDS = sa.text("status = 'pending' AND remind_ms IS NOT NULL")


def upgrade() -> None:
    for column in (
        sa.Column("kind", sa.Text, nullable=False, server_default="call"),
        sa.Column("terms", sa.Text, nullable=False, server_default="{}"),
        sa.Column("requester", sa.Text),
        sa.Column("original", sa.Text),
        sa.Column("remind_ms", sa.BigInteger),
        sa.Column("escalated", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("version", sa.Integer, nullable=False, server_default="1"),
        sa.Column("changed_ms", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("change", sa.Text, nullable=False, server_default="requested"),
        sa.Column("made_by", sa.Text),
    ):
        op.add_column("approvals", column)
    for table in ("runs", "batches"):
        op.add_column(table, sa.Column("made_by", sa.Text))
    op.add_column("votes", sa.Column("actor", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE votes SET actor = voter")
    op.execute("UPDATE approvals SET changed_ms = COALESCE(decided_ms, created_ms)")
    op.create_index("ix_approvals_tenant_changed_ms", "approvals", ["tenant", "changed_ms"])
    op.create_index(
        "ix_approvals_remind",
        "approvals",
        ["remind_ms"],
        sqlite_where=_REMINDS,
        postgresql_where=_REMINDS,
    )


def downgrade() -> None:
    op.drop_index("ix_approvals_remind", "approvals")
    op.drop_index("ix_approvals_tenant_changed_ms", "approvals")
    op.drop_column("votes", "actor")
    for table in ("runs", "batches"):
        op.drop_column(table, "made_by")
    for name in (
        "made_by", "change", "changed_ms", "version", "escalated", "remind_ms", "original",
        "requester", "terms", "kind",
    ):  # fmt: skip
        op.drop_column("approvals", name)
