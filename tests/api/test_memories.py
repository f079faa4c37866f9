"""Memories over HTTP: kept, looked for, corrected, exported and forgotten."""

import asyncio
from typing import Any

import httpx2
import orjson
import pytest

from tests.api.making import a_memory, an_agent, made, refusal
from tests.api.serving import KeyedService

TEA = {"scope": "user", "owner": "ann", "kind": "fact", "content": "Ann likes green tea."}
PAINTER = {
    "scope": "user",
    "owner": "ann",
    "kind": "entity",
    "subject": "Oda",
    "content": "a painter",
    "attributes": {"type": "person"},
}
KNOWS = {
    "scope": "user",
    "owner": "ann",
    "kind": "relation",
    "subject": "Ann",
    "predicate": "knows",
    "object": "Oda",
}


LINES = {"accept": "application/x-ndjson"}


async def listed(client: httpx2.AsyncClient, **params: Any) -> list[str]:
    """Return what the memories that are listed say."""
    answer = await client.get("/v1/memories", params=params)
    assert answer.status_code == 200, answer.text
    return [each["content"] or each["subject"] for each in answer.json()["data"]]


@pytest.mark.parametrize("said", [TEA, PAINTER, KNOWS, a_memory()])
async def test_a_memory_is_shown_as_it_was_made(
    client: httpx2.AsyncClient, said: dict[str, Any]
) -> None:
    answer = await client.post("/v1/memories", json=said)

    assert answer.status_code == 201
    memory = answer.json()
    assert memory == {
        "owner": None, "subject": None, "predicate": None, "object": None, "content": None,
        "attributes": {},
        **said,
        "id": memory["id"],
        "mentions": 1,
        "user": said.get("owner"),
        "source": {"origin": "client", "run_id": None, "session_id": None, "message": None},
        "version": 1,
        "created_at": memory["created_at"],
        "updated_at": memory["created_at"],
        "mentioned_at": memory["created_at"],
    }  # fmt: skip
    assert answer.headers["location"] == f"/v1/memories/{memory['id']}"
    assert answer.headers["etag"] == '"1"'
    assert (await client.get(answer.headers["location"])).json() == memory


async def test_what_is_known_is_not_known_twice(client: httpx2.AsyncClient) -> None:
    first = await made(client, "/v1/memories", TEA)

    again = await client.post("/v1/memories", json={**TEA, "content": "ANN likes green tea"})

    assert again.status_code == 200
    assert (again.json()["id"], again.json()["mentions"]) == (first["id"], 2)
    assert len(await listed(client)) == 1


async def test_a_repeated_request_keeps_it_once(client: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "memory-1"}

    answers = [await client.post("/v1/memories", json=TEA, headers=key) for _ in range(2)]

    first, again = (answer.json() for answer in answers)
    assert first == again
    assert answers[1].headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"kind": "entity"}, "/subject"),
        ({"kind": "relation", "subject": "a", "object": "b"}, "/predicate"),
        ({"kind": "log", "content": None}, "/content"),
        ({"subject": "Ann"}, "/subject"),
        ({"scope": "galaxy"}, "/scope"),
        ({"scope": "tenant"}, ""),
        ({"owner": None}, ""),
        ({"content": ""}, "/content"),
        ({"content": " \n"}, "/content"),
        ({"content": "\u200b"}, "/content"),
        ({"kind": "entity", "subject": "\u202e "}, "/subject"),
        ({"content": "x" * 2_001}, "/content"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, change: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/v1/memories", json={**TEA, **change})

    assert refusal(answer)[0] == 422
    problem = answer.json()
    pointers = [each["pointer"] for each in problem.get("errors", [])]
    assert pointer in (*pointers, problem["error"].get("param"))


async def test_only_the_tenants_memory_has_no_owner(client: httpx2.AsyncClient) -> None:
    ownerless = await client.post("/v1/memories", json={**TEA, "owner": None})
    of_all = await client.post("/v1/memories", json={**TEA, "scope": "tenant"})

    assert "name the owner: a session's id, a user" in ownerless.json()["detail"]
    assert "what is the tenant's has no owner" in of_all.json()["detail"]


async def test_whose_it_is_must_be_there(client: httpx2.AsyncClient) -> None:
    session = await made(client, "/v1/sessions", {"user": "ann"})
    for scope, code in (("session", "session_not_found"), ("agent", "agent_not_found")):
        answer = await client.post("/v1/memories", json={**TEA, "scope": scope, "owner": "none"})
        assert refusal(answer) == (404, code)

    kept = await made(client, "/v1/memories", {**TEA, "scope": "session", "owner": session["id"]})

    assert kept["user"] == "ann"
    assert kept["source"]["session_id"] == session["id"]


async def test_memories_are_listed_by_whose_they_are_and_what_they_are(
    client: httpx2.AsyncClient,
) -> None:
    for said in (TEA, PAINTER, KNOWS, a_memory(content="The tea is in the kitchen.")):
        await made(client, "/v1/memories", said)

    assert await listed(client, scope="tenant") == ["The tea is in the kitchen."]
    assert await listed(client, owner="ann", kind="entity") == ["a painter"]
    assert len(await listed(client, user="ann")) == 3
    assert await listed(client, user="ben") == []
    assert len(await listed(client, limit=2)) == 2


async def test_memories_are_looked_for_by_words(client: httpx2.AsyncClient) -> None:
    for said in (TEA, PAINTER, KNOWS, a_memory(content="The tea is in the kitchen.")):
        await made(client, "/v1/memories", said)

    assert (await listed(client, q="green tea"))[0] == "Ann likes green tea."
    assert await listed(client, q="tea", scope="tenant") == ["The tea is in the kitchen."]
    assert await listed(client, q="PAINT") == ["a painter"]
    assert await listed(client, q='"') == []
    assert await listed(client, q="' OR 1=1 --") == []
    assert await listed(client, q="") == await listed(client, q=" ") == await listed(client)
    for beyond in ("after=mem_1", "order=asc", "order=desc"):
        refused = await client.get(f"/v1/memories?q=tea&{beyond}")
        assert refusal(refused) == (400, "one_page")


async def test_a_correction_is_a_new_version_of_exactly_what_was_read(
    client: httpx2.AsyncClient,
) -> None:
    memory = await made(client, "/v1/memories", TEA)
    path = f"/v1/memories/{memory['id']}"

    answer = await client.put(path, json={"content": "Coffee."}, headers={"If-Match": '"1"'})
    stale = await client.put(path, json={"content": "Cocoa."}, headers={"If-Match": '"1"'})
    bare = await client.put(path, json={"content": "Cocoa."}, headers={"If-Match": "2"})

    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    assert refusal(stale) == refusal(bare) == (412, "precondition_failed")
    assert bare.json()["detail"].endswith("; send it with its quotes")
    assert (await client.get(path)).json()["content"] == "Coffee."
    assert await listed(client, q="tea") == []


async def test_a_correction_says_what_its_kind_needs(client: httpx2.AsyncClient) -> None:
    memory = await made(client, "/v1/memories", KNOWS)

    answer = await client.put(f"/v1/memories/{memory['id']}", json={"content": "x"})

    assert refusal(answer) == (422, "memory_unfit")


async def test_a_memory_is_forgotten(client: httpx2.AsyncClient) -> None:
    memory = await made(client, "/v1/memories", TEA)
    path = f"/v1/memories/{memory['id']}"
    stale = await client.delete(path, headers={"If-Match": '"7"'})

    answer = await client.delete(path)

    assert refusal(stale) == (412, "precondition_failed")
    assert answer.status_code == 204
    assert refusal(await client.get(path)) == (404, "memory_not_found")
    acts = (await client.get("/v1/audit")).json()["data"]
    assert [act["action"] for act in acts][:2] == ["memory.deleted", "memory.created"]
    assert "tea" not in orjson.dumps(acts).decode()


async def test_who_forgets_all_that_is_known_about_a_user_is_written_down(
    client: httpx2.AsyncClient,
) -> None:
    for number in range(2):
        await made(client, "/v1/memories", {**TEA, "content": f"fact {number}"})

    for _ in range(2):  # The second time there is nothing to forget, and nothing to tell.
        await client.request("DELETE", "/v1/memories?user=ann")

    [act] = (await client.get("/v1/audit?action=memories.erased")).json()["data"]
    assert (act["actor"], act["target"]) == ("local", "memories")
    assert act["details"] == {"user": "ann", "deleted": 2}


async def test_all_that_is_known_about_a_user_is_exported_and_erased(
    client: httpx2.AsyncClient,
) -> None:
    for number in range(3):
        await made(client, "/v1/memories", {**TEA, "content": f"fact {number}"})
    await made(client, "/v1/memories", a_memory())

    exported = await client.get("/v1/memories?user=ann&order=asc&limit=1", headers=LINES)
    erased = await client.request("DELETE", "/v1/memories?user=ann")

    told = [orjson.loads(line)["content"] for line in exported.text.splitlines()]
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert told == ["fact 0", "fact 1", "fact 2"]
    assert erased.json() == {"deleted": 3}
    assert (await client.get("/v1/memories?user=ann", headers=LINES)).text == ""
    assert len(await listed(client)) == 1
    assert refusal(await client.delete("/v1/memories")) == (400, "bad_query")


async def test_what_is_found_by_words_comes_as_lines_too(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/memories", TEA)

    answer = await client.get("/v1/memories?q=tea", headers=LINES)

    assert [orjson.loads(line)["content"] for line in answer.text.splitlines()] == [TEA["content"]]
    refused = await client.get("/v1/memories", headers={"accept": "text/html"})
    assert refusal(refused)[0] == 406


async def test_an_export_goes_on_page_after_page(client: httpx2.AsyncClient) -> None:
    for number in range(103):
        await made(client, "/v1/memories", {**TEA, "content": f"fact {number}"})

    answer = await client.get("/v1/memories?user=ann", headers=LINES)

    told = [orjson.loads(line)["content"] for line in answer.text.splitlines()]
    assert told == [f"fact {number}" for number in reversed(range(103))]


async def test_a_user_s_own_memories_are_changed_in_his_name_alone(keyed: KeyedService) -> None:
    memory = await made(keyed.acme, "/v1/memories", TEA)
    path = f"/v1/memories/{memory['id']}"
    writer = await keyed.holding("runs:read", "runs:write")
    actor = await keyed.holding("runs:write", "users:act_as")

    for refused in (
        await writer.post("/v1/memories", json=TEA),
        await writer.put(path, json={"content": "x"}),
        await writer.delete(path),
        await writer.delete("/v1/memories?user=ann"),
    ):
        assert refusal(refused) == (403, "missing_scope")
    assert (await writer.get(path)).status_code == 200
    assert (await actor.put(path, json={"content": "x"})).status_code == 200


@pytest.mark.parametrize("scope", ["agent", "tenant"])
async def test_who_stands_for_one_user_changes_nothing_that_all_are_told(
    keyed: KeyedService, scope: str
) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    body = a_memory(scope=scope, **({"owner": "clerk"} if scope == "agent" else {}))
    path = f"/v1/memories/{(await made(keyed.acme, '/v1/memories', body))['id']}"
    bob = await keyed.holding("runs:write", subject="bob")
    desk = await keyed.holding("runs:write", "users:act_as", subject="desk")
    service = await keyed.holding("runs:write")

    for refused in (
        await bob.post("/v1/memories", json={**body, "content": "Bob is always right."}),
        await bob.put(path, json={"content": "Bob is always right."}),
        await bob.delete(path),
    ):
        assert refusal(refused) == (403, "missing_scope")
    assert (await desk.put(path, json={"content": "The shop opens at ten."})).status_code == 200
    assert (await service.delete(path)).status_code == 204


async def test_what_is_written_into_anothers_session_is_not_said_in_his_name(
    keyed: KeyedService,
) -> None:
    session = await made(keyed.acme, "/v1/sessions", {"user": "ann"})
    body = {**TEA, "scope": "session", "owner": session["id"]}
    users = {}
    for name, holder in {
        "ann": await keyed.holding("runs:write", subject="ann"),
        "bob": await keyed.holding("runs:write", subject="bob"),
        "nobody": await keyed.holding("runs:write"),
        "anybody": await keyed.holding("runs:write", "users:act_as"),
    }.items():
        users[name] = (await made(holder, "/v1/memories", {**body, "content": f"by {name}"}))[
            "user"
        ]

    assert users == {"ann": "ann", "bob": "bob", "nobody": None, "anybody": "ann"}


async def test_no_memory_outlives_the_session_that_goes_meanwhile(
    client: httpx2.AsyncClient,
) -> None:
    sessions = [(await made(client, "/v1/sessions", {}))["id"] for _ in range(20)]
    kept = [
        client.post("/v1/memories", json={**TEA, "scope": "session", "owner": session})
        for session in sessions
    ]
    gone = [client.delete(f"/v1/sessions/{session}") for session in sessions]

    both = zip(kept, gone, strict=True)
    answers = await asyncio.gather(*(each for pair in both for each in pair))

    assert {each.status_code for each in answers[1::2]} == {204}
    assert {each.status_code for each in answers[::2]} <= {201, 404}
    assert (await client.get("/v1/memories?scope=session")).json()["data"] == []


async def test_no_export_has_what_another_tenant_knows(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/memories", TEA)

    assert (await keyed.globex.get("/v1/memories?user=ann", headers=LINES)).text == ""
    erased = await keyed.globex.request("DELETE", "/v1/memories?user=ann")
    assert erased.json() == {"deleted": 0}
    assert (await keyed.acme.get("/v1/memories?user=ann")).json()["data"]
