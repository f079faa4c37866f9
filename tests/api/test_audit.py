"""`/v1/audit`: who decided what, and who made or took back which key."""

import httpx2

from tests.api.making import a_waiting_run, an_agent, made, refusal
from tests.api.serving import KeyedService


async def test_making_a_key_is_written_down(keyed: KeyedService) -> None:
    key = await made(keyed.acme, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})

    (act,) = (await keyed.acme.get(f"/v1/audit?target={key['id']}")).json()["data"]

    admin = (await keyed.acme.get("/v1/keys?order=asc")).json()["data"][0]["id"]
    assert (act["actor"], act["action"]) == (admin, "key.created")
    assert act["actor_name"] == "acme's admin"
    assert act["details"] == {
        "name": "ci",
        "hint": key["hint"],
        "scopes": ["runs:read"],
        "subject": None,
    }
    assert act["created_at"] == key["created_at"]


async def test_a_decision_is_written_down_with_what_was_seen(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    await a_waiting_run(keyed.acme)
    approver = await keyed.holding("approvals:decide")
    (asked,) = (await approver.get("/v1/approvals?status=pending")).json()["data"]

    await made(approver, f"/v1/approvals/{asked['id']}/decision", {"decision": "deny"})

    (act,) = (await keyed.acme.get("/v1/audit?action=approval.decided")).json()["data"]
    assert (act["actor_name"], act["target"]) == ("acme approvals:decide", asked["id"])
    assert act["details"]["decision"] == "deny"
    assert act["details"]["seen"]["arguments"] == asked["arguments"]


async def test_acts_of_keys_with_the_same_name_are_told_apart(keyed: KeyedService) -> None:
    actors = []
    for _ in range(2):
        twin = await keyed.holding("admin")
        await made(twin, "/v1/keys", {"name": "made by a twin", "scopes": ["runs:read"]})
        actors.append((await keyed.acme.get("/v1/audit?limit=1")).json()["data"][0])

    assert {act["actor_name"] for act in actors} == {"acme admin"}
    assert len({act["actor"] for act in actors}) == 2
    found = (await keyed.acme.get(f"/v1/audit?actor={actors[0]['actor']}")).json()["data"]
    assert found == [actors[0]]


async def test_acts_are_found_by_who_what_and_when(client: httpx2.AsyncClient) -> None:
    key = await made(client, "/v1/keys", {"name": "ci", "scopes": ["runs:read"]})
    await client.delete(f"/v1/keys/{key['id']}")

    async def found(**params: str) -> list[str]:
        listed = (await client.get("/v1/audit", params=params)).json()
        return [act["action"] for act in listed["data"]]

    assert await found() == ["key.revoked", "key.created"]
    assert await found(order="asc") == ["key.created", "key.revoked"]
    assert await found(action="key.created") == ["key.created"]
    assert await found(actor="local", target=key["id"]) == ["key.revoked", "key.created"]
    assert await found(actor="nobody") == []
    assert await found(created_before=key["created_at"]) == []
    assert await found(created_after="2020-01-01T00:00:00Z") == ["key.revoked", "key.created"]


async def test_acts_come_in_pages(client: httpx2.AsyncClient) -> None:
    for n in range(3):
        await made(client, "/v1/keys", {"name": f"k{n}", "scopes": ["runs:read"]})

    first = (await client.get("/v1/audit?limit=2")).json()
    rest = (await client.get(f"/v1/audit?limit=2&after={first['next_cursor']}")).json()

    names = [act["details"]["name"] for act in first["data"] + rest["data"]]
    assert (names, rest["has_more"]) == (["k2", "k1", "k0"], False)


async def test_what_was_refused_is_not_written_down(client: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "k1"}
    body = {"name": "ci", "scopes": ["runs:read"]}
    await client.post("/v1/keys", json=body, headers=key)
    replayed = await client.post("/v1/keys", json=body, headers=key)
    reused = await client.post("/v1/keys", json={**body, "name": "x"}, headers=key)

    acts = (await client.get("/v1/audit")).json()["data"]

    assert (replayed.status_code, refusal(reused)[0]) == (201, 422)
    assert len(acts) == 1


async def test_only_an_administrator_reads_the_audit_trail(keyed: KeyedService) -> None:
    other = await keyed.holding("runs:read", "runs:write", "agents:write", "approvals:decide")

    assert refusal(await other.get("/v1/audit")) == (403, "missing_scope")
