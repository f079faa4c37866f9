"""What a session is besides its runs: archived or not, kept for some time, found by its title."""

import httpx2
import pytest

from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The path of a session, beside an agent that can talk in it."""
    await made(client, "/v1/agents", an_agent())
    shown = await made(client, "/v1/sessions", {"title": "Sums"})
    return f"/v1/sessions/{shown['id']}"


async def test_a_session_is_made_with_its_terms(client: httpx2.AsyncClient) -> None:
    shown = await made(client, "/v1/sessions", {"ttl_s": 3_600, "keep_s": 60})

    assert (shown["ttl_s"], shown["keep_s"]) == (3_600, 60)
    assert shown["expires_at"] > shown["updated_at"]
    assert (shown["archived"], shown["archived_at"], shown["forked_from"]) == (False, None, None)


@pytest.mark.parametrize(
    "body", [{"ttl_s": 59}, {"ttl_s": 315_360_001}, {"keep_s": 0}, {"keep_s": "60"}]
)
async def test_terms_out_of_bounds_are_refused(
    client: httpx2.AsyncClient, body: dict[str, object]
) -> None:
    answer = await client.post("/v1/sessions", json=body)

    assert refusal(answer) == (422, "invalid_request")


async def test_terms_are_patched_each_for_itself(client: httpx2.AsyncClient, session: str) -> None:
    await client.patch(session, json={"ttl_s": 3_600, "keep_s": 120})

    await client.patch(session, json={"archived": True})
    shown = (await client.patch(session, json={"ttl_s": None})).json()

    assert (shown["ttl_s"], shown["expires_at"], shown["keep_s"]) == (None, None, 120)
    assert (shown["archived"], shown["title"], shown["version"]) == (True, "Sums", 4)


async def test_an_archived_session_is_read_and_takes_no_runs(
    client: httpx2.AsyncClient, session: str
) -> None:
    run = await an_ended_run(client, session_id=session.rpartition("/")[2])
    shown = (await client.patch(session, json={"archived": True})).json()

    refused = await client.post(
        "/v1/runs", json={"agent": "clerk", "input": "x", "session_id": shown["id"]}
    )
    messages = (await client.get(f"{session}/messages")).json()["data"]

    assert shown["archived_at"] is not None
    assert refusal(refused) == (409, "session_archived")
    assert messages[0]["run_id"] == run["id"]


async def test_archiving_twice_is_archiving_once(client: httpx2.AsyncClient, session: str) -> None:
    once = (await client.patch(session, json={"archived": True})).json()
    twice = (await client.patch(session, json={"archived": True})).json()

    assert twice == once


async def test_a_session_comes_out_of_the_archive(client: httpx2.AsyncClient, session: str) -> None:
    await client.patch(session, json={"archived": True})
    shown = (await client.patch(session, json={"archived": False})).json()

    run = await an_ended_run(client, session_id=shown["id"])

    assert (shown["archived"], shown["archived_at"]) == (False, None)
    assert run["session_id"] == shown["id"]


async def test_archiving_a_version_that_is_past_is_refused(
    client: httpx2.AsyncClient, session: str
) -> None:
    await client.patch(session, json={"title": "x"})

    answer = await client.patch(session, json={"archived": True}, headers={"if-match": '"1"'})

    assert refusal(answer) == (412, "precondition_failed")


async def test_sessions_are_found_by_title_and_archive(
    client: httpx2.AsyncClient, session: str
) -> None:
    order = await made(client, "/v1/sessions", {"title": "Order 7"})
    await client.patch(session, json={"archived": True})

    async def found(**params: str) -> list[str]:
        listed = (await client.get("/v1/sessions", params=params)).json()
        return [each["title"] for each in listed["data"]]

    assert await found(title="order") == [order["title"]]
    assert await found(archived="true") == ["Sums"]
    assert await found(archived="false") == ["Order 7"]
    refused = await client.get("/v1/sessions", params={"archived": "maybe"})
    assert refusal(refused) == (400, "bad_query")


async def test_messages_of_one_run_are_shown_with_their_places(
    client: httpx2.AsyncClient, session: str
) -> None:
    session_id = session.rpartition("/")[2]
    await an_ended_run(client, session_id=session_id, input="hello")
    second = await an_ended_run(client, session_id=session_id)

    path = f"{session}/messages?run_id={second['id']}"
    messages = (await client.get(path)).json()["data"]
    page = (await client.get(f"{path}&limit=2")).json()
    rest = (await client.get(f"{path}&after={page['next_cursor']}")).json()["data"]

    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert [each["place"] for each in messages] == ["2.0", "2.1", "2.2", "2.3"]
    assert [*page["data"], *rest] == messages


async def test_messages_of_a_run_under_way_are_shown_alone(
    client: httpx2.AsyncClient, session: str
) -> None:
    session_id = session.rpartition("/")[2]
    await an_ended_run(client, session_id=session_id, input="hello")
    waiting = await a_waiting_run(client, session_id=session_id)

    path = f"{session}/messages?run_id="
    messages = (await client.get(path + waiting["id"])).json()["data"]

    assert {each["run_id"] for each in messages} == {waiting["id"]}
    assert [each["place"] for each in messages] == ["2.0", "2.1"]
    assert (await client.get(f"{path}run_0")).json()["data"] == []
