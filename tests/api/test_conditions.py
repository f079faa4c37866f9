"""Changes of the same thing at once: each is made, unless it means a version that is gone."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.api.making import a_budget, a_schedule, a_webhook, an_agent, made

RIVALS = 12

THINGS = [
    ("/v1/agents", an_agent(), "instructions"),
    ("/v1/sessions", {"title": "Sums"}, "title"),
    ("/v1/webhooks", a_webhook(), "description"),
    ("/v1/schedules", a_schedule(run={"agent": "demo", "input": "hello"}), "name"),
    ("/v1/budgets", a_budget(), "metadata"),
]


@pytest.mark.parametrize(("path", "body", "field"), THINGS)
async def test_changes_at_once_that_mean_no_version_are_all_made(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any], field: str
) -> None:
    thing = await made(client, path, body)
    values = [{"n": f"{n}"} if field == "metadata" else f"{n}" for n in range(RIVALS)]

    changes = (client.patch(f"{path}/{thing['id']}", json={field: value}) for value in values)
    answers = await asyncio.gather(*changes)

    assert [answer.status_code for answer in answers] == [200] * RIVALS
    versions = {answer.json()["version"] for answer in answers}
    assert versions == set(range(2, RIVALS + 2))
    assert [answer.json()[field] for answer in answers] == values


async def test_of_changes_at_once_that_mean_the_same_version_one_is_made(
    client: httpx2.AsyncClient,
) -> None:
    session = await made(client, "/v1/sessions", {"title": "Sums"})

    changes = (
        client.patch(
            f"/v1/sessions/{session['id']}", json={"title": f"{n}"}, headers={"if-match": '"1"'}
        )
        for n in range(RIVALS)
    )
    statuses = sorted([answer.status_code for answer in await asyncio.gather(*changes)])

    assert statuses == [200] + [412] * (RIVALS - 1)
