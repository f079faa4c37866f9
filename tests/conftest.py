"""Fixtures that every test may ask for: the real databases."""

from collections.abc import Iterator

import pytest

from tests.devservices import Service, Services, services


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


def _url_or_skip(service: Service | None, name: str) -> str:
    if service is None:
        pytest.skip(f"no {name} on this machine; REQUIRE_SERVICES=1 makes this a failure")
    return service.url
