"""Summaries and pins of sessions: what fell out of sight, what brings it back, what stays."""

from typing import Any

import httpx2
import pytest

from tests.api.making import an_agent, an_ended_run, made, refusal

WINDOW = {"window": {"messages": 4}}
TELLING = {**WINDOW, "summarize": {"model": "demo/offline"}}


async def talked(
    client: httpx2.AsyncClient, turns: int, memory: dict[str, Any] | None
) -> tuple[str, list[str]]:
    """Have a session of so many turns of an agent with this memory; return it and its runs."""
    await made(client, "/v1/agents", an_agent(tools=[], memory=memory))
    session = await made(client, "/v1/sessions", {})
    runs = [
        await an_ended_run(client, input=f"Number {turn}.", session_id=session["id"])
        for turn in range(1, turns + 1)
    ]
    return session["id"], [run["id"] for run in runs]


async def loaded(client: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    """Return what the run's log says that it was shown."""
    path, accept = f"/v1/runs/{run_id}/events", {"Accept": "application/json"}
    page = (await client.get(path, headers=accept)).json()
    [event] = [each for each in page["data"] if each["type"] == "session.loaded"]
    data: dict[str, Any] = event["data"]
    return data


async def test_an_agents_memory_is_shown_as_it_was_given(client: httpx2.AsyncClient) -> None:
    given = {"window": {"messages": 20, "tokens": 8_000}, "summarize": {}}

    shown = await made(client, "/v1/agents", an_agent(memory=given))

    assert shown["memory"]["window"] == given["window"]
    assert shown["memory"]["summarize"] == {"model": "demo/offline"}
    plain = await made(client, "/v1/agents", an_agent(name="plain"))
    assert plain["memory"] is None


@pytest.mark.parametrize(
    "memory", [{"window": {}}, {"window": {"messages": 0}}, {"window": {"tokens": -1}}, {"x": 1}]
)
async def test_a_window_without_a_bound_is_refused(
    client: httpx2.AsyncClient, memory: dict[str, Any]
) -> None:
    answer = await client.post("/v1/agents", json=an_agent(memory=memory))

    assert answer.status_code == 422


async def test_a_summarizer_that_is_not_here_is_refused(client: httpx2.AsyncClient) -> None:
    memory = {"summarize": {"model": "nobody/small"}}
    answer = await client.post("/v1/agents", json=an_agent(memory=memory))

    assert refusal(answer) == (422, "unknown_provider")
    assert answer.json()["errors"][0]["pointer"] == "/memory/summarize/model"


async def test_summaries_are_listed_with_what_they_stand_for(client: httpx2.AsyncClient) -> None:
    session, runs = await talked(client, 6, TELLING)

    page = (await client.get(f"/v1/sessions/{session}/summaries")).json()

    newest, oldest = page["data"]
    assert (oldest["first"], oldest["last"]) == ("1.0", "2.1")
    assert (newest["first"], newest["last"]) == ("3.0", "4.1")
    assert [oldest["run_id"], newest["run_id"]] == [runs[3], runs[5]]
    assert oldest["content"]
    assert (oldest["model"], oldest["reverted_at"]) == ("demo/offline", None)
    assert (await loaded(client, runs[5]))["summaries"] == [oldest["id"]]


async def test_what_is_reverted_is_in_sight_again(client: httpx2.AsyncClient) -> None:
    session, _ = await talked(client, 6, WINDOW)
    path = f"/v1/sessions/{session}/summaries"
    newest, oldest = (await client.get(path)).json()["data"]

    assert refusal(await client.delete(f"{path}/{oldest['id']}")) == (409, "summary_covered")
    for summary in (newest, oldest, oldest):
        assert (await client.delete(f"{path}/{summary['id']}")).status_code == 204

    shown = (await client.get(path)).json()["data"]
    assert all(summary["reverted_at"] for summary in shown)
    await made(client, "/v1/agents", an_agent(name="other", tools=[]))
    run = await an_ended_run(client, agent="other", session_id=session)
    assert (await loaded(client, run["id"]))["messages"] == 12
    assert refusal(await client.delete(f"{path}/sum_0")) == (404, "summary_not_found")


async def test_a_pinned_message_is_shown_to_every_run(client: httpx2.AsyncClient) -> None:
    session, _ = await talked(client, 2, WINDOW)
    path = f"/v1/sessions/{session}"

    for _ in range(2):
        assert (await client.put(f"{path}/messages/1.0/pin")).status_code == 204
    runs = [await an_ended_run(client, session_id=session) for _ in range(2)]

    assert (await client.get(f"{path}/pins")).json() == {"data": ["1.0"]}
    assert (await loaded(client, runs[1]["id"]))["pins"] == ["1.0"]
    for _ in range(2):
        assert (await client.delete(f"{path}/messages/1.0/pin")).status_code == 204
    assert (await client.get(f"{path}/pins")).json() == {"data": []}


async def test_only_what_somebody_said_can_be_pinned(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)
    path = f"/v1/sessions/{run['session_id']}/messages"

    told = {}
    for place in ("1.1", "1.2", "1.9", "2.0", "1", "x.y", "1.0.0"):
        told[place] = refusal(await client.put(f"{path}/{place}/pin"))

    assert told.pop("1.1") == told.pop("1.2") == (422, "not_pinnable")
    assert set(told.values()) == {(404, "message_not_found")}


async def test_so_many_messages_can_be_pinned(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.store.pins.PINS_MAX", 2)
    session, _ = await talked(client, 2, None)
    path = f"/v1/sessions/{session}/messages"
    await client.put(f"{path}/1.0/pin")
    await client.put(f"{path}/1.1/pin")

    assert refusal(await client.put(f"{path}/2.0/pin")) == (409, "too_many_pins")
    assert len((await client.get(f"/v1/sessions/{session}/pins")).json()["data"]) == 2


async def test_a_session_that_is_not_there_has_neither(client: httpx2.AsyncClient) -> None:
    path = "/v1/sessions/ses_0"

    for answer in (
        await client.get(f"{path}/summaries"),
        await client.delete(f"{path}/summaries/sum_0"),
        await client.get(f"{path}/pins"),
        await client.put(f"{path}/messages/1.0/pin"),
        await client.delete(f"{path}/messages/1.0/pin"),
    ):
        assert refusal(answer) == (404, "session_not_found")


async def test_both_go_with_their_session(client: httpx2.AsyncClient) -> None:
    session, _ = await talked(client, 4, WINDOW)
    await client.put(f"/v1/sessions/{session}/messages/1.0/pin")

    assert (await client.delete(f"/v1/sessions/{session}")).status_code == 204

    assert refusal(await client.get(f"/v1/sessions/{session}/pins")) == (404, "session_not_found")
