"""A service that shows its pages, on a file of the test's own, and a browser to look at them."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.api.conftest import own_surroundings, sqlite_database_url
from tests.api.serving import KeyedService, Service, serving, serving_tenants, settings_for
from tests.console.browser import Page, browsing

__all__ = ["own_surroundings", "sqlite_database_url"]


@pytest.fixture
async def service(sqlite_database_url: str) -> AsyncIterator[Service]:
    """A service in open mode."""
    async with serving(settings_for(sqlite_database_url)) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the open service."""
    async with service.client() as client:
        yield client


@pytest.fixture
async def keyed(sqlite_database_url: str) -> AsyncIterator[KeyedService]:
    """A service with keys and two tenants."""
    async with serving_tenants(settings_for(sqlite_database_url)) as keyed:
        yield keyed


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    """A tab of a browser."""
    async with browsing(tmp_path / "browser") as page:
        yield page
