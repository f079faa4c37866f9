"""An installation on either database, with a model that the test directs."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.databases import database, named
from tests.journeys.processes import Installation, installed
from tests.journeys.warm import Warm, warmed
from tests.stubs.directed_model import DirectedModel, directed_model

AGENTS = """
[[agents]]
name = "clerk"
model = "openai/directed"
instructions = "Do as you are told."
tools = ["charge", "reserve", "refund", "look_up", "book", "count"]

[[agents]]
name = "lead"
model = "openai/directed"
tools = ["agent:clerk"]

[[agents]]
name = "cached"
model = "openai/directed"
cache = { ttl_s = 60 }

[[agents]]
name = "learner"
model = "openai/directed"
memory = { extract = { scope = "user" } }
"""


@pytest.fixture
async def model() -> AsyncIterator[DirectedModel]:
    """A model that the test directs by what it says."""
    async with directed_model() as serving:
        yield serving


@pytest.fixture
def postgres_database(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """A database of one's own, migrated already: half a second of each first process's CPU."""
    with database(postgres_url, postgres_template) as name:
        yield named(postgres_url, name)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database with nothing in it, of each kind."""
    if request.param == "sqlite":
        migrated: Path = request.getfixturevalue("sqlite_template")
        return f"sqlite:///{shutil.copy(migrated, tmp_path / 'milepost.db')}"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """What the processes are forked from."""
    with warmed(tmp_path_factory.mktemp("warm")) as warm:
        yield warm


@pytest.fixture
async def installation(
    database_url: str, model: DirectedModel, tmp_path: Path, warm: Warm
) -> AsyncIterator[Installation]:
    """Processes on one database, whose workers lose their lease within two seconds."""
    settings = environment(database_url, model, tmp_path)
    async with installed(tmp_path, settings, warm) as installation:
        yield installation


@pytest.fixture
async def postgres_installation(
    postgres_database: str, model: DirectedModel, tmp_path: Path, warm: Warm
) -> AsyncIterator[Installation]:
    """The same, on Postgres only, for what takes several processes."""
    settings = environment(postgres_database, model, tmp_path)
    async with installed(tmp_path, settings, warm) as installation:
        yield installation


def environment(database_url: str, model: DirectedModel, folder: Path) -> dict[str, str]:
    """Return the settings of a test's processes."""
    agents = folder / "agents.toml"
    agents.write_text(AGENTS)
    return {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_AGENTS": str(agents),
        "MILEPOST_TOOLS": str(Path(__file__).with_name("ledger_tools.py")),
        "MILEPOST_LEASE_S": "2",
        "MILEPOST_SWEEP_S": "0.3",
        "MILEPOST_DRAIN_S": "10",
        "MILEPOST_LOG_LEVEL": "warning",
        "OPENAI_BASE_URL": model.base_url,
        "LEDGER_FOLDER": str(folder),
        "PYTHONWARNINGS": "error",
        "PATH": os.environ["PATH"],
    }
