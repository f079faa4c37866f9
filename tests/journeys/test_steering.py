"""Something is said to a run, its process is killed, and the model is told it once all the same."""

import pytest

from tests.journeys.processes import Installation, assert_sound, types
from tests.journeys.test_crash import text_of
from tests.stubs.directed_model import DirectedModel

HURRY = "And hurry."

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("heard", [False, True], ids=["unread", "read"])
async def test_what_was_said_before_a_process_was_killed_is_read_once(
    installation: Installation, model: DirectedModel, *, heard: bool
) -> None:
    model.gate.clear()
    server = await installation.start()
    run = await server.create("Write a poem.")
    await server.until(run["id"], "message.started")

    said = await server.http.post(f"/v1/runs/{run['id']}/messages", json={"content": HURRY})
    if heard:
        await server.until(run["id"], "steer.received")
    await server.kill()
    model.gate.set()
    server = await installation.start()
    events = await server.whole(run["id"])

    assert said.status_code == 202
    assert_sound(events)
    assert types(events).count("steer.received") == types(events).count("steer.applied") == 1
    told = [turn["content"] for turn in model.requests[-1]["messages"] if turn["role"] == "user"]
    assert told == ["Write a poem.", HURRY]
    assert text_of(events) == f"said: {HURRY} "
