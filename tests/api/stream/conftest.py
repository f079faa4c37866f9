"""A run on a real store and hub, here or in another process."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from milepost.live.hub import Hub
from milepost.store.address import SqliteAddress
from milepost.store.store import Store
from tests.api.stream.elsewhere import Far, Relay
from tests.runtime.writing import Run, claimed
from tests.store.conftest import opened, serving


@pytest.fixture
async def store(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[Store]:
    path = Path(shutil.copy(sqlite_template, tmp_path / "milepost.db"))
    async with opened(SqliteAddress(path)) as engine, serving(Store(engine)) as store:
        yield store


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
async def run(store: Store, hub: Hub) -> Run:
    return await claimed(store, hub)


@pytest.fixture
def far(run: Run, hub: Hub) -> Far:
    here = Hub()
    hub.link = Relay(here)
    here.link = hub.link
    return Far(run, here)
