"""A Temporal of one's own, and what there is to dispatch."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.dispatch.temporal_server import TemporalServer, temporal_program
from tests.journeys.conftest import model, postgres_database
from tests.runtime.conftest import database, shop

__all__ = [
    "database",
    "model",
    "postgres_database",
    "shop",
]


@pytest.fixture
async def temporal(tmp_path: Path) -> AsyncIterator[TemporalServer]:
    """A server of the test's own, which it may kill."""
    server = TemporalServer(temporal_program(), tmp_path)
    try:
        await server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def shared_temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A server for tests that do it no harm."""
    server = TemporalServer(temporal_program(), tmp_path_factory.mktemp("temporal"))
    try:
        # In a thread: no test is to find the event loop gone that it is given.
        with ThreadPoolExecutor(1) as thread:
            for _ in server.launches():
                if thread.submit(asyncio.run, server.stands()).result():
                    break
        yield server
    finally:
        server.kill()
