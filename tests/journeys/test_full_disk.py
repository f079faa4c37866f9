"""A disk that is full: what is new is refused, and nothing that was begun is lost."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.full_disk import full_disk
from tests.journeys.conftest import environment
from tests.journeys.processes import Installation, Server, assert_sound, installed
from tests.journeys.test_crash import ledger, text_of
from tests.journeys.warm import Warm
from tests.stubs.directed_model import DirectedModel

ASKED_MAX = 500


@pytest.fixture
async def installation(
    sqlite_template: Path, model: DirectedModel, tmp_path: Path, warm: Warm
) -> AsyncIterator[Installation]:
    """One process on a file, whose lease outlasts the trouble on any machine."""
    file = shutil.copy(sqlite_template, tmp_path / "milepost.db")
    settings = environment(f"sqlite:///{file}", model, tmp_path) | {"MILEPOST_LEASE_S": "60"}
    async with installed(tmp_path, settings, warm) as installation:
        yield installation


async def queue_until_refused(server: Server) -> tuple[list[str], dict[str, object]]:
    """Ask for runs until one is refused; return those that were not, and the refusal."""
    accepted: list[str] = []
    for _ in range(ASKED_MAX):
        response = await server.http.post("/v1/runs", json={"agent": "clerk", "input": "hello"})
        if response.status_code != 202:
            assert int(response.headers["retry-after"]) >= 1
            return accepted, {"status": response.status_code, **response.json()}
        accepted.append(response.json()["id"])
    raise AssertionError("the disk was never full")


async def test_what_is_new_is_refused_and_all_that_was_begun_ends_once_there_is_room(
    installation: Installation,
) -> None:
    os.mkfifo(installation.folder / "gate")
    server = await installation.start("--log-json")
    charged = (await server.create('call charge {"amount": 5}'))["id"]
    await server.until(charged, "tool_call.started")
    gate = os.open(installation.folder / "gate", os.O_WRONLY)

    with full_disk(server.process.pid):
        accepted, refusal = await queue_until_refused(server)
        os.close(gate)  # The money has moved, and that cannot be written down.
        readable = await server.run(charged)
        ready = await server.http.get("/readyz")
    logs = {run_id: await server.whole(run_id) for run_id in [charged, *accepted]}
    again = await server.create("hello")
    logs[again["id"]] = await server.whole(again["id"])

    assert (refusal["status"], refusal["code"]) == (503, "database_unavailable")
    assert readable["status"] == "running"
    assert ready.status_code == 200
    for events in logs.values():
        assert_sound(events)
        assert events[-1].type == "run.completed"
    assert [entry[0] for entry in ledger(installation.folder)] == ["charge"]
    assert "charge done: 5" in text_of(logs[charged])
    said = [
        orjson.loads(line) for line in (installation.folder / "stderr").read_bytes().splitlines()
    ]
    assert any(line["event"].startswith("the database cannot be used") for line in said)
