"""What the database holds after a campaign, read past the service."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg

from milepost.core.usage import Usage
from milepost.runtime.clock import now_ms
from milepost.store.usage import NUMBERS

_RUNS = "SELECT id, session_id, status, turn, metadata, parent_run_id FROM runs ORDER BY id"
_EVENTS = "SELECT run_id, seq, epoch, type, time_ms, data FROM events ORDER BY run_id, seq"
_APPROVALS = "SELECT id, run_id, call_id, kind, status FROM approvals ORDER BY id"
_USAGE = f"SELECT run_id, seq, {', '.join(NUMBERS)} FROM usage"
_SPANS = "SELECT run_id, seq, kind, start_ms, end_ms, status FROM spans"
_BATCHES = "SELECT id, status, total, counts FROM batches ORDER BY id"
_ITEMS = "SELECT batch_id, status, run_id FROM batch_items ORDER BY batch_id, place"
_OVER = "status IN ('completed', 'incomplete', 'failed', 'cancelled', 'expired')"
# What is in the database only on its way to somewhere. What was said to a run that was then ended
# from outside stays, so that whoever said it can be told that it had come.
_PASSING = {
    "letters that a run has not read before it came to its own end": """inbox WHERE run_id IN
        (SELECT id FROM runs WHERE status IN ('completed', 'incomplete'))""",
    "news for webhooks that nobody has passed on": "outbox",
    "deliveries to webhooks that are not made": "webhook_deliveries WHERE status = 'pending'",
    "reservations of budgets": "budget_reservations",
    "counters of budgets of which something is reserved": """budget_counters WHERE
        reserved_tokens <> 0 OR reserved_cost_nanos <> 0 OR reserved_model_calls <> 0
        OR reserved_tool_calls <> 0 OR reserved_active_ms <> 0""",
    "runs that are not over": f"runs WHERE NOT {_OVER}",
    "runs that are over and have an owner": f"runs WHERE {_OVER} AND owner IS NOT NULL",
    "runs that are over and whose timer is set": f"runs WHERE {_OVER} AND wake_at_ms IS NOT NULL",
    "questions of runs that are over": "approvals WHERE status = 'pending'",
    "batches that are open": "batches WHERE ended_ms IS NULL",
    "items of batches that are not over": "batch_items WHERE status IN ('pending', 'started')",
    "lessons that are not learned": "recollections",
}
_STUCK_IN_A_TRANSACTION = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'"""
_CONNECTIONS = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'milepost'"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it stands in the log."""

    seq: int
    epoch: int
    type: str
    time_ms: int
    said: dict[str, Any]


@dataclass(slots=True)
class Run:
    """A run's row, and its log.

    `parent` is the run that has called it, `time` the schedule and the time for which it was made.
    """

    id: str
    session_id: str
    status: str
    turn: int | None
    key: str | None
    parent: str | None = None
    log: list[Entry] = field(default_factory=list)
    time: tuple[str, str] | None = None

    def of(self, *types: str) -> list[Entry]:
        """Return the events of these types."""
        return [entry for entry in self.log if entry.type in types]


@dataclass(frozen=True, slots=True)
class Question:
    """An approval's row."""

    id: str
    run_id: str
    call_id: str
    kind: str
    status: str


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A span's row, as far as it can be told from the log alone."""

    seq: int
    kind: str
    start_ms: int
    end_ms: int
    status: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's row; of each of its items the status and the run that it became."""

    id: str
    status: str
    total: int
    counts: dict[str, int]
    items: list[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class History:
    """All runs, all approvals, all batches, and what stands beside the logs, by run."""

    runs: dict[str, Run]
    questions: list[Question]
    batches: list[Batch] = field(default_factory=list)
    usage: dict[str, dict[int, Usage]] = field(default_factory=dict)
    spans: dict[str, list[SpanRow]] = field(default_factory=dict)


def read(url: str) -> History:
    """Read everything."""
    runs = {row[0]: _run(*row) for row in _select(url, _RUNS)}
    logs: dict[str, list[Entry]] = defaultdict(list)
    for run_id, seq, epoch, kind, time_ms, said in _select(url, _EVENTS):
        logs[run_id].append(Entry(seq, epoch, kind, time_ms, orjson.loads(said)))
    for run_id, log in logs.items():
        runs[run_id].log = log
    usage: dict[str, dict[int, Usage]] = defaultdict(dict)
    for run_id, seq, *numbers in _select(url, _USAGE):
        usage[run_id][seq] = Usage(*numbers)
    spans: dict[str, list[SpanRow]] = defaultdict(list)
    for run_id, *span in _select(url, _SPANS):
        spans[run_id].append(SpanRow(*span))
    return History(
        runs,
        [Question(*row) for row in _select(url, _APPROVALS)],
        _batches(url),
        dict(usage),
        dict(spans),
    )


def _run(
    run_id: str, session_id: str, status: str, turn: int | None, metadata: str, parent: str | None
) -> Run:
    labels = orjson.loads(metadata)
    time = (labels["schedule_id"], labels["scheduled_for"]) if "schedule_id" in labels else None
    return Run(run_id, session_id, status, turn, labels.get("key"), parent, time=time)


def passing(url: str) -> dict[str, int]:
    """Return how much there is of each thing that is only passing."""
    due = f"schedules WHERE next_ms <= {now_ms()}"
    passing_by = {**_PASSING, "schedules whose time is over": due}
    found = {name: _count(url, f"SELECT count(*) FROM {rows}") for name, rows in passing_by.items()}
    if not url.startswith("sqlite"):
        found["connections that idle in a transaction"] = _count(url, _STUCK_IN_A_TRANSACTION)
    return found


def connections(url: str) -> int:
    """Return how many connections the service has to the database; SQLite has none."""
    return 0 if url.startswith("sqlite") else _count(url, _CONNECTIONS)


def dead_workers(url: str) -> list[str]:
    """Return the workers that were declared dead."""
    return [worker for (worker,) in _select(url, "SELECT id FROM workers WHERE dead = 1")]


def living_workers(url: str) -> list[str]:
    """Return the workers that nobody has declared dead."""
    return [worker for (worker,) in _select(url, "SELECT id FROM workers WHERE dead = 0")]


def pid_of(worker: str) -> int:
    """Return the pid that a worker's id has in it."""
    return int(worker.partition("-wrk_")[0].rpartition("-")[2])


def _batches(url: str) -> list[Batch]:
    items: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for batch_id, *item in _select(url, _ITEMS):
        items[batch_id].append((item[0], item[1]))
    return [
        Batch(batch_id, status, total, orjson.loads(counts), items[batch_id])
        for batch_id, status, total, counts in _select(url, _BATCHES)
    ]


def _count(url: str, sql: str) -> int:
    [(count,)] = _select(url, sql)
    return int(count)


def _select(url: str, sql: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as file:
            return file.execute(sql).fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(sql.encode()).fetchall()
