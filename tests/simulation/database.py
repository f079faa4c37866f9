"""One SQLite in memory for all processes of a simulation, whose clock is the simulation's."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from milepost.store import agents
from milepost.store.address import SqliteAddress
from milepost.store.engine_sqlite import run, translated
from milepost.store.migrate import migrate
from milepost.store.work import Work
from tests.simulation.agents import AGENTS, TENANT

T = TypeVar("T")

CLAIMS = frozenset({"run.started", "run.resumed"})
DAY_MS = 86_400_000
UNIX_EPOCH_IN_DAYS = 2_440_587.5
_A_BIT_MS = 0.25  # A day's fraction is exact to 0.04 ms only.

# Temporary triggers see every change of a row, in order, and undone ones too: see `Database.write`.
_TRIGGERS = """
CREATE TEMP TRIGGER seen_event AFTER INSERT ON main.events BEGIN
  SELECT saw('event', new.run_id, new.seq, new.epoch, new.append_id, new.type, new.data);
END;
CREATE TEMP TRIGGER seen_run AFTER INSERT ON main.runs BEGIN
  SELECT saw('run', new.id, new.session_id, NULL, new.status, new.owner, new.epoch);
END;
CREATE TEMP TRIGGER seen_change AFTER UPDATE ON main.runs
WHEN old.status IS NOT new.status OR old.owner IS NOT new.owner OR old.epoch IS NOT new.epoch
BEGIN
  SELECT saw('run', new.id, new.session_id, old.status, new.status, new.owner, new.epoch);
END;
CREATE TEMP TRIGGER seen_approval AFTER INSERT ON main.approvals BEGIN
  SELECT saw('approval', new.id, new.run_id, NULL, new.status, new.decision, new.digest);
END;
CREATE TEMP TRIGGER seen_decision AFTER UPDATE ON main.approvals
WHEN old.status IS NOT new.status OR old.decided_by IS NOT new.decided_by BEGIN
  SELECT saw('approval', new.id, new.run_id, old.status, new.status, new.decision, new.digest);
END;
CREATE TEMP TRIGGER seen_letter AFTER INSERT ON main.inbox BEGIN
  SELECT saw('letter', new.run_id, new.seq, new.kind, new.data, NULL, NULL);
END;
CREATE TEMP TRIGGER seen_schedule AFTER INSERT ON main.schedules BEGIN
  SELECT saw('schedule', new.id, NULL, new.next_ms, NULL, new.version, NULL);
END;
CREATE TEMP TRIGGER seen_time AFTER UPDATE ON main.schedules BEGIN
  SELECT saw('schedule', new.id, old.next_ms, new.next_ms, old.version, new.version,
    CASE WHEN new.last IS NOT old.last THEN new.last END);
END;
CREATE TEMP TRIGGER seen_worker AFTER UPDATE ON main.workers WHEN old.dead IS NOT new.dead BEGIN
  SELECT saw('worker', new.id, old.dead, new.dead, NULL, NULL, NULL);
END;
"""

Sight = tuple[Any, ...]


class Watcher(Protocol):
    """Who is told what has become durable."""

    def saw(self, sights: list[Sight]) -> None:
        """Take note of the changes of one transaction, in their order."""


class Database:
    """The file that all processes share. Between `began` and its end everything can be undone."""

    def __init__(self) -> None:
        self._connection = _prepared()
        self._sights: list[Sight] = []
        self._now_ms: Callable[[], float] = lambda: 0.0
        self._watcher: Watcher | None = None
        self.writer = ""
        connection = self._connection
        connection.create_function("julianday", 1, self._julianday)
        connection.create_function("saw", 7, self._saw)
        connection.executescript(_TRIGGERS)

    @property
    def changed(self) -> bool:
        """Say whether the last transaction changed anything that is watched."""
        return bool(self._sights)

    @property
    def told(self) -> frozenset[str]:
        """Return the names of the events that the last transaction has written."""
        return frozenset(sight[5] for sight in self._sights if sight[0] == "event")

    @contextmanager
    def began(self, now_ms: Callable[[], float], watcher: Watcher) -> Iterator[None]:
        """Let a simulation have it, and leave no trace of that."""
        self._now_ms, self._watcher = now_ms, watcher
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")
            self._watcher = None

    def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        with translated():
            return run(self._connection, work)

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction, and tell of it once it is durable."""
        connection = self._connection
        self._sights = []
        with translated():
            connection.execute("SAVEPOINT work")
            try:
                result = run(connection, work)
            except BaseException:
                connection.execute("ROLLBACK TO work")
                connection.execute("RELEASE work")
                raise
            connection.execute("RELEASE work")
        if self._sights and self._watcher is not None:
            self._watcher.saw(self._sights)
        return result

    def rows(self, sql: str, *parameters: object) -> list[Sight]:
        """Look at what is there, as nobody in the simulation can."""
        return self._connection.execute(sql, parameters).fetchall()

    def _julianday(self, _: str) -> float:
        return (self._now_ms() + _A_BIT_MS) / DAY_MS + UNIX_EPOCH_IN_DAYS

    def _saw(self, *sight: Any) -> None:
        self._sights.append(sight)


@cache
def database() -> Database:
    """Return the one that this process simulates with: its statements stay prepared."""
    return Database()


def _prepared() -> sqlite3.Connection:
    """Return a migrated database in memory that has the agents already."""
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=1_024)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "milepost.db"
        migrate(SqliteAddress(path))
        migrated = sqlite3.connect(path)
        migrated.backup(connection)
        migrated.close()
    for agent, definition in AGENTS:
        run(connection, agents.create(TENANT, agent.name, definition, agent_id=agent.id, now_ms=0))
    return connection
