"""A running service on each database, open or with keys, and clients for it."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.api.serving import KeyedService, Service, serving, serving_tenants, settings_for
from tests.databases import database, named

_FOREIGN = ("MILEPOST_", "ANTHROPIC_", "GEMINI_", "OPENAI_", "OTEL_")


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing of this machine in, nor leave anything in the current folder."""
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sqlite_database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A file of the test's own."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'milepost.db')}"


@pytest.fixture
def postgres_database_url(postgres_url: str, postgres_template: str) -> Iterator[str]:
    """A Postgres database of the test's own."""
    with database(postgres_url, postgres_template) as name:
        yield named(postgres_url, name)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database of each kind."""
    url: str = request.getfixturevalue(f"{request.param}_database_url")
    return url


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Service]:
    """A service in open mode, on each database."""
    async with serving(settings_for(database_url)) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the open service."""
    async with service.client() as client:
        yield client


@pytest.fixture
async def keyed(database_url: str) -> AsyncIterator[KeyedService]:
    """A service with keys and two tenants, on each database."""
    async with serving_tenants(settings_for(database_url)) as keyed:
        yield keyed
