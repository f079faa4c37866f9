"""Bound the ids of runs in the log on Postgres, to make a partition of it later without a look.

The first of three steps, each in a transaction of its own, since each needs another lock: this one
keeps everybody away from the log for an instant. NOT VALID means that only new rows are checked.

The bound lies two to three weeks ahead, so that no run comes to it before the last step is done,
be it some days later. Ids are `run_`, twelve hex digits of Unix milliseconds, and twenty of chance.
"""

import datetime

import sqlalchemy as sa
from alembic import op

from milepost.core.errors import ConfigurationError

revision = "0017"
down_revision = "0016"

_DAY_MS = 86_400_000
_WEEK_MS = 7 * _DAY_MS
_MONDAY_MS = 4 * _DAY_MS  # 1970-01-05
_AHEAD_MS = 2 * _WEEK_MS


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    bound = f"run_{_next_monday(connection):012x}{0:020x}"
    op.execute(
        f"ALTER TABLE events ADD CONSTRAINT ck_events_bound CHECK (run_id < '{bound}') NOT VALID"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE events DROP CONSTRAINT ck_events_bound")


def _next_monday(connection: sa.Connection) -> int:
    """Return when the first week begins that is clear of all that is in the log, and of today."""
    now_ms = connection.scalar(sa.text("SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT)"))
    last = connection.scalar(sa.text("SELECT max(run_id) FROM events"))
    latest_ms = max(now_ms + _AHEAD_MS, _time_of(last) if last else 0)
    return (latest_ms - _MONDAY_MS) // _WEEK_MS * _WEEK_MS + _MONDAY_MS + _WEEK_MS


def _time_of(run_id: str) -> int:
    try:
        time_ms = int(run_id.removeprefix("run_")[:12], 16)
        datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigurationError(
            f"the log has a run {run_id!r}, which is no id of Milepost's: delete its events first"
        ) from error
    return time_ms
