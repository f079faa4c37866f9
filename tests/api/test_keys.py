"""`/v1/keys`: who may call, for which tenant and with which rights."""

import asyncio
from typing import Any

import pytest

from milepost.runtime.credentials import SCOPES
from tests.api.making import an_agent, an_ended_batch, made, refusal
from tests.api.serving import KeyedService, Service, serving, settings_for


async def test_a_key_is_shown_once_when_it_is_made(keyed: KeyedService) -> None:
    body = {"name": "ci", "scopes": ["runs:read"], "subject": "robot", "expires_days": 1}
    answer = await keyed.acme.post("/v1/keys", json=body)

    key = answer.json()
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    assert key["key"].startswith("mp_")
    assert len(key["key"]) == 46
    assert (key["name"], key["scopes"], key["subject"]) == ("ci", ["runs:read"], "robot")
    shown = (await keyed.acme.get(answer.headers["location"])).json()
    assert shown == {name: value for name, value in key.items() if name != "key"}
    assert key["key"].endswith(shown["hint"][-4:])


async def test_no_answer_but_the_first_has_the_key(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})

    for path in ("/v1/keys", f"/v1/keys/{key['id']}", "/v1/audit"):
        assert key["key"] not in (await keyed.acme.get(path)).text
        assert key["id"] in (await keyed.acme.get(path)).text


async def test_a_key_opens_what_its_scopes_say_and_no_more(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})
    reader = await keyed.with_key(key["key"])

    reads = await reader.get("/v1/agents")
    makes = await reader.post("/v1/keys", json={"name": "x", "scopes": ["admin"]})

    assert reads.status_code == 200
    assert refusal(makes) == (403, "missing_scope")


async def test_a_revoked_key_is_refused_at_once(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})
    holder = await keyed.with_key(key["key"])
    before = await holder.get("/v1/runs")

    revoked = await keyed.acme.delete(f"/v1/keys/{key['id']}")
    after = await holder.get("/v1/runs")

    assert before.status_code == 200
    assert (revoked.status_code, revoked.json()["revoked_at"] is not None) == (200, True)
    assert refusal(after) == (401, "invalid_key")


async def test_revoking_twice_changes_nothing(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})
    first = await keyed.acme.delete(f"/v1/keys/{key['id']}")

    again = await keyed.acme.delete(f"/v1/keys/{key['id']}")

    acts = (await keyed.acme.get(f"/v1/audit?target={key['id']}")).json()["data"]
    assert again.json() == first.json()
    assert [act["action"] for act in acts] == ["key.revoked", "key.created"]


async def test_a_key_that_is_not_there_is_a_404(keyed: KeyedService) -> None:
    answers = [await keyed.acme.get("/v1/keys/key_0"), await keyed.acme.delete("/v1/keys/key_0")]

    assert [refusal(answer) for answer in answers] == [(404, "key_not_found")] * 2


async def test_keys_are_listed_with_those_that_were_revoked(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})
    await keyed.acme.delete(f"/v1/keys/{key['id']}")

    page = (await keyed.acme.get("/v1/keys?limit=1")).json()
    rest = (await keyed.acme.get(f"/v1/keys?after={page['next_cursor']}")).json()

    assert [(each["id"], each["revoked_at"] is None) for each in page["data"]] == [
        (key["id"], False)
    ]
    assert [each["name"] for each in rest["data"]] == ["acme's admin"]


async def test_a_replay_tells_the_key_but_not_its_secret(keyed: KeyedService) -> None:
    body, key = {"name": "ci", "scopes": ["runs:read"]}, {"idempotency-key": "k1"}
    first = await keyed.acme.post("/v1/keys", json=body, headers=key)

    again = await keyed.acme.post("/v1/keys", json=body, headers=key)

    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert again.json() == {**first.json(), "key": None}


async def test_the_same_request_many_times_at_once_makes_one_key(keyed: KeyedService) -> None:
    body, key = {"name": "ci", "scopes": ["runs:read"]}, {"idempotency-key": "k1"}

    answers = await asyncio.gather(
        *(keyed.acme.post("/v1/keys", json=body, headers=key) for _ in range(4))
    )

    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum(answer.json()["key"] is not None for answer in answers) == 1


async def test_what_does_not_fit_a_key_is_pointed_at(keyed: KeyedService) -> None:
    unfit: dict[str, dict[str, Any]] = {
        "/name": {"name": ""},
        "/scopes": {"scopes": []},
        "/scopes/0": {"scopes": ["root"]},
        "/subject": {"subject": "a\nb"},
        "/expires_days": {"expires_days": 0},
        "/tenant": {"tenant": "globex"},
    }

    for pointer, change in unfit.items():
        body = {"name": "ci", "scopes": ["runs:read"], **change}
        answer = await keyed.acme.post("/v1/keys", json=body)
        assert refusal(answer) == (422, "invalid_request")
        assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_scope_is_named_once(keyed: KeyedService) -> None:
    body = {"name": "ci", "scopes": ["runs:read", "runs:read"]}

    answer = await keyed.acme.post("/v1/keys", json=body)

    assert answer.json()["errors"][0]["pointer"] == "/scopes"


async def test_a_service_asks_for_keys_from_the_start_after_the_first_one(
    database_url: str,
) -> None:
    async def asked_without_a_key(service: Service) -> int:
        async with service.client() as stranger:
            return (await stranger.get("/v1/runs")).status_code

    settings = settings_for(database_url)
    async with serving(settings) as service, service.client() as client:
        await made(client, "/v1/keys", {"name": "me", "scopes": list(SCOPES)})
        still_open = await asked_without_a_key(service)
    async with serving(settings) as service:
        keyed = await asked_without_a_key(service)

    assert (still_open, keyed) == (200, 401)


async def test_a_key_may_have_scopes_of_the_installation_s_own_which_open_no_route(
    keyed: KeyedService,
) -> None:
    body = {"name": "ci", "scopes": ["scope:refunds"]}
    key = await made(keyed.acme, "/v1/keys", body)

    client = await keyed.with_key(key["key"])

    assert key["scopes"] == ["scope:refunds"]
    assert refusal(await client.get("/v1/runs")) == (403, "missing_scope")


@pytest.mark.parametrize("scope", ["refunds", "scope:", "scope:a b", "scope:Refunds", "scope:a:b"])
async def test_a_scope_of_one_s_own_is_called_so(keyed: KeyedService, scope: str) -> None:
    answer = await keyed.acme.post("/v1/keys", json={"name": "ci", "scopes": [scope]})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/scopes/0"


async def test_what_a_key_has_asked_for_is_found_by_it_also_once_it_is_revoked(
    keyed: KeyedService,
) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read", "runs:write"]})
    holder = await keyed.with_key(key["key"])
    await made(keyed.acme, "/v1/agents", an_agent())
    run = await made(holder, "/v1/runs", {"agent": "clerk", "input": "Hello"})
    batch = await an_ended_batch(holder, ["Hello"])
    await made(keyed.acme, "/v1/runs", {"agent": "clerk", "input": "Hello"})
    await keyed.acme.delete(f"/v1/keys/{key['id']}")

    runs = (await keyed.acme.get(f"/v1/runs?made_by={key['id']}&order=asc")).json()["data"]
    batches = (await keyed.acme.get(f"/v1/batches?made_by={key['id']}")).json()["data"]
    others = (await keyed.acme.get("/v1/runs?made_by=key_0")).json()["data"]

    assert [each["made_by"] for each in (*runs, *batches)] == [key["id"]] * 3
    assert (runs[0]["id"], len(runs)) == (run["id"], 2)
    assert [each["id"] for each in batches] == [batch["id"]]
    assert others == []
