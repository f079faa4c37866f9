"""A worker of a version that knows nothing of memory, beside runs that are made for it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tests.journeys.conftest import AGENTS, environment
from tests.journeys.processes import START_S, Installation, assert_sound, installed, types
from tests.journeys.test_learning import TAUGHT, readers, until_read
from tests.store.earlier import commit_before, unpacked
from tests.stubs.directed_model import DirectedModel

pytestmark = pytest.mark.timeout(400)

BEFORE_MEMORY = "0022_memories.py"
OTHERS = 4


@pytest.fixture
async def installation(
    postgres_database: str, model: DirectedModel, tmp_path: Path
) -> AsyncIterator[Installation]:
    """Processes that start from nothing: they are of several versions."""
    # None of them dies, and a machine that is busy must not make one look as if it had.
    settings = {**environment(postgres_database, model, tmp_path), "MILEPOST_LEASE_S": "20"}
    async with installed(tmp_path, settings) as installation:
        yield installation


def alive(url: str) -> int:
    """Return how many workers have a lease."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM workers WHERE dead = 0").fetchone()
    assert found is not None
    return int(found[0])


async def until_more_are_alive(url: str, than: int) -> None:
    """Wait until one more worker has a lease: some say that they work before that."""
    async with asyncio.timeout(START_S):
        while await asyncio.to_thread(alive, url) <= than:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.02)


async def test_no_run_is_made_that_a_worker_of_before_would_break(
    installation: Installation, postgres_database: str, model: DirectedModel, tmp_path: Path
) -> None:
    """It would take it for one whose agent is lost, and in the end a person would have to act."""
    try:
        code = unpacked(commit_before(BEFORE_MEMORY), tmp_path / "before")
    except LookupError as error:
        pytest.skip(f"the version before is in the history of git alone, and here is none: {error}")
    model.structured = json.dumps(TAUGHT)
    model.enough.clear()
    api = await installation.start(MILEPOST_SLOTS="0")
    new = await installation.start_worker()
    run = await api.create("slowly 20\non and on\nI am Ann.", agent="learner", user="ann")
    await api.until(run["id"], "message.started")

    workers = alive(postgres_database)
    (tmp_path / "old.toml").write_text(AGENTS.partition('[[agents]]\nname = "lead"')[0])
    old = await installation.start_worker(**code, MILEPOST_AGENTS=str(tmp_path / "old.toml"))
    await until_more_are_alive(postgres_database, than=workers)
    model.enough.set()
    assert types(await api.whole(run["id"]))[-1] == "run.completed"
    others = [await api.create(f"slowly 500\n{number} two three four") for number in range(OTHERS)]
    for other in others:
        assert types(await api.whole(other["id"]))[-1] == "run.completed"
    assert await readers(api, run["id"]) == []

    assert await old.stop() == 0
    reader = await until_read(api, run["id"], "completed")
    events = await api.whole(reader["id"])
    assert_sound(events)
    assert "run.resumed" not in types(events)
    assert await new.stop() == 0
