"""The third journey: kill -9 in the middle of a run, and nothing is lost or done twice."""

import os
from pathlib import Path

from tests.journeys.processes import Event, Installation, Server, assert_sound, types


def ledger(folder: Path) -> list[list[str]]:
    """Return what the tools did: name, run, call and key of each."""
    return [line.split() for line in (folder / "ledger").read_text().splitlines()]


def open_gate(folder: Path) -> None:
    """Let the tools that wait go on, and those that come later pass."""
    (folder / "gate").unlink()


def text_of(events: list[Event]) -> str:
    """Return the run's answer."""
    assert events[-1].type == "run.completed", events[-1]
    text: str = events[-1].data["data"]["output"]["text"]
    return text


async def killed_inside_a_tool(installation: Installation, said: str) -> tuple[Server, str]:
    """Start a run, kill its server while its tool runs, start another; return that and the run."""
    os.mkfifo(installation.folder / "gate")
    server = await installation.start()
    run = await server.create(said)
    await server.until(run["id"], "tool_call.started")
    # The tool writes its line before it waits at the gate, and opening the gate's other end
    # succeeds only when the tool has come there.
    holder = os.open(installation.folder / "gate", os.O_WRONLY)
    await server.kill()
    os.close(holder)
    open_gate(installation.folder)
    return await installation.start(), run["id"]


async def test_a_run_goes_on_after_its_process_was_killed(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create("slowly 50\none two three four five six seven eight nine ten")
    await server.until(run["id"], "message.delta")
    await server.kill()

    server = await installation.start()
    events = await server.whole(run["id"])

    assert_sound(events)
    assert "run.resumed" in types(events)
    assert "message.aborted" in types(events)
    aborted = {
        event.data["data"]["message_id"] for event in events if event.type == "message.aborted"
    }
    read = "".join(
        event.data["data"]["text"]
        for event in events
        if event.type == "message.delta" and event.data["data"]["message_id"] not in aborted
    )
    assert read == text_of(events)


async def test_a_tool_declared_once_is_not_run_again(installation: Installation) -> None:
    server, run_id = await killed_inside_a_tool(installation, 'call charge {"amount": 5}')

    events = await server.whole(run_id)

    assert_sound(events)
    assert [entry[0] for entry in ledger(installation.folder)] == ["charge"]
    assert "tool_call.interrupted" in types(events)
    assert "outcome_unknown" in text_of(events)


async def test_an_idempotent_tool_is_run_again_with_the_same_key(
    installation: Installation,
) -> None:
    server, run_id = await killed_inside_a_tool(installation, 'call reserve {"seat": "4A"}')

    events = await server.whole(run_id)

    assert_sound(events)
    first, second = ledger(installation.folder)
    assert first == second
    assert text_of(events) == "said: reserve done: 4A "


async def test_what_a_killed_worker_had_reserved_of_a_budget_is_given_back(
    installation: Installation,
) -> None:
    server = await installation.start()
    limits = {"model_calls": 1}
    said = {"scope": "tenant", "period": "total", "limits": limits}
    budget = (await server.http.post("/v1/budgets", json=said)).json()
    run = await server.create("slowly 50\none two three four five six seven eight nine ten")
    await server.until(run["id"], "message.delta")
    await server.kill()

    server = await installation.start()
    events = await server.whole(run["id"])

    assert "message.aborted" in types(events)
    assert events[-1].type == "run.completed"
    shown = (await server.http.get(f"/v1/budgets/{budget['id']}")).json()
    [counter] = shown["counters"]["data"]
    assert (counter["spent"], counter["reserved"]) == (limits, {"model_calls": 0})


async def test_a_client_resumes_across_the_crash_without_a_gap(
    installation: Installation,
) -> None:
    server = await installation.start()
    run = await server.create("slowly 50\none two three four five six seven eight nine ten")
    before = await server.until(run["id"], "message.delta")
    await server.kill()

    server = await installation.start()
    after = [event async for event in server.events(run["id"], after=before[-1].id)]

    assert_sound([*before, *after])


async def test_a_drained_process_hands_its_run_over(installation: Installation) -> None:
    server = await installation.start()
    run = await server.create("slowly 50\none two three four five six seven eight nine ten")
    events = []
    async for event in server.events(run["id"]):
        events.append(event)
        if event.type == "message.delta":
            server.process.terminate()

    assert await server.process.wait() == 0
    assert events[-1].type == "stream.reconnect"
    server = await installation.start()
    whole = await server.whole(run["id"])
    assert_sound(whole)
    assert "run.retrying" in types(whole)
    resumed = next(event for event in whole if event.type == "run.resumed")
    assert resumed.data["data"]["why"] == "drain"


async def test_a_dead_workers_run_is_taken_over_by_a_living_one(
    postgres_installation: Installation,
) -> None:
    installation = postgres_installation
    server = await installation.start(MILEPOST_SLOTS="0")
    worker = await installation.start_worker()
    run = await server.create("slowly 400\none two three four five six seven eight nine ten")
    await server.until(run["id"], "message.started")
    await worker.kill()
    await installation.start_worker()

    events = await server.whole(run["id"])

    assert_sound(events)
    resumed = next(event for event in events if event.type == "run.resumed")
    assert resumed.data["data"]["why"] == "crash"
