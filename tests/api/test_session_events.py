"""`/v1/sessions/{id}/events`: one stream for all that happens in a session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import orjson
import pytest

from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.live.client import parsed
from tests.live.session_client import SessionClient

TIMEOUT_S = 20
JSON = {"accept": "application/json"}
LINES = {"accept": "application/x-ndjson"}


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The id of a session, beside an agent that can talk in it."""
    await made(client, "/v1/agents", an_agent())
    return str((await made(client, "/v1/sessions", {}))["id"])


def path_of(session: str) -> str:
    return f"/v1/sessions/{session}/events"


async def log_of(client: httpx2.AsyncClient, *runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs' logs, one behind the other."""
    found = []
    for run in runs:
        answer = await client.get(f"/v1/runs/{run['id']}/events", headers=LINES)
        found += [orjson.loads(line) for line in answer.text.split("\n") if line]
    return found


async def whole(client: httpx2.AsyncClient, session: str, position: str = "") -> SessionClient:
    """Return a client that has read the stream to where nothing is under way."""
    answer = await client.get(
        f"{path_of(session)}?until=idle", headers={"last-event-id": position} if position else {}
    )
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    reader = SessionClient()
    reader.feed(answer.content)
    return reader


@asynccontextmanager
async def following(client: httpx2.AsyncClient, session: str) -> AsyncIterator[SessionClient]:
    """Let a client follow a session while the test goes on."""
    reader = SessionClient()

    async def follow() -> None:
        rest = ""
        async with client.stream("GET", path_of(session)) as answer:
            async for text in answer.aiter_text():
                whole, _, rest = (rest + text).rpartition("\n\n")
                if whole:
                    reader.feed(f"{whole}\n\n".encode())

    task = asyncio.create_task(follow())
    try:
        yield reader
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_stream_tells_of_all_runs_and_ends_where_nothing_is_under_way(
    client: httpx2.AsyncClient, session: str
) -> None:
    runs = [await an_ended_run(client, session_id=session) for _ in range(2)]

    reader = await whole(client, session)

    assert reader.bodies == await log_of(client, *runs)
    assert reader.position.startswith(f"{runs[1]['id']}.")


async def test_a_client_comes_back_to_any_event(client: httpx2.AsyncClient, session: str) -> None:
    for _ in range(2):
        await an_ended_run(client, session_id=session, input="hello")
    everything = (await whole(client, session)).seen

    for index, sent in enumerate(everything[:-2]):
        if sent.id is not None:
            answer = await client.get(f"{path_of(session)}?until=idle&after={sent.id}")
            rest = [(each.id, each.body) for each in parsed(answer.content)]
            assert rest == [(each.id, each.body) for each in everything[index + 1 :]]


async def test_who_has_it_all_is_told_to_stop_asking(
    client: httpx2.AsyncClient, session: str
) -> None:
    empty = await client.get(f"{path_of(session)}?until=idle")
    await an_ended_run(client, session_id=session)
    last = (await whole(client, session)).position

    answer = await client.get(f"{path_of(session)}?until=idle", headers={"last-event-id": last})

    assert (empty.status_code, answer.status_code) == (204, 204)


async def test_a_client_that_stays_sees_the_next_run(
    client: httpx2.AsyncClient, session: str
) -> None:
    async with following(client, session) as reader:
        first = await an_ended_run(client, session_id=session, input="hello")
        await reader.until(lambda reader: "run.completed" in reader.types)
        second = await an_ended_run(client, session_id=session, input="hello")
        await reader.until(lambda reader: reader.types.count("run.completed") == 2)

    assert list(reader.runs) == [first["id"], second["id"]]
    assert reader.bodies == await log_of(client, first, second)


async def test_a_blocked_run_is_told_of_when_its_turn_has_come(
    client: httpx2.AsyncClient, session: str
) -> None:
    waiting = await a_waiting_run(client, session_id=session)
    body = {"agent": "clerk", "input": "hello", "session_id": session}
    blocked = await made(client, "/v1/runs", body)

    async with following(client, session) as reader:
        await reader.until(lambda reader: "run.waiting" in reader.types)
        assert list(reader.runs) == [waiting["id"]]
        await client.post(f"/v1/runs/{waiting['id']}/cancel")
        await reader.until(lambda reader: "run.completed" in reader.types)

    assert list(reader.runs) == [waiting["id"], blocked["id"]]


async def test_a_cursor_may_be_where_a_run_begins(client: httpx2.AsyncClient, session: str) -> None:
    await an_ended_run(client, session_id=session)
    second = await an_ended_run(client, session_id=session)

    reader = await whole(client, session, f"{second['id']}.0")

    assert reader.bodies == await log_of(client, second)


async def test_types_and_deltas_are_chosen(client: httpx2.AsyncClient, session: str) -> None:
    runs = [await an_ended_run(client, session_id=session) for _ in range(2)]

    answer = await client.get(f"{path_of(session)}?until=idle&types=run.*&deltas=false")

    log = [event for event in await log_of(client, *runs) if event["type"].startswith("run.")]
    assert [sent.body for sent in parsed(answer.content)[:-1]] == log


@pytest.mark.parametrize("limit", [1, 7, 500])
async def test_pages_go_through_all_runs(
    client: httpx2.AsyncClient, session: str, limit: int
) -> None:
    runs = [await an_ended_run(client, session_id=session, input="hello") for _ in range(2)]

    found, after = [], ""
    while True:
        answer = await client.get(f"{path_of(session)}?limit={limit}{after}", headers=JSON)
        page = answer.json()
        found += page["data"]
        if not page["has_more"]:
            break
        assert len(page["data"]) == limit
        after = f"&after={page['next_cursor']}"

    assert found == await log_of(client, *runs)


async def test_lines_end_with_what_has_happened_so_far(
    client: httpx2.AsyncClient, session: str
) -> None:
    ended = await an_ended_run(client, session_id=session)
    waiting = await a_waiting_run(client, session_id=session)
    await made(client, "/v1/runs", {"agent": "clerk", "input": "x", "session_id": session})

    answer = await client.get(path_of(session), headers=LINES)

    told = [orjson.loads(line) for line in answer.text.split("\n") if line]
    assert told == await log_of(client, ended, waiting)


@pytest.mark.parametrize(
    ("cursor", "code"),
    [
        ("7", "bad_cursor"),
        ("run_x", "bad_cursor"),
        ("{run}.x", "bad_cursor"),
        ("{run}.01", "bad_cursor"),
        ("{run}.1.2", "bad_cursor"),
        ("run_0.1", "bad_cursor"),
        ("{run}.9999", "cursor_ahead"),
    ],
)
async def test_a_cursor_that_is_nowhere_is_refused(
    client: httpx2.AsyncClient, session: str, cursor: str, code: str
) -> None:
    run = await an_ended_run(client, session_id=session)

    answer = await client.get(f"{path_of(session)}?after={cursor.format(run=run['id'])}")

    assert refusal(answer) == (400, code)


async def test_a_run_of_another_session_is_no_place_in_this_one(
    client: httpx2.AsyncClient, session: str
) -> None:
    other = await an_ended_run(client)

    answer = await client.get(f"{path_of(session)}?after={other['id']}.1")

    assert refusal(answer) == (400, "bad_cursor")


async def test_a_session_that_is_not_there_has_no_events(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/sessions/ses_0/events")

    assert refusal(answer) == (404, "session_not_found")


async def test_what_cannot_be_is_refused(client: httpx2.AsyncClient, session: str) -> None:
    for query in ("until=waiting", "partials=true", "limit=0&x=1", "deltas=1"):
        assert refusal(await client.get(f"{path_of(session)}?{query}")) == (400, "bad_query")
    answer = await client.get(path_of(session), headers={"accept": "text/html"})
    assert refusal(answer) == (406, "not_acceptable")


async def test_a_head_is_answered_at_once(client: httpx2.AsyncClient, session: str) -> None:
    answer = await client.head(path_of(session))

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
