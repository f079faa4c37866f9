"""Keep what tools leave behind."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("filename", sa.Text()),
        sa.Column("mime_type", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger()),
        sa.Column("sha256", sa.Text()),
        sa.Column("url", sa.Text()),
        sa.Column("role", sa.Text()),
        sa.Column("retention", sa.Text()),
        sa.Column("created_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifacts")),
    )
    op.create_index("ix_artifacts_run_id_id", "artifacts", ["run_id", "id"])
    op.create_table(
        "artifact_contents",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(
            "tenant", "session_id", "sha256", name=op.f("pk_artifact_contents")
        ),
    )


def downgrade() -> None:
    op.drop_table("artifact_contents")
    op.drop_table("artifacts")
