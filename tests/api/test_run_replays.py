"""`POST /v1/runs/{id}/replay`: what an agent's rules make of what happened in a run."""

from typing import Any

import httpx2
import pytest

from milepost.api import run_replays
from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService


@pytest.fixture
async def clerk(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of a service that has an agent."""
    await made(client, "/v1/agents", an_agent())
    return client


async def replayed(client: httpx2.AsyncClient, run_id: str, **body: Any) -> dict[str, Any]:
    """Play a run's log again."""
    answer = await client.post(f"/v1/runs/{run_id}/replay", json=body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_run_is_as_its_own_version_would_have_it(clerk: httpx2.AsyncClient) -> None:
    run = await an_ended_run(clerk)

    again = await replayed(clerk, run["id"])

    assert again == {
        "run_id": run["id"],
        "agent": "clerk",
        "agent_version": 1,
        "events": again["events"],
        "steps": 2,
        "identical": True,
        "divergence": None,
        "definition_changed": [],
        "tools_missing": [],
        "notes": [],
    }
    log = await clerk.get(f"/v1/runs/{run['id']}/events", headers={"accept": "application/json"})
    assert again["events"] == len(log.json()["data"])


async def test_a_replay_needs_no_body_and_leaves_nothing_behind(
    clerk: httpx2.AsyncClient,
) -> None:
    run = await an_ended_run(clerk)
    before = (await clerk.get(f"/v1/runs/{run['id']}/usage")).json()

    answer = await clerk.post(f"/v1/runs/{run['id']}/replay")

    assert answer.json()["identical"]
    assert (await clerk.get(f"/v1/runs/{run['id']}/usage")).json() == before
    assert (await clerk.get(f"/v1/runs/{run['id']}")).json() == run


async def test_a_replay_that_is_asked_for_again_is_answered_again(
    clerk: httpx2.AsyncClient,
) -> None:
    path = f"/v1/runs/{(await an_ended_run(clerk))['id']}/replay"
    key = {"idempotency-key": "again"}

    first, again = [await clerk.post(path, json={}, headers=key) for _ in range(2)]
    other = await clerk.post(path, json={"agent": "clerk"}, headers=key)

    assert first.json() == again.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")


async def test_a_run_that_waits_is_played_as_far_as_it_has_come(
    clerk: httpx2.AsyncClient,
) -> None:
    run = await a_waiting_run(clerk)
    again = await replayed(clerk, run["id"])
    assert (again["identical"], again["steps"]) == (True, 1)


async def test_a_new_version_shows_what_it_would_have_done(clerk: httpx2.AsyncClient) -> None:
    run = await a_waiting_run(clerk)
    policy = {"allow": ["add", "send_email"]}
    changed = await clerk.patch(
        f"/v1/agents/{run['agent_id']}", json={"policy": policy, "instructions": "Be brief."}
    )
    assert changed.status_code == 200, changed.text
    denying = await clerk.patch(
        f"/v1/agents/{run['agent_id']}", json={"policy": {"deny": ["send_*"]}}
    )
    assert denying.status_code == 200, denying.text

    second = await replayed(clerk, run["id"], agent="clerk", agent_version=2)
    third = await replayed(clerk, run["id"], agent="clerk")
    own = await replayed(clerk, run["id"])

    assert second["definition_changed"] == ["instructions", "policy"]
    assert (third["agent_version"], third["identical"]) == (3, False)
    assert third["divergence"]["expected"]["data"]["verdict"] == "deny"
    assert third["divergence"]["found"]["data"]["verdict"] == "ask"
    assert third["divergence"]["seq"] == third["events"] + 1
    assert own["identical"]


async def test_another_agent_without_the_tool_says_so(clerk: httpx2.AsyncClient) -> None:
    await made(clerk, "/v1/agents", an_agent(name="porter", tools=["current_time"]))
    run = await an_ended_run(clerk)

    again = await replayed(clerk, run["id"], agent="porter")

    assert not again["identical"]
    assert again["definition_changed"] == ["tools"]
    assert again["divergence"]["expected"]["type"] == "tool_call.failed"
    assert again["divergence"]["expected"]["data"]["error"]["code"] == "unknown_tool"


async def test_an_agent_or_a_version_that_is_not_there_is_not_found(
    clerk: httpx2.AsyncClient,
) -> None:
    run = await an_ended_run(clerk)
    for body in ({"agent": "nobody"}, {"agent_version": 9}):
        answer = await clerk.post(f"/v1/runs/{run['id']}/replay", json=body)
        assert refusal(answer) == (404, "agent_not_found")


async def test_reading_runs_is_enough_and_needed(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    run = await an_ended_run(keyed.acme)
    reader = await keyed.holding("runs:read")
    writer = await keyed.holding("runs:write")
    path = f"/v1/runs/{run['id']}/replay"
    assert (await reader.post(path)).status_code == 200
    assert refusal(await writer.post(path)) == (403, "missing_scope")
    assert refusal(await keyed.globex.post(path)) == (404, "run_not_found")


async def test_more_replays_at_once_than_there_is_room_for_are_put_off(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await an_ended_run(clerk)
    monkeypatch.setattr(run_replays, "REPLAYS_MAX", 0)
    answer = await clerk.post(f"/v1/runs/{run['id']}/replay")
    assert refusal(answer) == (503, "queue_full")
    assert answer.headers["retry-after"]


async def test_a_log_that_is_too_long_is_played_as_far_as_that(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await an_ended_run(clerk)
    monkeypatch.setattr("milepost.store.log.READ_MAX", 4)
    monkeypatch.setattr("milepost.api.earlier_runs.EVENTS_MAX", 6)
    again = await replayed(clerk, run["id"])
    assert (again["events"], again["identical"]) == (6, True)
    assert again["notes"] == ["the log goes on behind event 6; that much was played"]


async def test_a_long_log_is_played_off_the_loop_and_comes_to_the_same(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await an_ended_run(clerk)
    here = await replayed(clerk, run["id"])
    monkeypatch.setattr(run_replays, "ON_LOOP_MAX", 0)
    assert await replayed(clerk, run["id"]) == here
