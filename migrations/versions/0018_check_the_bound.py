"""Check the bound for what is in the log already, while everybody goes on reading and writing.

This reads the whole log once (SHARE UPDATE EXCLUSIVE: only other changes of schema have to wait),
so that the next step need not.
"""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE events VALIDATE CONSTRAINT ck_events_bound")


def downgrade() -> None:
    """Leave it as it is: a checked bound is a bound."""
