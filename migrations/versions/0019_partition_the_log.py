"""Partition the log by week on Postgres: what was there becomes the first partition, unread.

One transaction, which nobody else's statement sees the middle of. It locks the log away from
everybody, for as long as it takes to write to the catalog: some milliseconds, however much is in
it. It waits for that lock for a second at most, and is tried again. The checked bound stands for
the look into every row that attaching would take, and the primary key's index is taken over.
"""

import datetime
import re

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_WEEK_MS = 7 * 86_400_000
_WEEKS = 4
_BOUND = sa.text(
    "SELECT pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE conrelid = CAST('events' AS regclass) AND conname = 'ck_events_bound'"
)


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    op.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
    found = re.search(r"'run_([0-9a-f]{12})", connection.scalar(_BOUND) or "")
    assert found, "the step before made the bound"
    bound_ms = int(found[1], 16)
    before = f"events_before_{_day(bound_ms)}"
    op.rename_table("events", before)
    op.execute(f"ALTER TABLE {before} RENAME CONSTRAINT pk_events TO pk_{before}")
    _create_the_log()
    op.execute(
        f"ALTER TABLE events ATTACH PARTITION {before}"
        f" FOR VALUES FROM (MINVALUE) TO ('{_first_id(bound_ms)}')"
    )
    op.execute(f"ALTER TABLE {before} DROP CONSTRAINT ck_events_bound")
    op.execute("CREATE TABLE events_default PARTITION OF events DEFAULT")
    for week in range(_WEEKS):
        start_ms = bound_ms + week * _WEEK_MS
        op.execute(
            f"CREATE TABLE events_{_day(start_ms)} PARTITION OF events"
            f" FOR VALUES FROM ('{_first_id(start_ms)}') TO ('{_first_id(start_ms + _WEEK_MS)}')"
        )


def downgrade() -> None:
    raise NotImplementedError("what was written to other partitions since would have to be moved")


def _create_the_log() -> None:
    op.create_table(
        "events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("append_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_events")),
        postgresql_partition_by="RANGE (run_id)",
    )


def _first_id(time_ms: int) -> str:
    return f"run_{time_ms:012x}{0:020x}"


def _day(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime("%Y%m%d")
