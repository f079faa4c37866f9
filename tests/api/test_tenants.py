"""Nothing of one tenant is visible to another, whichever way it is asked for."""

from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from tests.api.making import an_agent, refusal
from tests.api.serving import KeyedService
from tests.api.surface import MARK, NOTHING, SURFACE, call, stocked

FILTERS = ("agent", "session_id", "run_id")


@pytest.fixture
async def acmes(keyed: KeyedService) -> dict[str, str]:
    """What acme has, one of everything; globex has an agent of the same name."""
    answer = await keyed.globex.post("/v1/agents", json=an_agent())
    assert answer.status_code == 201
    return await stocked(keyed.acme)


async def everything(client: httpx2.AsyncClient, things: dict[str, str]) -> dict[str, Any]:
    """Return all that a client can read, but for what the clock alone changes."""
    answers = {
        str(endpoint): await client.get(endpoint.path_to(things))
        for endpoint in SURFACE
        if endpoint.method == "GET"
        and not endpoint.path.endswith(("/events", "/wait", "/pending", "/export"))
        and "artifact_id" not in endpoint.path
        and "deliveries" not in endpoint.path
        and "grant_id" not in endpoint.path
    }
    shown = {name: answer.json() for name, answer in answers.items()}
    shown["GET /v1/admin/storage"] = shown["GET /v1/admin/storage"]["tenant"]  # the rest is shared
    del shown["GET /v1/queue"]["slots"]  # the process' own, whoever keeps them busy
    return shown


async def test_the_walks_below_know_every_route(keyed: KeyedService) -> None:
    served = {
        f"{method} {route.path_format}"
        for route in keyed.service.app.routes
        if isinstance(route, Route) and route.path.startswith("/v1/")
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert served == {str(endpoint) for endpoint in SURFACE}


async def test_what_another_tenant_has_is_not_there(
    keyed: KeyedService, acmes: dict[str, str]
) -> None:
    owned = [endpoint for endpoint in SURFACE if endpoint.owned and endpoint.method != "PUT"]

    for endpoint in owned:
        foreign = await call(keyed.globex, endpoint, acmes)
        absent = await call(keyed.globex, endpoint, NOTHING)
        assert (str(endpoint), *refusal(foreign)) == (str(endpoint), *refusal(absent))
        assert foreign.status_code == 404


async def test_nothing_that_another_tenant_does_changes_ours(
    keyed: KeyedService, acmes: dict[str, str]
) -> None:
    before = await everything(keyed.acme, acmes)

    for endpoint in SURFACE:
        await call(keyed.globex, endpoint, acmes)

    assert await everything(keyed.acme, acmes) == before


async def test_no_list_tells_of_another_tenant(keyed: KeyedService, acmes: dict[str, str]) -> None:
    mine = (MARK, *(thing for thing in acmes.values() if "_" in thing))
    lists = [each for each in SURFACE if each.method == "GET" and not each.owned]

    for endpoint in lists:
        seen = (await call(keyed.globex, endpoint, acmes)).text
        assert [thing for thing in mine if thing in seen] == [], endpoint
    for path in ("/v1/runs", "/v1/traces", "/v1/approvals"):
        for name in FILTERS:
            asked = await keyed.globex.get(path, params={name: acmes.get(name, "")})
            assert asked.status_code == 400 or asked.json()["data"] == []


async def test_no_sum_has_another_tenants_part(keyed: KeyedService, acmes: dict[str, str]) -> None:
    ours = (await keyed.acme.get("/v1/usage?group_by=agent,tenant")).json()["data"]
    theirs = (await keyed.globex.get("/v1/usage?group_by=agent,tenant")).json()["data"]
    tools = (await keyed.globex.get("/v1/usage?group_by=tool")).json()["data"]
    queue = (await keyed.globex.get("/v1/queue")).json()

    assert [group["agent"] for group in ours] == ["clerk"]
    assert (theirs, tools, queue["waiting"]) == ([], [], 0)


async def test_another_tenants_things_cannot_be_named_in_a_body(
    keyed: KeyedService, acmes: dict[str, str]
) -> None:
    clerk = {"agent": "clerk", "input": "hello"}
    session = await keyed.globex.post("/v1/runs", json={**clerk, "session_id": acmes["session_id"]})
    agent = await keyed.globex.post("/v1/runs", json={**clerk, "agent": acmes["agent"]})
    decision = {"approval_id": acmes["approval_id"], "decision": "approve"}
    many = await keyed.globex.post("/v1/approvals/decisions", json={"decisions": [decision]})

    assert refusal(session) == (404, "session_not_found")
    assert refusal(agent) == (404, "agent_not_found")
    assert many.json()["data"][0]["problem"]["code"] == "approval_not_found"
    (waiting,) = (await keyed.acme.get("/v1/approvals?status=pending")).json()["data"]
    assert waiting["id"] == acmes["approval_id"]


async def test_each_tenant_has_its_own_names_and_keys(keyed: KeyedService) -> None:
    key = {"idempotency-key": "k1"}

    answers = [
        await client.post("/v1/agents", json=an_agent(), headers=key)
        for client in (keyed.acme, keyed.globex)
    ]
    for client, value in ((keyed.acme, "a"), (keyed.globex, "b")):
        await client.put("/v1/secrets/token", json={"value": value})
    await keyed.globex.delete("/v1/secrets/token")

    assert [answer.status_code for answer in answers] == [201, 201]
    assert len({answer.json()["id"] for answer in answers}) == 2
    assert "idempotency-replayed" not in answers[1].headers
    assert (await keyed.acme.get("/v1/secrets")).json()["data"] == [{"name": "token"}]


async def test_a_cursor_of_another_tenant_shows_only_ours(
    keyed: KeyedService, acmes: dict[str, str]
) -> None:
    listed = await keyed.globex.get(f"/v1/agents?order=asc&after={acmes['agent']}")
    before = await keyed.globex.get(f"/v1/agents?after={acmes['agent']}")

    seen = listed.json()["data"] + before.json()["data"]
    assert [agent["name"] for agent in seen] == ["clerk"]
    assert acmes["agent"] not in {agent["id"] for agent in seen}


async def test_keys_are_made_for_the_callers_tenant_alone(keyed: KeyedService) -> None:
    reader = await keyed.holding("runs:read", tenant="globex")
    await keyed.acme.post("/v1/agents", json=an_agent())

    assert (await reader.get("/v1/agents")).json()["data"] == []
