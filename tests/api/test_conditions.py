"""Changes of the same thing at once: each is made, unless it means a version that is gone."""

import asyncio
from typing import Any

import httpx2
import pytest

from tests.api.making import a_budget, a_schedule, a_webhook, an_agent, made, refusal
from tests.api.surface import SURFACE, Endpoint, call, stocked, stored
from tests.contract import CONTRACT

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


CHANGES = [endpoint for endpoint in SURFACE if endpoint.method not in {"GET", "HEAD"}]


@pytest.mark.parametrize(
    "headers",
    [{"if-match": '"of nothing"'}, {"if-match": '"9", "8"'}, {"if-none-match": "*"}],
    ids=lambda headers: " ".join(*headers.items()),
)
async def test_no_change_is_made_under_a_condition_that_nobody_compares(
    client: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    """Whoever sends one relies on it: a rival's change would be overwritten unseen."""
    things = await stocked(client)
    before = await stored(client)

    for endpoint in CHANGES:
        answer = await call(client, endpoint, things, headers)
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 412, "precondition_failed")

    assert await stored(client) == before


async def test_versions_are_compared_exactly_where_the_contract_takes_them(
    client: httpx2.AsyncClient,
) -> None:
    things = await stocked(client)

    for endpoint in CHANGES:
        answer = await call(client, endpoint, things, {"if-match": '"of nothing"'})
        compared = "has the ETag" in answer.json()["detail"]
        assert (str(endpoint), compared) == (str(endpoint), takes_versions(endpoint))


def takes_versions(endpoint: Endpoint) -> bool:
    """Say whether the contract lists `If-Match` there."""
    operation = CONTRACT["paths"][endpoint.path][endpoint.method.lower()]
    named = (each.get("$ref", "") for each in operation.get("parameters", ()))
    return "#/components/parameters/IfMatch" in named


async def test_any_version_is_meant_where_there_are_none(client: httpx2.AsyncClient) -> None:
    run = await client.post(
        "/v1/runs", json={"agent": "demo", "input": "hello"}, headers={"if-match": "*"}
    )

    assert run.status_code == 202


async def test_what_is_only_read_goes_by_no_condition_of_changes(
    client: httpx2.AsyncClient,
) -> None:
    for name in ("if-match", "if-none-match"):
        answer = await client.get("/v1/agents", headers={name: '"of nothing"'})
        assert answer.status_code == 200


async def test_what_nobody_serves_is_the_greater_mistake(client: httpx2.AsyncClient) -> None:
    for path, fault in (("/v1/keys", "method_not_allowed"), ("/v1/nothing", "not_found")):
        answer = await client.delete(path, headers={"if-match": '"1"'})
        assert refusal(answer)[1] == fault
