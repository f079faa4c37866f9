"""Learning, over real processes: whenever one is killed, each run is read and learned of once."""

import asyncio
import json
from typing import Any

import pytest

from tests.journeys.processes import Installation, Server, assert_sound, types
from tests.stubs.directed_model import DirectedModel

WAIT_S = 60.0
PAUSE_S = 0.02
TAUGHT = {
    "entities": [{"name": "Ann", "type": "person", "description": "a painter", "message": 0}],
    "relations": [],
    "facts": [{"text": "Ann is allergic to nuts.", "lasting": True, "message": 0}],
}


async def readers(server: Server, run_id: str) -> list[dict[str, Any]]:
    """Return the runs that read this one."""
    answer = await server.http.get(f"/v1/runs?parent_run_id={run_id}")
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def until_read(server: Server, run_id: str, *statuses: str) -> dict[str, Any]:
    """Wait until a run that reads this one stands like this."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for reader in await readers(server, run_id):
                if reader["status"] in statuses:
                    return reader
            await asyncio.sleep(PAUSE_S)


@pytest.mark.parametrize("point", ["answered", "asking", "learned"])
async def test_a_run_is_learned_of_once_wherever_the_process_is_killed(
    installation: Installation, model: DirectedModel, point: str
) -> None:
    model.structured = json.dumps(TAUGHT)
    server = await installation.start()
    run = await server.create("I am Ann.", agent="learner", user="ann")
    async for event in server.events(run["id"]):
        if event.type == "message.completed" and point != "learned":
            model.gate.clear()
    if point == "asking":
        await until_read(server, run["id"], "running")
    if point == "learned":
        await until_read(server, run["id"], "completed")
    await server.kill()
    model.gate.set()

    server = await installation.start()
    reader = await until_read(server, run["id"], "completed")

    assert len(await readers(server, run["id"])) == 1
    events = await server.whole(reader["id"])
    assert_sound(events)
    assert types(events).count("memory.extracted") == 1
    kept = (await server.http.get("/v1/memories?user=ann")).json()["data"]
    assert sorted(each["mentions"] for each in kept) == [1, 1]
