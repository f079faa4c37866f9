"""`/v1/queue`: how much waits and runs, and how many slots there are for it."""

import httpx2

from tests.api.asking import equipped, parked, started
from tests.api.serving import KeyedService, serving, settings_for


async def test_the_queue_says_why_runs_wait_in_it(database_url: str) -> None:
    async with serving(settings_for(database_url, slots=0)) as service, service.client() as client:
        session = (await client.post("/v1/sessions", json={})).json()["id"]
        await started(client, "first", session_id=session)
        await started(client, "second", session_id=session)
        await started(client, "third", session_id=session)
        await started(client, "later", delay_s=1_000)

        shown = (await client.get("/v1/queue")).json()

    assert shown == {
        "queued": {"ready": 1, "scheduled": 1, "blocked": 2},
        "running": 0,
        "waiting": 0,
        "slots": {"total": 0, "busy": 0},
    }


async def test_a_run_that_waits_for_a_person_takes_no_slot(client: httpx2.AsyncClient) -> None:
    await parked(client)

    shown = (await client.get("/v1/queue")).json()

    assert (shown["waiting"], shown["running"]) == (1, 0)
    assert shown["slots"] == {"total": 8, "busy": 0}


async def test_the_queue_counts_the_caller_s_own_runs(keyed: KeyedService) -> None:
    await parked(await equipped(keyed.acme))

    of_acme = (await keyed.acme.get("/v1/queue")).json()
    of_globex = (await keyed.globex.get("/v1/queue")).json()

    assert (of_acme["waiting"], of_globex["waiting"]) == (1, 0)


async def test_the_queue_is_for_those_who_may_read_runs(keyed: KeyedService) -> None:
    writer = await keyed.holding("runs:write")

    answer = await writer.get("/v1/queue")

    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
