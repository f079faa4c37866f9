"""`/v1/approvals`: what waits for a person, and the one answer that it gets."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from milepost.core.canonical import call_digest
from milepost.live.hub import QUEUE_BELL
from milepost.store import queue
from tests.api.asking import ARGUMENTS, decide, ended, equipped, events, mails, parked, started
from tests.api.serving import KeyedService, serving, settings_for
from tests.store.making import an_append, an_approval

EDITED = {"to": "bob@example.com", "subject": "lunch", "body": "not today"}


async def test_a_call_that_needs_a_yes_is_in_the_inbox_and_holds_no_worker(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    asked = await parked(client)

    inbox = (await client.get("/v1/approvals?status=pending")).json()
    queue_now = (await client.get("/v1/queue")).json()

    assert inbox == {"data": [asked], "has_more": False, "next_cursor": None}
    assert asked["tool"] == "send_email"
    assert asked["arguments"] == ARGUMENTS
    assert asked["digest"] == call_digest("send_email", ARGUMENTS)
    assert asked["preview"].startswith("send_email(to='ann@example.com', subject='lunch'")
    assert asked["reason"] == "tool: send_email requires approval"
    assert (asked["status"], asked["required"], asked["decision"]) == ("pending", 1, None)
    assert (queue_now["waiting"], queue_now["slots"]["busy"]) == (1, 0)
    assert mails(tmp_path) == []


async def test_a_yes_lets_the_run_go_on_with_exactly_the_approved_call(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "approve", comment="fine")

    run = await ended(client, asked["run_id"])
    assert answer.status_code == 200
    assert answer.json()["status"] == "approved"
    assert (answer.json()["decided_by"], answer.json()["comment"]) == ("local", "fine")
    assert answer.json()["decided_at"] is not None
    assert run["status"] == "completed"
    assert [{key: mail[key] for key in ARGUMENTS} for mail in mails(tmp_path)] == [ARGUMENTS]


async def test_a_no_reaches_the_model_and_the_tool_never_runs(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "deny", comment="not to her")

    run = await ended(client, asked["run_id"])
    [denied] = [
        event["data"]
        for event in await events(client, asked["run_id"])
        if event["type"] == "tool_call.denied"
    ]
    assert answer.json()["status"] == "denied"
    assert run["status"] == "completed"
    assert (denied["by"], denied["reason"]) == ("local", "not to her")
    assert mails(tmp_path) == []


async def test_edited_arguments_reach_the_tool_under_a_new_digest(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "approve", arguments=EDITED, digest=asked["digest"])

    run = await ended(client, asked["run_id"])
    log = {event["type"]: event["data"] for event in await events(client, asked["run_id"])}
    assert run["status"] == "completed"
    assert answer.json()["arguments"] == EDITED
    assert answer.json()["digest"] == call_digest("send_email", EDITED) != asked["digest"]
    assert answer.json()["preview"].startswith("send_email(to='bob@example.com'")
    assert log["approval.decided"]["arguments"] == EDITED
    assert [{key: mail[key] for key in EDITED} for mail in mails(tmp_path)] == [EDITED]


async def test_edited_arguments_are_coerced_as_the_model_s_are(client: httpx2.AsyncClient) -> None:
    agent = {"name": "adder", "model": "demo/offline", "tools": ["add"], "policy": {"ask": ["add"]}}
    await client.post("/v1/agents", json=agent)
    asked = await parked(client, "add 2 and 3", agent="adder")

    answer = await decide(client, asked, "approve", arguments={"a": "20", "b": 22})

    await ended(client, asked["run_id"])
    log = {event["type"]: event["data"] for event in await events(client, asked["run_id"])}
    assert answer.json()["arguments"] == {"a": 20, "b": 22}
    assert log["tool_call.completed"]["result"] == 42


async def test_edited_arguments_that_do_not_fit_leave_the_question_open(
    client: httpx2.AsyncClient,
) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "approve", arguments={"to": "bob@example.com"})

    again = (await client.get(f"/v1/approvals/{asked['id']}")).json()
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_arguments")
    assert answer.json()["errors"][0]["pointer"] == "/arguments"
    assert "subject" in answer.json()["detail"]
    assert {**again, **asked} == again


async def test_a_denied_call_has_no_arguments(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "deny", arguments=EDITED)

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/arguments")


async def test_the_agent_s_policy_may_deny_an_edited_call(database_url: str) -> None:
    agent = {
        "name": "careful",
        "model": "demo/offline",
        "tools": ["send_email"],
        "policy": {"deny": ["send_*"]},
    }
    async with serving(settings_for(database_url, slots=0)) as service, service.client() as client:
        await client.post("/v1/agents", json=agent)
        await started(client, "hello", agent="careful")
        store = service.app._parts.ports.store
        await store.write(queue.register("worker", 60_000))
        [claim] = await store.write(queue.claim("worker", 1, "claim", 1))
        question = an_approval(claim, agent="careful")
        await store.append(an_append(claim, approvals=(question,)))

        answer = await decide(client, {"id": question.id}, "approve", arguments=EDITED)

    assert (answer.status_code, answer.json()["code"]) == (409, "policy_denied")
    assert "policy: deny send_*" in answer.json()["detail"]


async def test_the_second_decision_is_told_of_the_first(keyed: KeyedService) -> None:
    asked = await parked(await equipped(keyed.acme))
    ann = await keyed.holding("approvals:decide", subject="ann")
    won = await decide(keyed.acme, asked, "deny", comment="too late")

    lost = await decide(ann, asked, "approve")

    assert (lost.status_code, lost.json()["code"]) == (409, "approval_decided")
    assert lost.json()["approval"] == won.json()
    assert lost.json()["approval"]["decision"] == "deny"


@pytest.mark.parametrize("again", ["approve", "deny"])
async def test_a_decision_that_changes_nothing_has_the_queue_looked_at_again(
    keyed: KeyedService, again: str
) -> None:
    """It held the run's row, which a worker that looks just then passes over."""
    asked = await parked(await equipped(keyed.acme))
    await decide(keyed.acme, asked, "deny")
    await ended(keyed.acme, asked["run_id"])

    with keyed.service.app._parts.ports.hub.bell(QUEUE_BELL) as rung:
        answer = await decide(keyed.acme, asked, again)

        assert answer.status_code == (200 if again == "deny" else 409)
        assert rung.is_set()


async def test_two_keys_of_one_name_are_two_callers(keyed: KeyedService) -> None:
    asked = await parked(await equipped(keyed.acme))
    first, second = [await keyed.holding("approvals:decide") for _ in range(2)]

    decided = (await decide(first, asked, "approve")).json()
    again, late = [await decide(each, asked, "approve") for each in (first, second)]

    shown = (await first.get("/v1/approvals")).json()["data"]
    assert (again.status_code, late.status_code) == (200, 409)
    assert decided["decided_by"].startswith("key_")
    assert decided["decided_by_name"] == "acme approvals:decide"
    assert shown == [decided] == [late.json()["approval"]]


async def test_the_log_calls_whoever_decided_by_name(keyed: KeyedService) -> None:
    asked = await parked(await equipped(keyed.acme))
    await decide(await keyed.holding("approvals:decide"), asked, "deny")
    await ended(keyed.acme, asked["run_id"])

    log = await events(keyed.acme, asked["run_id"])

    [said] = [each["data"]["by"] for each in log if each["type"] == "approval.decided"]
    assert said == "acme approvals:decide"


async def test_of_two_who_decide_at_once_one_wins(keyed: KeyedService, tmp_path: Path) -> None:
    asked = await parked(await equipped(keyed.acme))
    ann = await keyed.holding("approvals:decide", subject="ann")

    answers = await asyncio.gather(decide(keyed.acme, asked, "approve"), decide(ann, asked, "deny"))

    run = await ended(keyed.acme, asked["run_id"])
    decided = [
        event["data"]["decision"]
        for event in await events(keyed.acme, asked["run_id"])
        if event["type"] == "approval.decided"
    ]
    [winner] = [answer for answer in answers if answer.status_code == 200]
    [loser] = [answer for answer in answers if answer.status_code == 409]
    assert run["status"] == "completed"
    assert loser.json()["approval"] == winner.json()
    assert decided == [winner.json()["decision"]]
    assert len(mails(tmp_path)) == decided.count("approve")


async def test_who_repeats_a_decision_is_shown_it_again(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    asked = await parked(client)
    first = await decide(client, asked, "approve")
    await ended(client, asked["run_id"])

    again = await decide(client, asked, "approve")

    assert (again.status_code, again.json()) == (200, first.json())
    assert len(mails(tmp_path)) == 1
    assert len(await acts(client, asked)) == 1


async def acts(client: httpx2.AsyncClient, approval: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/audit?target={approval['id']}")
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def test_who_decided_what_is_on_the_audit_trail(keyed: KeyedService) -> None:
    asked = await parked(await equipped(keyed.acme))
    ann = await keyed.holding("approvals:decide", subject="ann")
    await decide(ann, asked, "approve", arguments=EDITED, comment="shorter")

    [act] = await acts(keyed.acme, asked)

    assert (act["action"], act["actor_name"]) == ("approval.decided", "acme approvals:decide")
    assert act["details"]["decision"] == "approve"
    assert act["details"]["comment"] == "shorter"
    assert act["details"]["digest"] == call_digest("send_email", EDITED)
    assert act["details"]["edited_to"] == EDITED
    assert act["details"]["seen"]["arguments"] == ARGUMENTS
    assert act["details"]["run_id"] == asked["run_id"]


async def test_a_decision_that_failed_leaves_no_trace(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "approve", digest="sha256:of another call")

    again = (await client.get(f"/v1/approvals/{asked['id']}")).json()
    assert (answer.status_code, answer.json()["code"]) == (409, "digest_mismatch")
    assert {**again, **asked} == again
    assert await acts(client, asked) == []


async def test_a_question_falls_away_with_its_run(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)
    await client.post(f"/v1/runs/{asked['run_id']}/cancel")

    answer = await decide(client, asked, "approve")

    again = (await client.get(f"/v1/approvals/{asked['id']}")).json()
    assert (answer.status_code, answer.json()["code"]) == (409, "approval_withdrawn")
    assert again["status"] == "withdrawn"


async def test_a_question_that_nobody_answers_in_time_is_a_no(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    hasty = {
        "name": "hasty",
        "model": "demo/offline",
        "tools": ["send_email"],
        "limits": {"approval_ttl_s": 0.01},
    }
    await client.post("/v1/agents", json=hasty)
    asked = await parked(client, agent="hasty")

    run = await ended(client, asked["run_id"])
    answer = await decide(client, asked, "approve")

    again = (await client.get(f"/v1/approvals/{asked['id']}")).json()
    assert run["status"] == "completed"
    assert (answer.status_code, answer.json()["code"]) == (409, "approval_expired")
    assert (again["status"], again["decision"]) == ("expired", None)
    assert mails(tmp_path) == []


async def test_a_question_survives_a_restart(database_url: str, tmp_path: Path) -> None:
    async with serving(settings_for(database_url)) as service, service.client() as client:
        asked = await parked(client)

    async with serving(settings_for(database_url)) as service, service.client() as client:
        answer = await decide(client, asked, "approve")
        run = await ended(client, asked["run_id"])

    assert answer.status_code == 200
    assert run["status"] == "completed"
    assert len(mails(tmp_path)) == 1


async def test_an_edit_needs_the_tool_where_it_is_checked(database_url: str) -> None:
    async with serving(settings_for(database_url)) as service, service.client() as client:
        asked = await parked(client)
    toolless = settings_for(database_url, demo=False, slots=0)

    async with serving(toolless) as service, service.client() as client:
        answer = await decide(client, asked, "approve", arguments=EDITED)
        unchanged = await decide(client, asked, "approve")

    assert (answer.status_code, answer.json()["code"]) == (409, "tool_not_loaded")
    assert unchanged.status_code == 200


async def test_a_repeated_request_is_answered_from_what_it_did(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)
    path, headers = f"/v1/approvals/{asked['id']}/decision", {"idempotency-key": "k-1"}
    first = await client.post(path, json={"decision": "approve"}, headers=headers)

    again = await client.post(path, json={"decision": "approve"}, headers=headers)
    other = await client.post(path, json={"decision": "deny"}, headers=headers)

    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_repeated_edit_is_answered_from_what_it_did_whatever_the_rules_say_by_now(
    client: httpx2.AsyncClient,
) -> None:
    asked = await parked(client)
    path, headers = f"/v1/approvals/{asked['id']}/decision", {"idempotency-key": "k-1"}
    edit = {"decision": "approve", "arguments": EDITED}
    first = await client.post(path, json=edit, headers=headers)
    await ended(client, asked["run_id"])
    await client.put("/v1/policies/tenant", json={"policy": {"deny": ["send_email"]}})

    again = await client.post(path, json=edit, headers=headers)
    late = await client.post(path, json=edit, headers={"idempotency-key": "k-2"})

    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    assert (late.status_code, late.json()["code"]) == (409, "policy_denied")


async def test_many_are_decided_at_once_each_in_its_place(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    first, second = await parked(client), await parked(client)
    decisions = [
        {"approval_id": first["id"], "decision": "approve"},
        {"approval_id": "apr_none", "decision": "approve"},
        {"approval_id": second["id"], "decision": "deny"},
        {"approval_id": first["id"], "decision": "deny"},
    ]

    answer = await client.post("/v1/approvals/decisions", json={"decisions": decisions})

    outcomes = answer.json()["data"]
    await ended(client, first["run_id"])
    await ended(client, second["run_id"])
    assert answer.status_code == 200
    assert [outcome["approval_id"] for outcome in outcomes] == [
        each["approval_id"] for each in decisions
    ]
    assert [outcome["approval"] and outcome["approval"]["status"] for outcome in outcomes] == [
        "approved", None, "denied", None,
    ]  # fmt: skip
    assert [outcome["problem"] and outcome["problem"]["code"] for outcome in outcomes] == [
        None, "approval_not_found", None, "approval_decided",
    ]  # fmt: skip
    assert len(mails(tmp_path)) == 1


async def test_a_repeated_request_for_many_goes_on_with_what_was_left(
    client: httpx2.AsyncClient,
) -> None:
    asked = await parked(client)
    headers = {"idempotency-key": "k-2"}
    body = {"decisions": [{"approval_id": asked["id"], "decision": "approve"}]}
    other = {"decisions": [{"approval_id": asked["id"], "decision": "deny"}]}
    first = await client.post("/v1/approvals/decisions", json=body, headers=headers)

    again = await client.post("/v1/approvals/decisions", json=body, headers=headers)
    refused = await client.post("/v1/approvals/decisions", json=other, headers=headers)

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")


async def test_the_inbox_is_searched_by_what_the_calls_are_about(
    client: httpx2.AsyncClient,
) -> None:
    session = (await client.post("/v1/sessions", json={})).json()["id"]
    first = await parked(client, session_id=session, user="ann")
    second = await parked(client)

    async def found(query: str) -> list[str]:
        answer = await client.get(f"/v1/approvals?{query}")
        return [each["id"] for each in answer.json()["data"]]

    assert await found(f"session_id={session}") == [first["id"]]
    assert await found("user=ann") == [first["id"]]
    assert await found(f"run_id={second['run_id']}") == [second["id"]]
    assert await found("tool=send_email&agent=demo&order=asc") == [first["id"], second["id"]]
    assert await found("tool=add") == []
    assert await found("status=approved") == []


async def test_the_inbox_comes_in_pages(client: httpx2.AsyncClient) -> None:
    first, second = await parked(client), await parked(client)

    page = (await client.get("/v1/approvals?limit=1")).json()
    rest = (await client.get(f"/v1/approvals?limit=1&after={page['next_cursor']}")).json()

    assert ([each["id"] for each in page["data"]], page["has_more"]) == ([second["id"]], True)
    assert ([each["id"] for each in rest["data"]], rest["has_more"]) == ([first["id"]], False)


async def test_a_key_decides_only_with_the_right_to(keyed: KeyedService) -> None:
    asked = await parked(await equipped(keyed.acme))
    reader = await keyed.holding("runs:read")
    approver = await keyed.holding("approvals:decide")
    writer = await keyed.holding("runs:write")

    assert (await reader.get("/v1/approvals")).status_code == 200
    assert (await writer.get("/v1/approvals")).status_code == 403
    assert (await decide(reader, asked, "approve")).json()["code"] == "missing_scope"
    assert (await approver.get(f"/v1/approvals/{asked['id']}")).status_code == 200
    assert (await decide(approver, asked, "approve")).status_code == 200


async def test_another_tenant_s_question_does_not_exist(keyed: KeyedService) -> None:
    asked = await parked(await equipped(keyed.acme))

    shown = await keyed.globex.get(f"/v1/approvals/{asked['id']}")
    decided = await decide(keyed.globex, asked, "approve")
    listed = await keyed.globex.get("/v1/approvals")

    assert (shown.status_code, decided.status_code) == (404, 404)
    assert listed.json()["data"] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/decision"),
        ({"decision": "maybe"}, "/decision"),
        ({"decision": "approve", "force": True}, "/force"),
        ({"decision": "approve", "arguments": [1]}, "/arguments"),
    ],
)
async def test_a_decision_that_cannot_be_read_names_the_place(
    client: httpx2.AsyncClient, body: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/v1/approvals/apr_1/decision", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_status_that_there_is_not_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/approvals?status=open")

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")
