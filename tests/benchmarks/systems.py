"""The servers that are compared, each as the one process that it is in use."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

import psycopg

from tests.benchmarks.plan import AT_ONCE, Speech
from tests.benchmarks.processes import (
    Running,
    child,
    first_line,
    name_of,
    parent_of,
    running,
)

SystemName = Literal["bare", "logged", "sqlite", "postgres"]
SYSTEMS: tuple[SystemName, ...] = ("bare", "logged", "sqlite", "postgres")
SHOWN: Mapping[SystemName, str] = {
    "bare": "bare loop, stores nothing",
    "logged": "the same with a log",
    "sqlite": "Milepost on SQLite",
    "postgres": "Milepost on Postgres",
}

_AGENTS = """
[[agents]]
name = "bench"
model = "openai/stub-model"
instructions = "Add numbers with the tool."
tools = ["add"]

[[agents]]
name = "waiting"
model = "openai/stub-model"
tools = ["add"]
policy = { ask = ["add"] }
"""
_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


@dataclass(frozen=True, slots=True)
class System:
    """A running server, and its database's main process if that can be seen from here."""

    name: SystemName
    server: Running
    database_pid: int | None = None


@dataclass(frozen=True, slots=True)
class Database:
    """An empty Postgres database; `soft` names the settings that make it forgetful."""

    url: str
    version: str
    pid: int | None
    soft: tuple[str, ...]


@contextmanager
def model(folder: Path, speech: Speech = AT_ONCE) -> Iterator[str]:
    """Serve the stub of a model; give its base URL."""
    program = ["-m", "tests.stubs.openai_server", "--tokens", str(speech.tokens)]
    with running([*program, "--token-delay-ms", str(speech.delay_ms)], folder) as stub:
        yield f"{stub.url}/v1"


@contextmanager
def bare(folder: Path, model_url: str) -> Iterator[System]:
    """Serve the bare loop."""
    folder.mkdir()
    with running(["-m", "tests.benchmarks.bare_loop", "--model", model_url], folder) as server:
        yield System("bare", server)


@contextmanager
def logged(folder: Path, model_url: str) -> Iterator[System]:
    """Serve the bare loop with a log in the folder."""
    folder.mkdir()
    program = ["-m", "tests.benchmarks.logged_loop", "--model", model_url]
    with running([*program, "--log", str(folder / "log.db")], folder) as server:
        yield System("logged", server)


@contextmanager
def milepost(
    name: SystemName, folder: Path, model_url: str, database: Database | None,
    profile: Path | None = None, redis_url: str | None = None,
) -> Iterator[System]:  # fmt: skip
    """Serve Milepost with its default settings, on the folder's SQLite file or on `database`."""
    environment = _environment(folder, model_url, database, redis_url)
    program = ["milepost"] if profile is None else ["tests.benchmarks.profiled", str(profile)]
    with running(["-m", *program, "serve"], folder, environment) as server:
        yield System(name, server, database.pid if database else None)


@contextmanager
def api(folder: Path, model_url: str, database: Database, redis_url: str) -> Iterator[System]:
    """Serve Milepost without driving a run."""
    environment = _environment(folder, model_url, database, redis_url)
    with running(["-m", "milepost", "serve", "--slots", "0"], folder, environment) as server:
        yield System("postgres", server, database.pid)


@contextmanager
def worker(folder: Path, model_url: str, database: Database, redis_url: str) -> Iterator[int]:
    """Drive runs for an API; give the process' number."""
    environment = _environment(folder, model_url, database, redis_url)
    with child(["-m", "milepost", "worker"], folder, environment) as process:
        first_line(process)
        yield process.pid


def _environment(
    folder: Path, model_url: str, database: Database | None, redis_url: str | None
) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    agents = folder / "agents.toml"
    agents.write_text(_AGENTS)
    return {
        "MILEPOST_DATABASE_URL": database.url if database else f"sqlite:///{folder}/milepost.db",
        "MILEPOST_AGENTS": str(agents),
        "MILEPOST_TOOLS": str(Path(__file__).with_name("tools.py")),
        "MILEPOST_DEMO": "false",
        "MILEPOST_PORT": "0",
        "OPENAI_BASE_URL": model_url,
        **({"MILEPOST_REDIS_URL": redis_url} if redis_url else {}),
    }


@contextmanager
def database(postgres_url: str) -> Iterator[Database]:
    """Give an empty database on that server, dropped when the block ends."""
    name = f"bench_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        shown = {one: _shown(connection, one) for one in (*_DURABLE, "server_version")}
        yield Database(
            url=postgres_url.rpartition("/")[0] + f"/{name}",
            version=shown["server_version"],
            pid=_postmaster(connection.info.backend_pid),
            soft=tuple(f"{one}={shown[one]}" for one in _DURABLE if shown[one] != "on"),
        )
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _shown(connection: psycopg.Connection, setting: str) -> str:
    row = connection.execute(f"SHOW {setting}".encode()).fetchone()
    assert row is not None
    return str(row[0])


def _postmaster(backend_pid: int) -> int | None:
    """Return the main process of a server on this machine, None of one elsewhere."""
    if not name_of(backend_pid).startswith("postgres"):
        return None
    return parent_of(backend_pid)
