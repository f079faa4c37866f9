"""Schedules come once each time: over kill -9, in several processes, and if nobody was there."""

import asyncio
from collections import Counter
from typing import Any

from tests.journeys.processes import Installation, Server
from tests.journeys.test_crash import ledger
from tests.store.making_schedules import let_come

SCHEDULES = 40
NEW_YEAR = "0 0 1 1 *"
WAIT_S = 60.0


async def scheduled(server: Server) -> list[str]:
    """Make schedules each of which reserves a seat of its own; return their ids."""
    made = []
    for seat in range(SCHEDULES):
        run = {"agent": "clerk", "input": f'call reserve {{"seat": "{seat}"}}'}
        body = {"cron": NEW_YEAR, "run": run}
        answer = await server.http.post("/v1/schedules", json=body)
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
    return made


async def listed(server: Server, path: str) -> list[dict[str, Any]]:
    answer = await server.http.get(f"{path}?limit=100")
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def until_came(server: Server, count: int) -> None:
    """Wait until so many of the schedules have come."""
    async with asyncio.timeout(WAIT_S):
        while True:
            rows = await listed(server, "/v1/schedules")
            if len([row for row in rows if row["last"]]) >= count:
                return
            await asyncio.sleep(0.01)


async def assert_each_came_once(
    installation: Installation, server: Server, made: list[str]
) -> None:
    await until_came(server, SCHEDULES)
    runs = await listed(server, "/v1/runs")
    for run in runs:
        await server.http.get(f"/v1/runs/{run['id']}/wait")
    rows = await listed(server, "/v1/schedules")
    assert Counter(run["metadata"]["schedule_id"] for run in runs) == Counter(made)
    assert {row["last"]["run_id"] for row in rows} == {run["id"] for run in runs}
    assert all(row["next_at"].endswith("-01-01T00:00:00.000Z") for row in rows)
    ended = [(await server.run(run["id"]))["status"] for run in runs]
    assert ended == ["completed"] * SCHEDULES
    reserved = {(entry[1], entry[3]) for entry in ledger(installation.folder)}
    assert Counter(run_id for run_id, _ in reserved) == Counter(run["id"] for run in runs)


async def test_what_came_while_nobody_was_there_is_made_up_for_once(
    installation: Installation, database_url: str
) -> None:
    server = await installation.start()
    made = await scheduled(server)
    await server.kill()
    await let_come(database_url)

    server = await installation.start()

    await assert_each_came_once(installation, server, made)


async def test_a_process_killed_as_schedules_come_leaves_a_run_of_each_or_its_time(
    installation: Installation, database_url: str
) -> None:
    server = await installation.start()
    made = await scheduled(server)
    await let_come(database_url)
    await until_came(server, 3)
    await server.kill()

    server = await installation.start()

    await assert_each_came_once(installation, server, made)


async def test_of_several_processes_one_makes_the_run(
    postgres_installation: Installation, postgres_database: str
) -> None:
    servers = [await postgres_installation.start() for _ in range(3)]
    made = await scheduled(servers[0])
    await let_come(postgres_database)
    await until_came(servers[1], 3)
    await servers[2].kill()

    await assert_each_came_once(postgres_installation, servers[0], made)
