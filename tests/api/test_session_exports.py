"""Sessions that are taken elsewhere: what is written of one, and what is made of it there."""

from typing import Any

import httpx2
import pytest

from milepost.api import session_exports
from milepost.store import retention
from tests.api.making import MAIL, a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService, Service
from tests.contract import require_fits

LATER_MS = 4_000_000_000_000
EMPTY: dict[str, Any] = {"format": "milepost.session/1", "session": {}, "runs": []}
TALK = {
    "turn": 1,
    "agent": "nobody",
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}],
}


@pytest.fixture
async def session(client: httpx2.AsyncClient) -> str:
    """The id of a session with two turns: a sum with a tool call, and a greeting."""
    await made(client, "/v1/agents", an_agent())
    terms = {"title": "Sums", "user": "ann", "metadata": {"a": "b"}, "ttl_s": 3_600, "keep_s": 60}
    shown = await made(client, "/v1/sessions", terms)
    await an_ended_run(client, session_id=shown["id"], metadata={"c": "d"})
    await an_ended_run(client, session_id=shown["id"], input="hello")
    return str(shown["id"])


async def exported(client: httpx2.AsyncClient, session: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/sessions/{session}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    written: dict[str, Any] = answer.json()
    return written


async def messages(client: httpx2.AsyncClient, session: str) -> list[dict[str, Any]]:
    """Return what was said, without the runs' names."""
    answer = await client.get(f"/v1/sessions/{session}/messages?limit=100")
    return [{**each, "run_id": None} for each in answer.json()["data"]]


def nameless(written: dict[str, Any]) -> dict[str, Any]:
    """Return an export without what is another thing's name or time wherever it is imported."""
    here = {"run_id": None, "ended_at": None}
    runs = [{**run, **here} for run in written["runs"]]
    return {**written, "session": {**written["session"], "id": None}, "runs": runs}


async def test_an_export_says_what_was_said_and_by_whom(
    client: httpx2.AsyncClient, session: str
) -> None:
    written = await exported(client, session)

    first, second = written["runs"]
    assert written["format"] == "milepost.session/1"
    assert written["session"] == {
        "id": session, "user": "ann", "title": "Sums", "metadata": {"a": "b"}, "ttl_s": 3_600,
        "keep_s": 60,
    }  # fmt: skip
    assert (first["turn"], first["agent"], first["status"]) == (1, "clerk", "completed")
    assert (first["metadata"], second["turn"]) == ({"c": "d"}, 2)
    assert [each["role"] for each in first["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert second["messages"][0]["content"] == "hello"


async def test_a_session_comes_back_as_it_was(client: httpx2.AsyncClient, session: str) -> None:
    written = await exported(client, session)

    again = await made(client, "/v1/session_imports", written)

    assert again["id"] != session
    assert (again["title"], again["user"], again["runs_ended"]) == ("Sums", "ann", 2)
    assert (again["ttl_s"], again["keep_s"], again["metadata"]) == (3_600, 60, {"a": "b"})
    assert await messages(client, again["id"]) == await messages(client, session)
    assert nameless(await exported(client, again["id"])) == nameless(written)


async def test_an_imported_session_goes_on(client: httpx2.AsyncClient, session: str) -> None:
    again = await made(client, "/v1/session_imports", await exported(client, session))

    run = await an_ended_run(client, session_id=again["id"], input="hello again")

    found = (await client.get(f"/v1/sessions/{again['id']}/messages")).json()["data"]
    assert found[-2]["place"] == "3.0"
    assert found[-1]["run_id"] == run["id"]
    log = (
        await client.get(f"/v1/runs/{run['id']}/events", headers={"accept": "application/json"})
    ).json()["data"]
    (loaded,) = [event["data"] for event in log if event["type"] == "session.loaded"]
    assert loaded["messages"] == 6


async def test_imported_runs_are_over_and_have_cost_nothing(
    client: httpx2.AsyncClient, session: str
) -> None:
    again = await made(client, "/v1/session_imports", await exported(client, session))

    runs = (await client.get(f"/v1/sessions/{again['id']}/runs")).json()["data"]
    logs = [
        (await client.get(f"/v1/runs/{run['id']}/events", headers={"accept": "application/json"}))
        for run in runs
    ]
    usage = (await client.get(f"/v1/runs/{runs[0]['id']}/usage")).json()

    assert {run["status"] for run in runs} == {"completed"}
    assert {run["agent"] for run in runs} == {"clerk"}
    assert [[event["type"] for event in log.json()["data"]] for log in logs] == [
        ["run.queued", "run.imported", "run.completed"]
    ] * 2
    assert usage["input_tokens"] == 0
    trace = await client.get(f"/v1/runs/{runs[0]['id']}/trace")
    assert trace.status_code == 200, trace.text


async def test_an_imported_session_is_followed_forked_and_deleted(
    client: httpx2.AsyncClient, session: str
) -> None:
    again = await made(client, "/v1/session_imports", await exported(client, session))
    path = f"/v1/sessions/{again['id']}"

    told = await client.get(f"{path}/events?until=idle&types=run.*")
    forked = await made(client, f"{path}/fork", {"at": "1.3"})
    await client.delete(f"/v1/sessions/{forked['id']}")

    assert told.text.count("event: run.imported") == 2
    assert forked["runs_ended"] == 1
    assert (await client.delete(path)).status_code == 204


async def test_what_is_under_way_is_not_exported(client: httpx2.AsyncClient, session: str) -> None:
    before = await exported(client, session)
    await a_waiting_run(client, session_id=session)

    assert (await exported(client, session))["runs"] == before["runs"]


async def test_an_export_of_a_fork_is_whole(client: httpx2.AsyncClient, session: str) -> None:
    forked = await made(client, f"/v1/sessions/{session}/fork", {"at": "2.0"})
    await an_ended_run(client, session_id=forked["id"], input="hello")

    again = await made(client, "/v1/session_imports", await exported(client, forked["id"]))

    assert again["forked_from"] is None
    assert await messages(client, again["id"]) == await messages(client, forked["id"])


async def test_an_open_call_is_closed_when_it_is_imported(
    client: httpx2.AsyncClient, session: str
) -> None:
    forked = await made(client, f"/v1/sessions/{session}/fork", {"at": "1.1"})

    again = await made(client, "/v1/session_imports", await exported(client, forked["id"]))

    said = await messages(client, again["id"])
    assert said[:2] == await messages(client, forked["id"])
    assert (said[2]["role"], said[2]["content"]) == ("tool", "Not run.")


async def test_pins_come_along(client: httpx2.AsyncClient, session: str) -> None:
    pinned = await client.put(f"/v1/sessions/{session}/messages/1.0/pin")
    assert pinned.is_success, pinned.text

    again = await made(client, "/v1/session_imports", await exported(client, session))

    pins = (await client.get(f"/v1/sessions/{again['id']}/pins")).json()["data"]
    assert pins == ["1.0"]


async def test_what_was_never_here_can_be_imported(client: httpx2.AsyncClient) -> None:
    empty = await made(client, "/v1/session_imports", EMPTY)
    talk = await made(client, "/v1/session_imports", {**EMPTY, "runs": [TALK]})

    assert (empty["runs_ended"], talk["runs_ended"]) == (0, 1)
    assert [each["content"] for each in await messages(client, talk["id"])] == ["hi", "Hello."]


async def test_a_large_session_is_imported_whole(client: httpx2.AsyncClient) -> None:
    runs = [{**TALK, "turn": turn} for turn in range(1, 1_001)]

    again = await made(client, "/v1/session_imports", {**EMPTY, "runs": runs})

    assert again["runs_ended"] == 1_000
    assert len((await exported(client, again["id"]))["runs"]) == 1_000


async def test_what_is_no_export_is_refused(client: httpx2.AsyncClient) -> None:
    bad = [
        {**EMPTY, "format": "x"},
        {**EMPTY, "runs": [{**TALK, "turn": 0}]},
        {**EMPTY, "more": 1},
        {"runs": []},
    ]
    for body in bad:
        answer = await client.post("/v1/session_imports", json=body)
        assert refusal(answer) == (422, "invalid_request")
    orphan = {**TALK, "messages": [{"role": "tool", "tool_call_id": "c1"}]}
    answer = await client.post("/v1/session_imports", json={**EMPTY, "runs": [orphan]})
    assert refusal(answer) == (422, "invalid_export")
    assert answer.json()["errors"][0]["pointer"] == "/runs/0/messages/0/tool_call_id"


async def test_a_body_that_is_too_large_is_refused(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_exports, "IMPORT_BYTES_MAX", 100)

    answer = await client.post("/v1/session_imports", json={**EMPTY, "x": MAIL * 9})

    assert refusal(answer) == (413, "body_too_large")


async def test_a_repeated_request_imports_once(client: httpx2.AsyncClient) -> None:
    key = {"idempotency-key": "k1"}
    body = {**EMPTY, "runs": [TALK]}

    first = await client.post("/v1/session_imports", json=body, headers=key)
    again = await client.post("/v1/session_imports", json=body, headers=key)

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"


async def test_who_may_act_for_himself_alone_imports_nobody_elses(keyed: KeyedService) -> None:
    ann = await keyed.holding("runs:write", subject="ann")

    own = await made(ann, "/v1/session_imports", EMPTY)
    body = {**EMPTY, "session": {"user": "bob"}}
    refused = await ann.post("/v1/session_imports", json=body)

    assert own["user"] == "ann"
    assert refusal(refused) == (403, "missing_scope")


async def test_nor_runs_of_anybody_else(keyed: KeyedService) -> None:
    ann = await keyed.holding("runs:write", subject="ann")
    of = {user: {**EMPTY, "runs": [{**TALK, "user": user}]} for user in ("ann", "bob")}

    own = await made(ann, "/v1/session_imports", of["ann"])
    refused = await ann.post("/v1/session_imports", json=of["bob"])

    assert own["runs_ended"] == 1
    assert refusal(refused) == (403, "missing_scope")


async def test_an_export_of_a_fork_that_tells_of_what_it_shares_is_taken(
    client: httpx2.AsyncClient,
) -> None:
    memory = {"window": {"messages": 4}, "summarize": {}}
    await made(client, "/v1/agents", an_agent(tools=[], memory=memory))
    first = await an_ended_run(client, input="one")
    session = first["session_id"]
    await an_ended_run(client, input="two", session_id=session)
    fork = await made(client, f"/v1/sessions/{session}/fork", {})
    for each in (fork["id"], session):  # Each tells of the two turns that they share.
        for said in ("three", "four"):
            await an_ended_run(client, input=said, session_id=each)

    written = await exported(client, fork["id"])
    answer = await client.post("/v1/session_imports", json=written)

    assert [(each["first"], each["last"]) for each in written["summaries"]] == [("1.0", "2.1")]
    assert answer.status_code == 201, answer.text


async def test_an_export_of_a_session_without_logs_is_taken(
    service: Service, client: httpx2.AsyncClient
) -> None:
    await made(client, "/v1/agents", an_agent(tools=[], memory={"window": {"messages": 1}}))
    first = await an_ended_run(client, input="one")
    session = first["session_id"]
    await an_ended_run(client, input="two", session_id=session)
    summaries = (await client.get(f"/v1/sessions/{session}/summaries")).json()["data"]
    store = service.app._parts.ports.store
    await store.write(retention.wear("default", "events", None, LATER_MS))

    written = await exported(client, session)
    answer = await client.post("/v1/session_imports", json=written)

    assert [each["last"] for each in summaries] == ["1.0"]
    assert (written["runs"], written["summaries"]) == ([], [])
    assert answer.status_code == 201, answer.text


async def test_a_log_tells_of_calls_that_were_made_elsewhere_as_is_promised(
    client: httpx2.AsyncClient,
) -> None:
    asked = [{"id": "toolu_01", "name": "look_up", "arguments": {"order": 7}}]
    messages = [
        {"role": "user", "content": "Where is order 7?"},
        {"role": "assistant", "tool_calls": asked},
        {"role": "tool", "content": "on its way", "tool_call_id": "toolu_01"},
        {"role": "assistant", "content": "On its way."},
    ]
    talk = {**EMPTY, "runs": [{"turn": 1, "agent": "nobody", "messages": messages}]}
    session = await made(client, "/v1/session_imports", talk)

    answer = await client.get(
        f"/v1/sessions/{session['id']}/events", headers={"accept": "application/json"}
    )

    _, imported, _ = answer.json()["data"]
    require_fits("run.imported", imported)
    assert imported["data"]["conversation"][1]["calls"][0]["id"] == "toolu_01"
