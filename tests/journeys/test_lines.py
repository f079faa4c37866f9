"""Several people speak at once in a session: nobody is lost or doubled, and all is in order."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.journeys.crowd import AT_ONCE, ROUNDS, fleet, look, talk
from tests.journeys.processes import Server

SESSIONS = 20

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
async def apis(database_url: str, tmp_path: Path) -> AsyncIterator[list[Server]]:
    """Two APIs and two workers on Postgres, one process on SQLite."""
    async with fleet(database_url, tmp_path) as serving:
        yield serving


async def test_a_crowd_is_served_in_order_and_each_once(
    apis: list[Server], database_url: str
) -> None:
    for name, strategies in ROUNDS.items():
        done = await talk(apis, name, SESSIONS, strategies)

        looked = look(database_url, done)
        assert looked.violations == ()
        assert looked.runs + looked.steered == done.accepted
        if len(strategies) == 1:
            assert (done.accepted < SESSIONS * AT_ONCE) == (name == "reject"), name
            assert (looked.replaced > 0) == (name in {"interrupt", "rollback"}), name
            assert (looked.steered > 0) == (name == "steer"), name
