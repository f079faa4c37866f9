"""Say of each worker which schema its code knows: nobody is to be given what it cannot do."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("workers", sa.Column("knows", sa.Text()))
