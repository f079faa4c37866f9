"""Let the database say how old the code may be that uses it."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    compat = op.create_table(
        "schema_compat",
        sa.Column("oldest_code", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("oldest_code", name=op.f("pk_schema_compat")),
    )
    op.bulk_insert(compat, [{"oldest_code": "0015"}])


def downgrade() -> None:
    op.drop_table("schema_compat")
