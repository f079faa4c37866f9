"""Agents that call agents, over real processes: one child a call, whatever dies in between."""

import json

from milepost.providers.wire_names import taken_name
from tests.journeys.processes import Event, Installation, assert_sound, types

SCRIBE = taken_name("agent:clerk")
TASK = "slowly 60\none two three four five six seven eight nine ten"


def asking(task: str) -> str:
    """Return what makes the model hand the task on."""
    return f"call {SCRIBE} {json.dumps({'input': task})}"


def of(events: list[Event], kind: str) -> list[dict[str, object]]:
    """Return what the events of this kind hold."""
    return [event.data["data"] for event in events if event.type == kind]


async def test_an_agent_answers_with_what_another_one_said(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create(asking("write it down"), agent="lead")

    events = await server.whole(run["id"])

    assert_sound(events)
    [started] = of(events, "child_run.started")
    [ended] = of(events, "child_run.ended")
    assert (ended["run_id"], ended["status"]) == (started["run_id"], "completed")
    [completed] = of(events, "tool_call.completed")
    assert completed["result"] == "said: write it down "
    child = await server.whole(str(started["run_id"]))
    assert_sound(child)
    assert of(child, "run.queued")[0]["parent"] == {
        "run_id": run["id"], "call_id": "call_1_0", "depth": 1, "session_id": run["session_id"],
    }  # fmt: skip


async def test_a_process_that_dies_while_a_child_runs_loses_neither(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create(asking(TASK), agent="lead")
    events = await server.until(run["id"], "child_run.started")
    child_id = of(events, "child_run.started")[0]["run_id"]
    await server.until(str(child_id), "message.delta")
    await server.kill()

    server = await installation.start()
    events = await server.whole(run["id"])
    child = await server.whole(str(child_id))

    assert_sound(events)
    assert_sound(child)
    assert "run.resumed" in types(child)
    assert [each["run_id"] for each in of(events, "child_run.started")] == [child_id]
    assert len(of(events, "child_run.ended")) == 1
    assert types(events)[-1] == "run.completed"


async def test_cancelling_a_run_ends_its_child_too(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create(asking(TASK), agent="lead")
    events = await server.until(run["id"], "child_run.started")
    child_id = str(of(events, "child_run.started")[0]["run_id"])
    await server.until(child_id, "message.delta")

    await server.http.post(f"/v1/runs/{run['id']}/cancel")

    child = await server.whole(child_id)
    assert types(child)[-1] == "run.cancelled"
    assert types(await server.whole(run["id"]))[-1] == "run.cancelled"
