"""The fourth journey: kill -9 at every step between question and result, and once means once."""

import os
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from tests.journeys.processes import Installation, Server, assert_sound, types
from tests.journeys.test_crash import ledger

ROUNDS = 3
PLACES = ("door", "gate")
VISITS = 6


def lines(folder: Path) -> list[list[str]]:
    """Return what the tools did, which may be nothing."""
    return ledger(folder) if (folder / "ledger").exists() else []


def open_gates(folder: Path) -> None:
    """Let all tools pass."""
    for gate in ("gate_before", "gate"):
        (folder / gate).unlink(missing_ok=True)


async def settled(server: Server, run_id: str, folder: Path) -> dict[str, Any]:
    """Answer the run's questions truly until it is over, and return it."""
    while True:
        shown: dict[str, Any] = (
            await server.http.get(f"/v1/runs/{run_id}/wait?timeout_s=1")
        ).json()
        if shown["ended_at"]:
            return shown
        for asked in await server.pending(run_id):
            if asked["kind"] == "call":
                await server.decide(asked["id"], decision="approve")
            elif lines(folder):
                await server.decide(asked["id"], decision="happened", result="it is done")
            else:
                await server.decide(asked["id"], decision="not_happened")


async def killed_at(point: str, server: Server, run_id: str, folder: Path) -> None:
    """Bring the run to this point and kill its process there, tools waiting at gates if need be."""
    await server.until(run_id, "run.waiting")
    if point != "asked":
        [asked] = await server.pending(run_id)
        await server.decide(asked["id"], decision="approve")
    holder = None
    if point in {"started", "acted"}:
        await server.until(run_id, "tool_call.started")
        # Opening this end succeeds only when the tool has come there.
        gate = "gate_before" if point == "started" else "gate"
        holder = os.open(folder / gate, os.O_WRONLY)
    if point == "completed":
        await server.until(run_id, "tool_call.completed")
    await server.kill()
    if holder is not None:
        os.close(holder)


@pytest.mark.parametrize("point", ["asked", "decided", "started", "acted", "completed"])
async def test_once_means_once_wherever_the_process_is_killed(
    installation: Installation, point: str
) -> None:
    folder = installation.folder
    if point in {"decided", "started"}:
        os.mkfifo(folder / "gate_before")
    if point == "acted":
        os.mkfifo(folder / "gate")
    server = await installation.start()
    run = await server.create('call refund {"order": 7}')
    await killed_at(point, server, run["id"], folder)
    open_gates(folder)

    server = await installation.start()
    ended = await settled(server, run["id"], folder)

    events = await server.whole(run["id"])
    assert_sound(events)
    assert ended["status"] == "completed"
    assert [entry[0] for entry in lines(folder)] == ["refund"]
    listed = await server.http.get(f"/v1/runs/{run['id']}/tool_calls")
    [call] = listed.json()["data"]
    assert call["state"] == "completed"
    asked = [event.data["data"] for event in events if event.type == "approval.requested"]
    kinds = [each.get("kind", "call") for each in asked]
    if point in {"started", "acted"}:
        assert kinds == ["call", "outcome"]
        assert "interrupted" in [attempt["outcome"] for attempt in call["attempts"]]
        assert call["result"] == ("it is done" if point == "acted" else "refund done: 7")
    if point in {"asked", "completed"}:
        assert kinds == ["call"]


@pytest.mark.parametrize("point", ["started", "acted"])
async def test_what_can_be_looked_up_is_done_once_and_nobody_is_asked(
    installation: Installation, point: str
) -> None:
    folder = installation.folder
    gate = folder / ("gate_before" if point == "started" else "gate")
    os.mkfifo(gate)
    server = await installation.start()
    run = await server.create('call book {"room": 7}')
    await server.until(run["id"], "tool_call.started")
    holder = os.open(gate, os.O_WRONLY)
    await server.kill()
    os.close(holder)
    open_gates(folder)

    server = await installation.start()
    events = await server.whole(run["id"])

    assert_sound(events)
    assert [entry[0] for entry in lines(folder)] == ["book"]
    assert "approval.requested" not in types(events)
    [checked] = [event.data["data"] for event in events if event.type == "tool_call.checked"]
    assert checked["found"] == ("absent" if point == "started" else "found")
    said = "book done: 7" if point == "started" else "book done, says the ledger"
    assert said in events[-1].data["data"]["output"]["text"]


def execute(database_url: str, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement in the runs' database, from outside."""
    if database_url.startswith("sqlite"):
        with sqlite3.connect(database_url.removeprefix("sqlite:///"), timeout=30) as file:
            found = file.execute(sql).fetchall()
        file.close()
        return found
    with psycopg.connect(database_url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


async def test_what_a_transaction_counts_is_what_was_completed_whenever_it_is_killed(
    installation: Installation, database_url: str
) -> None:
    chance = Random(7)
    server = await installation.start()
    execute(database_url, "CREATE TABLE visitors (place TEXT PRIMARY KEY, many INTEGER)")
    for place in PLACES:
        execute(database_url, f"INSERT INTO visitors VALUES ('{place}', 0)")
    said = "\n".join(f'call count {{"place": "{PLACES[n % 2]}"}}' for n in range(VISITS))
    ids = []
    for _ in range(ROUNDS):
        started = [await server.create(said) for _ in range(2)]
        ids += [run["id"] for run in started]
        left = chance.randrange(VISITS)
        async for event in server.events(ids[-1]):
            if event.type == "tool_call.completed":
                left -= 1
            if left < 0:
                break
        await server.kill()
        server = await installation.start()

    ended = [await settled(server, run_id, installation.folder) for run_id in ids]

    assert [run["status"] for run in ended] == ["completed"] * len(ids)
    completed = 0
    for run_id in ids:
        events = await server.whole(run_id)
        assert_sound(events)
        completed += types(events).count("tool_call.completed")
    counted = execute(database_url, "SELECT sum(many) FROM visitors")
    assert [row[0] for row in counted] == [completed] == [VISITS * len(ids)]
