"""`/v1/sessions/{id}/fork`: another way for a conversation to go, from any message of it."""

from typing import Any

import httpx2
import pytest

from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The id of a session with two turns: a sum with a tool call, and a greeting."""
    await made(client, "/v1/agents", an_agent())
    first = await an_ended_run(client)
    await an_ended_run(client, session_id=first["session_id"], input="hello")
    return str(first["session_id"])


async def fork(client: httpx2.AsyncClient, session: str, **body: Any) -> dict[str, Any]:
    return await made(client, f"/v1/sessions/{session}/fork", body)


async def messages(client: httpx2.AsyncClient, session: str, query: str = "") -> list[Any]:
    answer = await client.get(f"/v1/sessions/{session}/messages?limit=100{query}")
    found: list[Any] = answer.json()["data"]
    return found


async def test_a_fork_shares_what_was_said_and_goes_its_own_way(
    client: httpx2.AsyncClient, session: str
) -> None:
    whole = await messages(client, session)

    forked = await fork(client, session, at="1.3", title="Another way")
    run = await an_ended_run(client, session_id=forked["id"], input="hello there")

    said = await messages(client, forked["id"])
    assert forked["forked_from"] == {"session_id": session, "at": "1.3"}
    assert (forked["title"], forked["runs_ended"], forked["version"]) == ("Another way", 1, 1)
    assert said[:4] == whole[:4]
    assert [(each["place"], each["run_id"]) for each in said[4:]] == [
        ("2.0", run["id"]), ("2.1", run["id"]),
    ]  # fmt: skip
    assert await messages(client, session) == whole


async def test_a_fork_may_begin_at_any_message(client: httpx2.AsyncClient, session: str) -> None:
    whole = await messages(client, session)

    for index, message in enumerate(whole):
        forked = await fork(client, session, at=message["place"])
        assert await messages(client, forked["id"]) == whole[: index + 1]


async def test_a_fork_without_a_place_shares_all_that_is_over(
    client: httpx2.AsyncClient, session: str
) -> None:
    whole = await messages(client, session)
    await a_waiting_run(client, session_id=session)

    forked = await fork(client, session)

    assert forked["forked_from"]["at"] == "2.1"
    assert await messages(client, forked["id"]) == whole


async def test_a_fork_of_a_session_without_a_word_shares_nothing(
    client: httpx2.AsyncClient,
) -> None:
    empty = await made(client, "/v1/sessions", {})

    forked = await fork(client, empty["id"])

    assert forked["forked_from"] == {"session_id": empty["id"], "at": None}
    assert await messages(client, forked["id"]) == []


async def test_pages_go_through_all_sessions_that_a_fork_is_made_of(
    client: httpx2.AsyncClient, session: str
) -> None:
    first = await fork(client, session, at="1.3")
    await an_ended_run(client, session_id=first["id"], input="hello")
    second = await fork(client, first["id"], at="2.0")
    await an_ended_run(client, session_id=second["id"])
    whole = await messages(client, second["id"])
    assert [each["place"] for each in whole] == [
        "1.0", "1.1", "1.2", "1.3", "2.0", "3.0", "3.1", "3.2", "3.3",
    ]  # fmt: skip

    for order, expected in (("asc", whole), ("desc", whole[::-1])):
        for limit in (1, 2, 4, 8):
            path = f"/v1/sessions/{second['id']}/messages?order={order}&limit={limit}"
            found, page = [], (await client.get(path)).json()
            while True:
                found += page["data"]
                if not page["has_more"]:
                    break
                page = (await client.get(f"{path}&after={page['next_cursor']}")).json()
            assert found == expected


async def test_a_shared_run_is_shown_alone(client: httpx2.AsyncClient, session: str) -> None:
    whole = await messages(client, session)
    forked = await fork(client, session, at="2.0")

    found = await messages(client, forked["id"], f"&run_id={whole[-1]['run_id']}")

    assert found == whole[4:5]


async def test_a_session_is_not_deleted_before_its_forks(
    client: httpx2.AsyncClient, session: str
) -> None:
    forked = await fork(client, session)

    refused = await client.delete(f"/v1/sessions/{session}")
    listed = (await client.get(f"/v1/sessions?forked_from={session}")).json()["data"]
    gone = [(await client.delete(f"/v1/sessions/{each}")) for each in (forked["id"], session)]

    assert refusal(refused) == (409, "session_has_forks")
    assert [each["id"] for each in listed] == [forked["id"]]
    assert [answer.status_code for answer in gone] == [204, 204]


async def test_nothing_is_shared_of_a_turn_that_is_not_over(
    client: httpx2.AsyncClient, session: str
) -> None:
    await a_waiting_run(client, session_id=session)

    answer = await client.post(f"/v1/sessions/{session}/fork", json={"at": "3.0"})

    assert refusal(answer) == (409, "session_busy")


@pytest.mark.parametrize("at", ["1.4", "0.0", "2.9"])
async def test_a_place_without_a_message_is_a_404(
    client: httpx2.AsyncClient, session: str, at: str
) -> None:
    answer = await client.post(f"/v1/sessions/{session}/fork", json={"at": at})

    assert refusal(answer) == (404, "message_not_found")


@pytest.mark.parametrize("body", [{"at": "x"}, {"at": "1"}, {"at": 1}, {"from": "1.0"}])
async def test_what_is_no_place_is_refused(
    client: httpx2.AsyncClient, session: str, body: dict[str, object]
) -> None:
    answer = await client.post(f"/v1/sessions/{session}/fork", json=body)

    assert refusal(answer) == (422, "invalid_request")


async def test_what_a_place_is_is_said_in_words(client: httpx2.AsyncClient, session: str) -> None:
    answer = await client.post(f"/v1/sessions/{session}/fork", json={"at": "4"})

    [fault] = answer.json()["errors"]
    assert fault["pointer"] == "/at"
    assert "such as 2.0" in fault["detail"]
    assert "pattern" not in answer.text


async def test_a_repeated_request_makes_one_fork(client: httpx2.AsyncClient, session: str) -> None:
    path, key = f"/v1/sessions/{session}/fork", {"idempotency-key": "k1"}

    first = await client.post(path, json={"title": "x"}, headers=key)
    again = await client.post(path, json={"title": "x"}, headers=key)
    other = await client.post(path, json={"title": "y"}, headers=key)

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")


async def test_an_archived_session_can_be_forked(client: httpx2.AsyncClient, session: str) -> None:
    await client.patch(f"/v1/sessions/{session}", json={"archived": True})

    forked = await fork(client, session)

    assert not forked["archived"]


async def test_a_fork_is_its_users_like_the_session_that_it_is_forked_from(
    keyed: KeyedService,
) -> None:
    bob = await keyed.holding("runs:write", "runs:read", subject="bob")
    anns = await made(keyed.acme, "/v1/sessions", {"user": "ann"})

    plain = await fork(keyed.acme, anns["id"])
    named = await fork(keyed.acme, anns["id"], user="eve")
    his = await fork(bob, anns["id"])
    refused = await bob.post(f"/v1/sessions/{anns['id']}/fork", json={"user": "eve"})

    assert [each["user"] for each in (plain, named, his)] == ["ann", "eve", "bob"]
    assert refusal(refused) == (403, "missing_scope")


async def test_who_may_not_read_may_not_fork(keyed: KeyedService) -> None:
    writer = await keyed.holding("runs:write")
    session = await made(keyed.acme, "/v1/sessions", {})

    answer = await writer.post(f"/v1/sessions/{session['id']}/fork", json={})

    assert refusal(answer) == (403, "missing_scope")
