"""Say of each session what it is for: a chat, a run that another has started, or a tool's trial."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("kind", sa.Text(), server_default="chat", nullable=False))


def downgrade() -> None:
    op.drop_column("sessions", "kind")
