"""Say how long things are kept, whose data is being erased, and what is left of it elsewhere."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    kept = sa.text("keep_ms IS NOT NULL")
    with op.get_context().autocommit_block():
        op.create_index(
            "ix_sessions_keep",
            "sessions",
            ["id"],
            sqlite_where=kept,
            postgresql_where=kept,
            postgresql_concurrently=True,
            if_not_exists=True,
        )
    op.create_table(
        "retention",
        *_texts("tenant", "rules"),
        sa.Column("version", sa.Integer(), nullable=False),
        *_numbers("updated_ms"),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_retention")),
    )
    op.create_table(
        "retention_marks",
        *_texts("tenant", "resource", "through"),
        sa.PrimaryKeyConstraint("tenant", "resource", name=op.f("pk_retention_marks")),
    )
    op.create_table(
        "erasures",
        *_texts("id", "tenant", "owner", "asked_by"),
        sa.Column("user_id", sa.Text()),
        *_texts("stage", default="messages"),
        *_texts("place", default=""),
        *_texts("counts", default="{}"),
        *_numbers("until_ms", "created_ms"),
        sa.Column("ended_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
    )
    op.create_index(op.f("ix_erasures_tenant_id"), "erasures", ["tenant", "id"])
    named, open_ = sa.text("user_id IS NOT NULL"), sa.text("ended_ms IS NULL")
    op.create_index(
        "uq_erasures_user",
        "erasures",
        ["tenant", "user_id"],
        unique=True,
        sqlite_where=named,
        postgresql_where=named,
    )
    op.create_index(
        "ix_erasures_open", "erasures", ["created_ms"], sqlite_where=open_, postgresql_where=open_
    )
    op.create_index(op.f("ix_erasures_ended_ms"), "erasures", ["ended_ms"])
    op.create_table(
        "leftovers",
        *_texts("tenant", "session_id", "what"),
        sa.Column("erasure_id", sa.Text()),
        *_numbers("due_ms"),
        sa.PrimaryKeyConstraint("tenant", "session_id", "what", name=op.f("pk_leftovers")),
    )
    op.create_index(op.f("ix_leftovers_due_ms"), "leftovers", ["due_ms"])
    erased = sa.text("erasure_id IS NOT NULL")
    op.create_index(
        "ix_leftovers_erasure",
        "leftovers",
        ["erasure_id"],
        sqlite_where=erased,
        postgresql_where=erased,
    )


def downgrade() -> None:
    op.drop_index("ix_sessions_keep", "sessions")
    for table in ("leftovers", "erasures", "retention_marks", "retention"):
        op.drop_table(table)


def _texts(*names: str, default: str | None = None) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False, server_default=default) for name in names]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in names]
