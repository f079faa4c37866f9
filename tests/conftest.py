"""Fixtures that every test may ask for: the real databases."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from milepost.store.address import PostgresAddress, SqliteAddress
from milepost.store.migrate import migrate
from tests.databases import database, named
from tests.devservices import Service, Services, services

# Whom a client trusts is read for each client, and for each process that imports aiohttp: 30 ms for
# all that a machine trusts. The tests talk to this machine alone, which no authority vouches for.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("no_authority.pem"))

# What a shell runs in the background ignores interrupts, and so would all that tests start from it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A machine that has much to do makes an example slow, and no test wrong.
settings.register_profile("untimed", settings(deadline=None))
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep thousands of tests from being looked through for garbage: they live until the end.

    It took each process half a minute, and collecting them nearly twice as long.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def started_services() -> Iterator[Services]:
    """The databases that `make test` started, or some that live as long as this test process."""
    with services() as started:
        yield started


@pytest.fixture(scope="session")
def postgres_url(started_services: Services) -> str:
    """A real Postgres, as `postgresql://…`."""
    return _url_or_skip(started_services.postgres, "Postgres")


@pytest.fixture(scope="session")
def redis_url(started_services: Services) -> str:
    """A real Valkey, as `redis://…`."""
    return _url_or_skip(started_services.redis, "Valkey")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file, to be copied."""
    path = tmp_path_factory.mktemp("template") / "milepost.db"
    migrate(SqliteAddress(path))
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str) -> Iterator[str]:
    """The name of a migrated database, to be copied."""
    with database(postgres_url) as name:
        migrate(PostgresAddress(named(postgres_url, name)))
        yield name


def _url_or_skip(service: Service | None, name: str) -> str:
    if service is None:
        pytest.skip(f"no {name} on this machine; REQUIRE_SERVICES=1 makes this a failure")
    return service.url
