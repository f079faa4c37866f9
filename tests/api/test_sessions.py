"""`/v1/sessions`: conversations, what was said in them, and their runs."""

import asyncio

import httpx2
import pytest

from tests.api.making import MAIL, a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """A session, beside an agent that can talk in it."""
    await made(client, "/v1/agents", an_agent())
    shown = await made(client, "/v1/sessions", {"user": "ann", "title": "Sums"})
    return str(shown["id"])


async def test_a_session_is_created_with_what_it_is_given(client: httpx2.AsyncClient) -> None:
    body = {"user": "ann", "title": "Sums", "metadata": {"team": "a"}}
    answer = await client.post("/v1/sessions", json=body)

    session = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/sessions/{session['id']}"
    assert session["id"].startswith("ses_")
    assert {name: session[name] for name in body} == body
    assert (session["version"], session["runs_ended"]) == (1, 0)
    assert (await client.get(answer.headers["location"])).json() == session


async def test_a_session_needs_nothing(client: httpx2.AsyncClient) -> None:
    session = await made(client, "/v1/sessions", {})

    assert (session["user"], session["title"], session["metadata"]) == (None, None, {})


async def test_a_session_that_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    for path in ("", "/messages", "/runs"):
        answer = await client.get(f"/v1/sessions/ses_0{path}")
        assert refusal(answer) == (404, "session_not_found")


async def test_a_run_continues_a_session_that_was_made_before(
    client: httpx2.AsyncClient, session: str
) -> None:
    run = await an_ended_run(client, session_id=session)

    shown = (await client.get(f"/v1/sessions/{session}")).json()
    assert run["session_id"] == session
    assert (shown["runs_ended"], shown["version"]) == (1, 1)


async def test_a_patch_sets_title_and_metadata_each_for_itself(
    client: httpx2.AsyncClient, session: str
) -> None:
    path = f"/v1/sessions/{session}"
    await client.patch(path, json={"metadata": {"team": "a"}})

    answer = await client.patch(path, json={"title": None})

    changed = answer.json()
    assert (changed["title"], changed["metadata"]) == (None, {"team": "a"})
    assert (changed["version"], answer.headers["etag"]) == (3, '"3"')


async def test_a_patch_that_changes_nothing_keeps_the_version(
    client: httpx2.AsyncClient, session: str
) -> None:
    answer = await client.patch(f"/v1/sessions/{session}", json={"title": "Sums"})

    assert answer.json()["version"] == 1


async def test_a_patch_of_a_version_that_is_past_is_refused(
    client: httpx2.AsyncClient, session: str
) -> None:
    path = f"/v1/sessions/{session}"
    await client.patch(path, json={"title": "More sums"})

    late = await client.patch(path, json={"title": "x"}, headers={"if-match": '"1"'})
    timely = await client.patch(path, json={"title": "x"}, headers={"if-match": '"2"'})

    assert refusal(late) == (412, "precondition_failed")
    assert timely.json()["version"] == 3


async def test_a_run_does_not_make_a_version_stale(
    client: httpx2.AsyncClient, session: str
) -> None:
    await an_ended_run(client, session_id=session)

    answer = await client.patch(
        f"/v1/sessions/{session}", json={"title": "x"}, headers={"if-match": '"1"'}
    )

    assert answer.status_code == 200


async def test_patches_at_the_same_time_all_count(client: httpx2.AsyncClient, session: str) -> None:
    path = f"/v1/sessions/{session}"

    await asyncio.gather(
        client.patch(path, json={"title": "x"}), client.patch(path, json={"metadata": {"a": "b"}})
    )

    shown = (await client.get(path)).json()
    assert (shown["title"], shown["metadata"], shown["version"]) == ("x", {"a": "b"}, 3)


async def test_only_title_and_metadata_can_be_patched(
    client: httpx2.AsyncClient, session: str
) -> None:
    answer = await client.patch(f"/v1/sessions/{session}", json={"user": "eve"})

    assert refusal(answer) == (422, "invalid_request")
    assert answer.json()["errors"][0]["pointer"] == "/user"


async def test_a_deleted_session_is_gone_with_its_runs(
    client: httpx2.AsyncClient, session: str
) -> None:
    run = await an_ended_run(client, session_id=session)

    answer = await client.delete(f"/v1/sessions/{session}")

    assert answer.status_code == 204
    assert refusal(await client.get(f"/v1/sessions/{session}")) == (404, "session_not_found")
    assert refusal(await client.get(f"/v1/runs/{run['id']}")) == (404, "run_not_found")


async def test_a_session_with_a_run_under_way_is_not_deleted(
    client: httpx2.AsyncClient, session: str
) -> None:
    await a_waiting_run(client, session_id=session)

    answer = await client.delete(f"/v1/sessions/{session}")

    assert refusal(answer) == (409, "session_busy")


async def test_a_version_that_is_past_is_not_deleted(
    client: httpx2.AsyncClient, session: str
) -> None:
    path = f"/v1/sessions/{session}"
    await client.patch(path, json={"title": "x"})

    answer = await client.delete(path, headers={"if-match": '"1"'})

    assert refusal(answer) == (412, "precondition_failed")


async def test_sessions_are_found_by_user_metadata_and_time(client: httpx2.AsyncClient) -> None:
    ann = await made(client, "/v1/sessions", {"user": "ann", "metadata": {"team": "a"}})
    bob = await made(client, "/v1/sessions", {"user": "bob"})

    async def found(**params: str) -> list[str]:
        listed = (await client.get("/v1/sessions", params=params)).json()
        return [each["id"] for each in listed["data"]]

    assert await found() == [bob["id"], ann["id"]]
    assert await found(user="bob") == [bob["id"]]
    assert await found(**{"metadata[team]": "a"}) == [ann["id"]]
    assert await found(created_before=ann["created_at"]) == []


async def test_messages_are_what_was_said_in_order(
    client: httpx2.AsyncClient, session: str
) -> None:
    first = await an_ended_run(client, session_id=session, input="What is 2 + 3?")
    second = await an_ended_run(client, session_id=session, input="hello")

    messages = (await client.get(f"/v1/sessions/{session}/messages")).json()["data"]

    assert [(each["role"], each["run_id"]) for each in messages] == [
        ("user", first["id"]),
        ("assistant", first["id"]),
        ("tool", first["id"]),
        ("assistant", first["id"]),
        ("user", second["id"]),
        ("assistant", second["id"]),
    ]
    (call,) = messages[1]["tool_calls"]
    assert (call["name"], call["arguments"]) == ("add", {"a": 2, "b": 3})
    assert (messages[2]["tool_call_id"], messages[2]["content"]) == (call["id"], "5")
    assert messages[3]["content"] == first["output"]["text"]


async def in_pages(client: httpx2.AsyncClient, path: str, limit: int) -> list[list[object]]:
    """Return the list, page by page."""
    pages, cursor = [], ""
    while True:
        page = (await client.get(f"{path}&limit={limit}{cursor}")).json()
        pages.append(page["data"])
        if not page["has_more"]:
            return pages
        cursor = f"&after={page['next_cursor']}"


async def test_messages_come_in_pages_that_cut_through_runs(
    client: httpx2.AsyncClient, session: str
) -> None:
    for _ in range(2):
        await an_ended_run(client, session_id=session)

    for order in ("asc", "desc"):
        path = f"/v1/sessions/{session}/messages?order={order}"
        whole = (await client.get(path)).json()["data"]
        assert len(whole) == 8
        for limit in (1, 3, 5, 8):
            pages = await in_pages(client, path, limit)
            assert [message for page in pages for message in page] == whole
            assert {len(page) for page in pages[:-1]} <= {limit}


async def test_a_run_under_way_has_said_what_it_has_said(
    client: httpx2.AsyncClient, session: str
) -> None:
    await an_ended_run(client, session_id=session, input="hello")
    waiting = await a_waiting_run(client, session_id=session)
    await client.post("/v1/runs", json={"agent": "clerk", "input": "l", "session_id": session})

    messages = (await client.get(f"/v1/sessions/{session}/messages")).json()["data"]

    assert [each["role"] for each in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[2]["content"] == MAIL
    assert messages[3]["run_id"] == waiting["id"]
    assert [call["name"] for call in messages[3]["tool_calls"]] == ["send_email"]


async def test_a_cursor_of_a_run_under_way_stays_good_when_it_has_ended(
    client: httpx2.AsyncClient, session: str
) -> None:
    waiting = await a_waiting_run(client, session_id=session)
    path = f"/v1/sessions/{session}/messages?limit=1"
    cursor = (await client.get(path)).json()["next_cursor"]
    await client.post(f"/v1/runs/{waiting['id']}/cancel")

    page = (await client.get(f"{path}&after={cursor}")).json()

    assert [each["role"] for each in page["data"]] == ["assistant"]


async def test_a_long_conversation_is_read_to_its_end(
    client: httpx2.AsyncClient, session: str
) -> None:
    for n in range(23):
        await an_ended_run(client, session_id=session, input=f"hello {n}")
    path = f"/v1/sessions/{session}/messages?limit=100"

    forwards = (await client.get(path)).json()["data"]
    backwards = (await client.get(f"{path}&order=desc")).json()["data"]

    asked = [each["content"] for each in forwards if each["role"] == "user"]
    assert asked == [f"hello {n}" for n in range(23)]
    assert backwards == list(reversed(forwards))


async def test_a_cursor_that_is_no_place_is_refused(
    client: httpx2.AsyncClient, session: str
) -> None:
    path = f"/v1/sessions/{session}/messages"
    answers = [
        await client.get(f"{path}?after={cursor}") for cursor in ("x", "1", "1.x", "99999999999.1")
    ]

    assert {refusal(answer) for answer in answers} == {(400, "bad_cursor")}


async def test_a_sessions_runs_are_listed(client: httpx2.AsyncClient, session: str) -> None:
    first = await an_ended_run(client, session_id=session)
    second = await a_waiting_run(client, session_id=session)
    await an_ended_run(client)

    runs = (await client.get(f"/v1/sessions/{session}/runs")).json()["data"]
    waiting = (await client.get(f"/v1/sessions/{session}/runs?status=waiting")).json()["data"]

    assert [run["id"] for run in runs] == [second["id"], first["id"]]
    assert [run["id"] for run in waiting] == [second["id"]]


async def test_a_repeated_request_makes_one_session(client: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "k1"}
    first = await client.post("/v1/sessions", json={"title": "x"}, headers=key)

    again = await client.post("/v1/sessions", json={"title": "x"}, headers=key)
    other = await client.post("/v1/sessions", json={"title": "y"}, headers=key)

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")


async def test_a_key_makes_sessions_for_its_own_user(keyed: KeyedService) -> None:
    ann = await keyed.holding("runs:write", subject="ann")

    unnamed = await made(ann, "/v1/sessions", {})
    named = await made(ann, "/v1/sessions", {"user": "ann"})
    foreign = await ann.post("/v1/sessions", json={"user": "bob"})

    assert (unnamed["user"], named["user"]) == ("ann", "ann")
    assert refusal(foreign) == (403, "missing_scope")


async def test_the_turn_of_the_run_under_way_goes_to_who_is_cancelled_behind_it(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent())
    under_way = await a_waiting_run(client)
    path = f"/v1/sessions/{under_way['session_id']}/messages"
    wanted = {"agent": "clerk", "input": "hi", "session_id": under_way["session_id"]}
    behind = await made(client, "/v1/runs", wanted)

    before = (await client.get(path)).json()["data"]
    await client.post(f"/v1/runs/{behind['id']}/cancel", json={})
    after = (await client.get(path)).json()["data"]

    assert (before[0]["place"], before[0]["run_id"]) == ("1.0", under_way["id"])
    assert [(each["place"], each["run_id"]) for each in after[:2]] == [
        ("1.0", behind["id"]), ("2.0", under_way["id"]),
    ]  # fmt: skip
