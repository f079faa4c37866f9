"""A batch goes on by itself: over kill -9, over several processes, each item once and in order."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from tests.journeys.processes import Event, Installation, Server, frames
from tests.journeys.test_crash import ledger

ITEMS = 200
CONCURRENCY = 8
ENDS = {"run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired"}


async def begun(server: Server, items: int = ITEMS) -> str:
    """Make a batch whose every item reserves a seat of its own; return its id."""
    body = {
        "agent": "clerk",
        "items": [
            {"input": f'call reserve {{"seat": "{n}"}}', "custom_id": f"seat {n}"}
            for n in range(items)
        ],
        "concurrency": CONCURRENCY,
        "metadata": {"journey": "batch"},
    }
    answer = await server.http.post("/v1/batches", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def progress(server: Server, batch_id: str) -> AsyncIterator[Event]:
    """Yield the frames of the batch's stream."""
    async with server.http.stream("GET", f"/v1/batches/{batch_id}/events") as response:
        assert response.status_code == 200, await response.aread()
        async for event in frames(response):
            yield event


async def until_done(server: Server, batch_id: str, count: int) -> None:
    """Follow the batch until so many of its items are over."""
    async for event in progress(server, batch_id):
        if event.data["data"]["done"] >= count:
            return


async def results(server: Server, batch_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = await server.http.get(f"/v1/batches/{batch_id}/results?limit=100{after}")
        page = answer.json()
        found += page["data"]
        if not page["has_more"]:
            return found
        after = f"&after={page['next_cursor']}"


async def logs(server: Server) -> dict[str, list[dict[str, Any]]]:
    """Return the log of every run that there is."""
    runs: list[str] = []
    after = ""
    while True:
        page = (await server.http.get(f"/v1/runs?limit=100{after}")).json()
        runs += [run["id"] for run in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['next_cursor']}"
    form = {"accept": "application/json"}
    return {
        run_id: (await server.http.get(f"/v1/runs/{run_id}/events", headers=form)).json()["data"]
        for run_id in runs
    }


def most_at_once(logs: dict[str, list[dict[str, Any]]]) -> int:
    """Return how many runs were between their first and their last event at a time, at most."""
    # What ends in a millisecond ends before what begins in it: only then was there room.
    steps = sorted(
        [(log[0]["time"], 1) for log in logs.values()]
        + [(log[-1]["time"], -1) for log in logs.values()],
        key=lambda step: (step[0], step[1]),
    )
    under_way = most = 0
    for _, step in steps:
        under_way += step
        most = max(most, under_way)
    return most


async def assert_each_item_ran_once(
    installation: Installation, server: Server, batch_id: str
) -> None:
    found = await results(server, batch_id)
    of_runs = await logs(server)

    assert [each["custom_id"] for each in found] == [f"seat {n}" for n in range(ITEMS)]
    assert [each["output"]["text"] for each in found] == [
        f"said: reserve done: {n} " for n in range(ITEMS)
    ]
    assert sorted(each["run_id"] for each in found) == sorted(of_runs)
    for log in of_runs.values():
        assert [event["type"] in ENDS for event in log] == [False] * (len(log) - 1) + [True]
    runs_of_seats = {(entry[1], entry[3]) for entry in ledger(installation.folder)}
    assert Counter(run_id for run_id, _ in runs_of_seats) == Counter(list(of_runs))
    assert most_at_once(of_runs) <= CONCURRENCY


async def test_a_batch_goes_on_after_its_process_was_killed(installation: Installation) -> None:
    server = await installation.start()
    batch_id = await begun(server)
    await until_done(server, batch_id, ITEMS // 4)
    await server.kill()

    server = await installation.start()
    seen = [event async for event in progress(server, batch_id)]

    last = seen[-1].data["data"]
    assert [event.type for event in seen][-1] == "batch.completed"
    assert (last["done"], last["counts"]["completed"]) == (ITEMS, ITEMS)
    await assert_each_item_ran_once(installation, server, batch_id)


async def test_workers_share_a_batch_and_one_may_die(postgres_installation: Installation) -> None:
    installation = postgres_installation
    server = await installation.start(MILEPOST_SLOTS="0")
    doomed = await installation.start_worker()
    await installation.start_worker()
    batch_id = await begun(server)
    await until_done(server, batch_id, ITEMS // 4)
    await doomed.kill()

    await until_done(server, batch_id, ITEMS)

    await assert_each_item_ran_once(installation, server, batch_id)


async def test_a_cancelled_batch_is_stopped_after_a_crash_too(installation: Installation) -> None:
    server = await installation.start()
    body = {
        "agent": "clerk",
        "items": [{"input": "slowly 5000\none two three"} for _ in range(20)],
        "concurrency": 3,
    }
    batch_id = (await server.http.post("/v1/batches", json=body)).json()["id"]
    async for event in progress(server, batch_id):
        if event.data["data"]["counts"]["running"]:
            break
    cancelled = await server.http.post(f"/v1/batches/{batch_id}/cancel")
    await server.kill()

    server = await installation.start()
    seen = [event async for event in progress(server, batch_id)]

    assert cancelled.json()["status"] == "cancelling"
    assert seen[-1].type == "batch.cancelled"
    assert seen[-1].data["data"]["counts"]["cancelled"] == 20
    assert len(await logs(server)) == 3
