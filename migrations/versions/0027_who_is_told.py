"""Say of what is to be told which webhooks were there when it happened."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("outbox", sa.Column("webhooks", sa.Text()))


def downgrade() -> None:
    op.drop_column("outbox", "webhooks")
