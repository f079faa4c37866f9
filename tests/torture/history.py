"""What the database holds after a campaign, read past the service."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import orjson
import psycopg

_RUNS = "SELECT id, session_id, status, turn, metadata FROM runs ORDER BY id"
_EVENTS = "SELECT run_id, seq, epoch, type, time_ms, data FROM events ORDER BY run_id, seq"
_APPROVALS = "SELECT id, run_id, call_id, kind, status FROM approvals ORDER BY id"


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
    """A run's row, and its log."""

    id: str
    session_id: str
    status: str
    turn: int | None
    key: str | None
    log: list[Entry] = field(default_factory=list)

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
class History:
    """All runs and all approvals."""

    runs: dict[str, Run]
    questions: list[Question]


def read(url: str) -> History:
    """Read everything."""
    runs = {
        run_id: Run(run_id, session_id, status, turn, orjson.loads(metadata).get("key"))
        for run_id, session_id, status, turn, metadata in _select(url, _RUNS)
    }
    logs: dict[str, list[Entry]] = defaultdict(list)
    for run_id, seq, epoch, kind, time_ms, said in _select(url, _EVENTS):
        logs[run_id].append(Entry(seq, epoch, kind, time_ms, orjson.loads(said)))
    for run_id, log in logs.items():
        runs[run_id].log = log
    return History(runs, [Question(*row) for row in _select(url, _APPROVALS)])


def dead_workers(url: str) -> list[str]:
    """Return the workers that were declared dead."""
    return [worker for (worker,) in _select(url, "SELECT id FROM workers WHERE dead = 1")]


def living_workers(url: str) -> list[str]:
    """Return the workers that nobody has declared dead."""
    return [worker for (worker,) in _select(url, "SELECT id FROM workers WHERE dead = 0")]


def pid_of(worker: str) -> int:
    """Return the pid that a worker's id has in it."""
    return int(worker.partition("-wrk_")[0].rpartition("-")[2])


def _select(url: str, sql: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as file:
            return file.execute(sql).fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(sql.encode()).fetchall()
