"""`POST /v1/runs/{id}/fork`: what a fork begins with, how it is found, and whose it is."""

from typing import Any

import httpx2
import pytest

from tests.api.making import a_waiting_run, an_agent, an_ended_run, made, refusal
from tests.api.serving import KeyedService


@pytest.fixture
async def clerk(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """A client of a service that has an agent."""
    await made(client, "/v1/agents", an_agent())
    return client


async def events_of(client: httpx2.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    """Return the run's log."""
    answer = await client.get(
        f"/v1/runs/{run_id}/events?limit=500", headers={"accept": "application/json"}
    )
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def over(client: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    """Return the run once it has ended."""
    shown: dict[str, Any] = (await client.get(f"/v1/runs/{run_id}/wait?timeout_s=20")).json()
    assert shown["ended_at"], shown
    return shown


async def test_a_fork_is_a_run_of_its_own_in_a_session_of_its_own(
    clerk: httpx2.AsyncClient,
) -> None:
    parent = await an_ended_run(clerk)
    log = await events_of(clerk, parent["id"])

    answer = await clerk.post(
        f"/v1/runs/{parent['id']}/fork", json={"at_seq": log[-1]["seq"], "metadata": {"a": "b"}}
    )

    assert answer.status_code == 202, answer.text
    fork = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{fork['id']}"
    assert fork["forked_from"] == {"run_id": parent["id"], "at_seq": log[-1]["seq"]}
    assert fork["session_id"] != parent["session_id"]
    assert (fork["agent"], fork["agent_version"]) == ("clerk", 1)
    assert fork["metadata"] == {"a": "b"}
    ended = await over(clerk, fork["id"])
    assert ended["output"] == parent["output"]
    assert ended["usage"]["model_calls"] == 0
    found = (await clerk.get(f"/v1/runs?forked_from={parent['id']}")).json()["data"]
    assert [run["id"] for run in found] == [fork["id"]]
    again = (await clerk.post(f"/v1/runs/{fork['id']}/replay")).json()
    assert again["identical"], again


async def test_every_point_of_a_run_can_be_forked(clerk: httpx2.AsyncClient) -> None:
    parent = await an_ended_run(clerk)
    for event in await events_of(clerk, parent["id"]):
        body = {"at_seq": event["seq"]}
        fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", body)
        ended = await over(clerk, fork["id"])
        assert ended["status"] == "completed", (event, ended)
        assert ended["output"] == parent["output"]


async def test_a_fork_may_be_told_more(clerk: httpx2.AsyncClient) -> None:
    parent = await an_ended_run(clerk)
    log = await events_of(clerk, parent["id"])
    body = {"at_seq": log[-1]["seq"], "input": "And what is 4 + 5?"}
    fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", body)
    ended = await over(clerk, fork["id"])
    assert "9" in ended["output"]["text"]
    messages = (await clerk.get(f"/v1/sessions/{fork['session_id']}/messages?order=asc")).json()
    said = [each["content"] for each in messages["data"] if each["role"] == "user"]
    assert said == ["What is 2 + 3?", "And what is 4 + 5?"]


async def test_a_fork_asks_anew(clerk: httpx2.AsyncClient) -> None:
    parent = await a_waiting_run(clerk)
    log = await events_of(clerk, parent["id"])
    fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", {"at_seq": log[-1]["seq"]})
    async with clerk.stream("GET", f"/v1/runs/{fork['id']}/events?until=waiting") as events:
        await events.aread()
    asked = (await clerk.get(f"/v1/approvals?status=pending&run_id={fork['id']}")).json()["data"]
    theirs = (await clerk.get(f"/v1/approvals?status=pending&run_id={parent['id']}")).json()["data"]
    assert len(asked) == len(theirs) == 1
    assert asked[0]["id"] != theirs[0]["id"]


async def test_what_is_beyond_the_log_is_refused(clerk: httpx2.AsyncClient) -> None:
    parent = await an_ended_run(clerk)
    answer = await clerk.post(f"/v1/runs/{parent['id']}/fork", json={"at_seq": 10_000})
    assert refusal(answer) == (400, "cursor_ahead")


async def test_nothing_is_said_where_calls_are_open(clerk: httpx2.AsyncClient) -> None:
    parent = await a_waiting_run(clerk)
    log = await events_of(clerk, parent["id"])
    path = f"/v1/runs/{parent['id']}/fork"
    body = {"at_seq": log[-1]["seq"], "input": "Stop!"}

    answer = await clerk.post(path, json=body)

    assert refusal(answer) == (409, "calls_open")
    near = int(answer.json()["detail"].split("fork at event ")[1].split()[0])
    assert (await clerk.post(path, json={**body, "at_seq": near})).status_code == 202


async def test_another_agent_goes_on_as_it_is_now(clerk: httpx2.AsyncClient) -> None:
    parent = await an_ended_run(clerk)
    porter = await made(clerk, "/v1/agents", an_agent(name="porter", tools=["current_time"]))
    await clerk.patch(f"/v1/agents/{porter['id']}", json={"instructions": "Be brief."})
    path = f"/v1/runs/{parent['id']}/fork"

    named = await made(clerk, path, {"at_seq": 1, "agent": "porter"})
    pinned = await made(clerk, path, {"at_seq": 1, "agent": porter["id"], "agent_version": 1})

    assert (named["agent"], named["agent_version"]) == ("porter", 2)
    assert (pinned["agent"], pinned["agent_version"]) == ("porter", 1)
    assert (await over(clerk, named["id"]))["status"] == "completed"


async def test_the_session_s_past_is_the_fork_s_own(clerk: httpx2.AsyncClient) -> None:
    first = await an_ended_run(clerk)
    second = await an_ended_run(clerk, session_id=first["session_id"], input="What is 4 + 5?")
    path = f"/v1/runs/{second['id']}/fork"

    fork = await made(clerk, path, {"at_seq": 1})
    await over(clerk, fork["id"])
    log = await events_of(clerk, fork["id"])
    next_turn = await an_ended_run(clerk, session_id=fork["session_id"], input="What is 1 + 1?")

    assert [event["type"] for event in log[:3]] == ["run.queued", "run.forked", "run.started"]
    said = log[1]["data"]["conversation"]
    assert said[0]["content"] == "What is 2 + 3?"
    assert [turn["role"] for turn in said] == ["user", "assistant", "tool", "assistant"]
    loaded = [
        event["data"]
        for event in await events_of(clerk, next_turn["id"])
        if event["type"] == "session.loaded"
    ]
    assert [each["messages"] for each in loaded] == [8]


async def test_a_fork_that_is_asked_for_twice_is_one(clerk: httpx2.AsyncClient) -> None:
    parent = await an_ended_run(clerk)
    path, key = f"/v1/runs/{parent['id']}/fork", {"idempotency-key": "once"}

    first, again = [await clerk.post(path, json={"at_seq": 1}, headers=key) for _ in range(2)]
    other = await clerk.post(path, json={"at_seq": 2}, headers=key)
    await over(clerk, first.json()["id"])
    gone = await clerk.delete(f"/v1/sessions/{parent['session_id']}")
    late = await clerk.post(path, json={"at_seq": 1}, headers=key)

    assert first.json()["id"] == again.json()["id"] == late.json()["id"]
    assert gone.is_success
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert refusal(other) == (422, "idempotency_key_reused")


async def test_who_forked_what_is_kept(clerk: httpx2.AsyncClient) -> None:
    parent = await an_ended_run(clerk)
    fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", {"at_seq": 3})
    [act] = (await clerk.get("/v1/audit?action=run.forked")).json()["data"]
    assert (act["actor"], act["target"]) == ("local", fork["id"])
    assert act["details"]["forked_from"] == {"run_id": parent["id"], "at_seq": 3}


async def test_a_fork_acts_for_whom_its_caller_may_act(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/agents", an_agent())
    parent = await an_ended_run(keyed.acme, user="ann")
    path = f"/v1/runs/{parent['id']}/fork"
    bob = await keyed.holding("runs:write", "runs:read", subject="bob")
    reader = await keyed.holding("runs:read")
    writer = await keyed.holding("runs:write")

    fork = await made(bob, path, {"at_seq": 1})

    assert fork["user"] == "bob"
    assert refusal(await bob.post(path, json={"at_seq": 1, "user": "ann"}))[0] == 403
    for one in (reader, writer):
        assert refusal(await one.post(path, json={"at_seq": 1})) == (403, "missing_scope")
    assert refusal(await keyed.globex.post(path, json={"at_seq": 1})) == (404, "run_not_found")
    await over(bob, fork["id"])


async def test_whoever_forks_a_run_asks_for_what_the_fork_asks_for(keyed: KeyedService) -> None:
    policy = {"ask": [{"tool": "send_email", "self_approval": False}], "allow": ["*"]}
    await made(keyed.acme, "/v1/agents", an_agent(policy=policy))
    scopes = ("runs:write", "runs:read", "approvals:decide")
    ann, bob = [await keyed.holding(*scopes, subject=name) for name in ("ann", "bob")]
    parent = await a_waiting_run(ann)
    path = f"/v1/runs/{parent['id']}/fork"

    fork = await made(bob, path, {"at_seq": 1})
    async with bob.stream("GET", f"/v1/runs/{fork['id']}/events?until=waiting") as events:
        await events.aread()
    (asked,) = (await bob.get(f"/v1/approvals?run_id={fork['id']}")).json()["data"]
    decision = f"/v1/approvals/{asked['id']}/decision"

    assert asked["requester"]["user"] == "bob"
    assert refusal(await bob.post(decision, json={"decision": "approve"})) == (403, "self_approval")
    assert (await ann.post(decision, json={"decision": "approve"})).json()["status"] == "approved"
    await over(bob, fork["id"])


async def test_too_long_a_log_and_too_much_of_it_are_refused(
    clerk: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await an_ended_run(clerk)
    path = f"/v1/runs/{parent['id']}/fork"
    with monkeypatch.context() as patched:
        patched.setattr("milepost.api.earlier_runs.EVENTS_MAX", 3)
        assert refusal(await clerk.post(path, json={"at_seq": 1})) == (409, "log_too_long")
    monkeypatch.setattr("milepost.api.run_forks.FORKED_BYTES_MAX", 10)
    assert refusal(await clerk.post(path, json={"at_seq": 1})) == (409, "fork_too_large")


async def test_what_a_tool_left_behind_stays_with_the_other_run(
    clerk: httpx2.AsyncClient,
) -> None:
    parent = await an_ended_run(clerk)
    log = await events_of(clerk, parent["id"])
    fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", {"at_seq": log[-1]["seq"]})
    await over(clerk, fork["id"])
    trace = (await clerk.get(f"/v1/runs/{fork['id']}/trace")).json()
    usage = (await clerk.get(f"/v1/runs/{fork['id']}/usage")).json()
    assert {span["kind"] for span in trace["spans"]} == {"invoke_agent"}
    assert (usage["model_calls"], usage["tools"]) == (0, [])


async def test_guardrails_of_the_agent_that_goes_on_look_at_what_is_new(
    clerk: httpx2.AsyncClient,
) -> None:
    guardrails = {"input": [{"type": "pii"}]}
    await made(clerk, "/v1/agents", an_agent(name="guarded", guardrails=guardrails))
    parent = await an_ended_run(clerk, input="ann@example.com asks: what is 2 + 3?")
    log = await events_of(clerk, parent["id"])
    body = {"at_seq": log[-1]["seq"], "agent": "guarded", "input": "bob@example.com: and 4 + 5?"}

    fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", body)
    ended = await over(clerk, fork["id"])
    own = await events_of(clerk, fork["id"])

    [screened] = [event["data"] for event in own if event["type"] == "input.screened"]
    assert [turn["content"] for turn in screened["input"]] == ["[email]: and 4 + 5?"]
    assert own[1]["data"]["conversation"][0]["content"].startswith("ann@example.com")
    assert "9" in ended["output"]["text"]
    assert (await clerk.post(f"/v1/runs/{fork['id']}/replay")).json()["identical"]


async def test_a_fork_answers_in_the_form_that_was_asked_for_and_has_the_pictures(
    clerk: httpx2.AsyncClient,
) -> None:
    wanted = {"schema": {"type": "object", "required": ["sum"]}, "retries": 0}
    picture = "data:image/png;base64,iVBORw0KGgo="
    parts = [{"type": "text", "text": "What is 2 + 3?"}, {"type": "image", "url": picture}]
    said = {"agent": "clerk", "input": [{"role": "user", "content": parts}]}
    parent = await made(clerk, "/v1/runs", {**said, "response_format": wanted})
    first = await over(clerk, parent["id"])
    log = await events_of(clerk, parent["id"])

    fork = await made(clerk, f"/v1/runs/{parent['id']}/fork", {"at_seq": log[-1]["seq"]})
    again = await over(clerk, fork["id"])
    own = await events_of(clerk, fork["id"])

    assert (again["status"], again["finish_reason"]) == (first["status"], first["finish_reason"])
    assert own[0]["data"]["response_format"]["schema"] == wanted["schema"]
    assert own[1]["data"]["conversation"][0]["images"] == [{"url": picture}]
