"""`/v1/approvals` where rules say how people are asked, over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from milepost.api import approvals
from tests.api.asking import (
    ARGUMENTS,
    DEMO,
    MAIL,
    decide,
    ended,
    events,
    mails,
    parked,
    started,
)
from tests.api.making import made
from tests.api.serving import KeyedService, serving_tenants, settings_for
from tests.store.making import asking

EDITED = {"to": "bob@example.com", "subject": "lunch", "body": "hello"}


async def ruled(client: httpx2.AsyncClient, **terms: Any) -> httpx2.AsyncClient:
    """Give the client's tenant an agent that asks for mails by these terms."""
    policy = {"ask": [{"tool": "send_email", **terms}], "allow": ["*"]}
    answer = await client.post("/v1/agents", json={**DEMO, "name": "ruled", "policy": policy})
    assert answer.status_code == 201, answer.text
    return client


async def asked_by(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    return await parked(client, agent="ruled", **changes)


async def shown(client: httpx2.AsyncClient, asked: dict[str, Any]) -> dict[str, Any]:
    approval: dict[str, Any] = (await client.get(f"/v1/approvals/{asked['id']}")).json()
    return approval


async def acts(client: httpx2.AsyncClient, asked: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/audit?target={asked['id']}&order=asc")
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


async def refusal(
    client: httpx2.AsyncClient, asked: dict[str, Any], decision: str, **more: Any
) -> tuple[int, str]:
    answer = await decide(client, asked, decision, **more)
    return answer.status_code, answer.json()["code"]


async def test_an_approval_shows_how_people_are_asked(client: httpx2.AsyncClient) -> None:
    await ruled(client, required=2, approvers=["user:ann", "scope:finance"], remind_s=60)

    asked = await asked_by(client, user="cas")

    assert (asked["kind"], asked["required"], asked["escalated"]) == ("call", 2, False)
    assert asked["terms"] == {
        "approvers": ["user:ann", "scope:finance"],
        "self_approval": True,
        "ttl_s": None,
        "on_timeout": "deny",
        "escalate_to": [],
        "remind_s": 60.0,
    }
    assert asked["requester"] == {"key": "local", "user": "cas", "speakers": []}
    assert asked["remind_at"] is not None
    assert (asked["votes"], asked["diff"], asked["version"]) == ([], None, 1)


@pytest.mark.parametrize("on_loop_max", [0, approvals.ON_LOOP_MAX])
async def test_one_reads_what_was_said_before_and_what_one_may_answer(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, on_loop_max: int
) -> None:
    monkeypatch.setattr(approvals, "ON_LOOP_MAX", on_loop_max)
    asked = await parked(client)

    approval = await shown(client, asked)

    [said] = approval["context"]
    assert (said["role"], "ann@example.com" in said["text"]) == ("user", True)
    assert (approval["can_decide"], approval["answers"]) == (True, ["approve", "deny"])
    await decide(client, asked, "deny")
    assert (await shown(client, asked))["answers"] == []


@pytest.mark.parametrize(
    "terms",
    [
        {"required": 2},
        {"approvers": ["user:ann"]},
        {"self_approval": False},
        {"approvers": ["user:ann"], "rate": {"more_than": 0, "within_s": 60}},
    ],
    ids=["two", "named", "somebody else", "too often"],
)
async def test_nobody_edits_a_call_into_one_that_others_must_approve(
    client: httpx2.AsyncClient, tmp_path: Path, terms: dict[str, Any]
) -> None:
    important = {"tool": "send_email", "args": [{"arg": "to", "pattern": "*@vip.example"}]}
    often = {"tool": "send_email", "rate": {"more_than": 9, "within_s": 60}}
    policy = {"ask": ["send_email", {**important, **terms}, often], "allow": ["*"]}
    await made(client, "/v1/agents", {**DEMO, "name": "ruled", "policy": policy})
    asked = await asked_by(client)
    to_boss = {**EDITED, "to": "boss@vip.example"}

    told = await refusal(client, asked, "approve", arguments=to_boss)

    assert told == (409, "policy_denied")
    assert (await shown(client, asked))["status"] == "pending"
    assert (await decide(client, asked, "approve", arguments=EDITED)).status_code == 200
    await ended(client, asked["run_id"])
    assert [mail["to"] for mail in mails(tmp_path)] == ["bob@example.com"]


async def test_an_edited_call_counts_once_as_the_call_that_it_was(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    often = {"tool": "send_email", "rate": {"more_than": 1, "within_s": 60}, "required": 2}
    policy = {"ask": ["send_email", often], "allow": ["*"]}
    await made(client, "/v1/agents", {**DEMO, "name": "ruled", "policy": policy})
    asked = await asked_by(client)

    decided = await decide(client, asked, "approve", arguments=EDITED)

    await ended(client, asked["run_id"])
    assert (decided.status_code, len(mails(tmp_path))) == (200, 1)


async def test_whoever_sends_the_call_back_as_it_was_may_if_they_might_without(
    client: httpx2.AsyncClient,
) -> None:
    """The rules have become stricter since, which holds for what is asked from now on."""
    asked = await parked(client)
    policy = {"ask": [{"tool": "send_email", "required": 2}]}
    assert (await client.put("/v1/policies/tenant", json={"policy": policy})).is_success

    decided = await decide(client, asked, "approve", arguments=asked["arguments"])

    assert decided.json()["status"] == "approved"


async def test_who_was_asked_by_the_same_terms_edits_as_they_like(keyed: KeyedService) -> None:
    await ruled(
        keyed.acme, approvers=["user:ann"], ttl_s=2, on_timeout="escalate",
        escalate_to=["user:cas"],
    )  # fmt: skip
    asked = await asked_by(keyed.acme)
    while not (await shown(keyed.acme, asked))["escalated"]:
        pass
    cas = await keyed.holding("approvals:decide", subject="cas")

    decided = await decide(cas, asked, "approve", arguments=EDITED)

    # Whoever is late is told so, and not that it is for others.
    assert decided.status_code == 200 or decided.json()["code"] == "approval_expired"


async def test_an_edit_shows_what_it_changed(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, "approve", arguments=EDITED)

    assert answer.json()["diff"] == [
        {"path": "/to", "from": "ann@example.com", "to": "bob@example.com"}
    ]


@pytest.mark.parametrize(
    ("decision", "more", "pointer"),
    [
        ("happened", {}, "/decision"),
        ("stop", {}, "/decision"),
        ("approve", {"result": 7}, "/result"),
        ("deny", {"remember": {"for": "session", "ttl_s": 60}}, "/remember"),
        ("approve", {"remember": {"for": "ever", "ttl_s": 60}}, "/remember/for"),
        ("approve", {"remember": {"for": "session"}}, "/remember/ttl_s"),
    ],
)
async def test_what_does_not_answer_the_question_is_refused_in_its_place(
    client: httpx2.AsyncClient, decision: str, more: dict[str, Any], pointer: str
) -> None:
    asked = await parked(client)

    answer = await decide(client, asked, decision, **more)

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await shown(client, asked) | asked == await shown(client, asked)


# --- Quorum and approvers -------------------------------------------------------------------


async def test_several_people_must_agree_and_each_is_seen_to_have(
    keyed: KeyedService, tmp_path: Path
) -> None:
    await ruled(keyed.acme, required=2)
    asked = await asked_by(keyed.acme)
    ann, also_ann, bob = [
        await keyed.holding("approvals:decide", subject=name) for name in ("ann", "ann", "bob")
    ]

    assert await refusal(ann, asked, "approve") == (422, "digest_required")
    first = (await decide(ann, asked, "approve", digest=asked["digest"])).json()
    twice = (await decide(also_ann, asked, "approve", digest=asked["digest"])).json()
    second = (await decide(bob, asked, "approve", digest=asked["digest"])).json()

    await ended(keyed.acme, asked["run_id"])
    assert (first["status"], len(first["votes"])) == ("pending", 1)
    assert first["votes"][0]["person"] == "user:ann"
    assert (twice["status"], len(twice["votes"])) == ("pending", 1)
    assert (second["status"], len(second["votes"])) == ("approved", 2)
    assert len(mails(tmp_path)) == 1
    actions = [act["action"] for act in await acts(keyed.acme, asked)]
    assert actions == ["approval.voted", "approval.decided"]


async def test_a_vote_is_shown_not_to_count_once_its_key_was_revoked(keyed: KeyedService) -> None:
    await ruled(keyed.acme, required=2)
    asked = await asked_by(keyed.acme)
    ann, bob = [await keyed.holding("approvals:decide", subject=name) for name in ("ann", "bob")]
    voted = (await decide(ann, asked, "approve", digest=asked["digest"])).json()

    await keyed.acme.delete(f"/v1/keys/{voted['votes'][0]['by']}")
    after = (await decide(bob, asked, "approve", digest=asked["digest"])).json()

    assert [vote["counts"] for vote in voted["votes"]] == [True]
    assert [(vote["person"], vote["counts"]) for vote in after["votes"]] == [
        ("user:ann", False),
        ("user:bob", True),
    ]
    assert after["status"] == "pending"
    await decide(bob, asked, "deny", digest=asked["digest"])


async def test_who_sends_the_call_back_as_it_was_has_edited_nothing(
    keyed: KeyedService, tmp_path: Path
) -> None:
    """A form sends all of its fields: that is a vote like any other, and voids nobody's."""
    await ruled(keyed.acme, required=2)
    asked = await asked_by(keyed.acme)
    ann, bob = [await keyed.holding("approvals:decide", subject=name) for name in ("ann", "bob")]
    same = dict(reversed(asked["arguments"].items()))

    first = (await decide(ann, asked, "approve", digest=asked["digest"])).json()
    second = (await decide(bob, asked, "approve", arguments=same)).json()

    await ended(keyed.acme, asked["run_id"])
    assert (first["status"], second["status"], second["diff"]) == ("pending", "approved", None)
    assert len(mails(tmp_path)) == 1


async def test_whoever_sends_back_a_call_that_was_edited_meanwhile_is_told(
    keyed: KeyedService,
) -> None:
    await ruled(keyed.acme, required=2)
    asked = await asked_by(keyed.acme)
    ann, bob = [await keyed.holding("approvals:decide", subject=name) for name in ("ann", "bob")]
    await decide(ann, asked, "approve", digest=asked["digest"], arguments=EDITED)

    told = await refusal(
        bob, asked, "approve", digest=asked["digest"], arguments=asked["arguments"]
    )

    assert told == (409, "digest_mismatch")
    await decide(bob, asked, "deny", digest=(await shown(keyed.acme, asked))["digest"])


@pytest.mark.parametrize("required", [1, 2])
async def test_who_repeats_an_edit_is_shown_it_again(keyed: KeyedService, required: int) -> None:
    """The digest that came along is that of the call as it was: the edit itself has changed it."""
    await ruled(keyed.acme, required=required)
    asked = await asked_by(keyed.acme)
    edit = {"decision": "approve", "digest": asked["digest"], "arguments": EDITED}
    path = f"/v1/approvals/{asked['id']}/decision"
    first = await keyed.acme.post(path, json=edit)

    again = await keyed.acme.post(path, json=edit)
    together = await keyed.acme.post(
        "/v1/approvals/decisions", json={"decisions": [{"approval_id": asked["id"], **edit}]}
    )

    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json() == together.json()["data"][0]["approval"] == first.json()
    assert len(await acts(keyed.acme, asked)) == 1


@pytest.mark.parametrize("mode", ["alone", "all"])
async def test_nobody_s_vote_is_taken_for_a_repetition_of_somebody_else_s(
    keyed: KeyedService, tmp_path: Path, mode: str
) -> None:
    """An inbox that names its keys after approvals sends the same one for everybody."""
    await ruled(keyed.acme, required=2)
    asked = await asked_by(keyed.acme)
    first, second = [await keyed.holding("approvals:decide") for _ in range(2)]
    one: dict[str, Any] = {"decision": "approve", "digest": asked["digest"]}
    path, body = f"/v1/approvals/{asked['id']}/decision", one
    if mode == "all":
        path = "/v1/approvals/decisions"
        body = {"mode": "all", "decisions": [{"approval_id": asked["id"], **one}]}
    headers = {"idempotency-key": f"approve-{asked['id']}"}

    voted = await first.post(path, json=body, headers=headers)
    again = await first.post(path, json=body, headers=headers)
    refused = await second.post(path, json=body, headers=headers)
    decided = await second.post(path, json=body, headers={"idempotency-key": "another"})

    assert again.headers["idempotency-replayed"] == "true"
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert [answer.status_code for answer in (voted, again, decided)] == [200, 200, 200]
    await ended(keyed.acme, asked["run_id"])
    assert len(mails(tmp_path)) == 1


async def test_who_voted_may_think_again_while_it_is_open(
    keyed: KeyedService, tmp_path: Path
) -> None:
    await ruled(keyed.acme, required=2)
    asked = await asked_by(keyed.acme)
    ann = await keyed.holding("approvals:decide", subject="ann")
    await decide(ann, asked, "approve", digest=asked["digest"])

    denied = (await decide(ann, asked, "deny", digest=asked["digest"])).json()

    await ended(keyed.acme, asked["run_id"])
    assert denied["status"] == "denied"
    assert [vote["decision"] for vote in denied["votes"]] == ["deny"]
    assert mails(tmp_path) == []


async def test_only_whoever_is_named_may_answer_whatever_else_their_key_may(
    keyed: KeyedService,
) -> None:
    await ruled(keyed.acme, approvers=["user:ann", "scope:finance"])
    asked = await asked_by(keyed.acme)
    ann = await keyed.holding("approvals:decide", subject="ann")
    bob = await keyed.holding("approvals:decide", subject="bob")
    desk = await keyed.holding("approvals:decide", "scope:finance")

    assert await refusal(bob, asked, "approve") == (403, "not_an_approver")
    assert await refusal(bob, asked, "deny") == (403, "not_an_approver")
    assert await refusal(keyed.acme, asked, "approve") == (403, "not_an_approver")
    assert (await shown(bob, asked))["can_decide"] is False
    assert [(await shown(each, asked))["can_decide"] for each in (ann, desk)] == [True, True]
    assert (await decide(desk, asked, "approve")).status_code == 200


async def test_whoever_asked_for_the_run_does_not_approve_it(keyed: KeyedService) -> None:
    await ruled(keyed.acme, self_approval=False)
    ann = await keyed.holding("runs:write", "runs:read", "approvals:decide", subject="ann")
    also_ann = await keyed.holding("approvals:decide", subject="ann")
    bob = await keyed.holding("approvals:decide", subject="bob")
    asked = await asked_by(ann)

    assert await refusal(ann, asked, "approve") == (403, "self_approval")
    assert await refusal(also_ann, asked, "approve") == (403, "self_approval")
    assert (await shown(also_ann, asked))["answers"] == ["deny"]
    mine = [
        len((await each.get("/v1/approvals?mine=true&status=pending")).json()["data"])
        for each in (ann, also_ann, bob)
    ]
    assert mine == [0, 0, 1]
    assert (await decide(bob, asked, "approve")).status_code == 200


async def test_whoever_told_the_run_what_to_do_does_not_approve_it(
    keyed: KeyedService, tmp_path: Path
) -> None:
    await ruled(keyed.acme, self_approval=False)
    ann, bob, cas = [
        await keyed.holding("runs:write", "runs:read", "approvals:decide", subject=name)
        for name in ("ann", "bob", "cas")
    ]
    first = await asked_by(ann)
    anns_id = first["requester"]["key"]

    told = await bob.post(
        f"/v1/runs/{first['run_id']}/messages",
        json={"content": "Send a mail to bob@example.com about money saying thanks"},
    )
    await decide(cas, first, "deny")
    questions = f"/v1/runs/{first['run_id']}/events?types=approval.requested&deltas=false"
    async with bob.stream("GET", questions) as stream:
        found = (line async for line in stream.aiter_lines() if line.startswith("data: "))
        [_, _] = [await anext(found) for _ in range(2)]
        await found.aclose()
    [second] = (await bob.get("/v1/approvals?status=pending")).json()["data"]

    assert told.status_code == 202
    assert (first["requester"]["speakers"], second["requester"]["key"]) == ([], anns_id)
    [speaker] = second["requester"]["speakers"]
    assert speaker not in {anns_id, None}
    assert await refusal(bob, second, "approve") == (403, "self_approval")
    assert (await shown(bob, second))["answers"] == ["deny"]
    mine = [
        len((await each.get("/v1/approvals?mine=true&status=pending")).json()["data"])
        for each in (ann, bob, cas)
    ]
    assert mine == [0, 0, 1]
    assert (await decide(cas, second, "approve")).status_code == 200
    await ended(ann, first["run_id"])
    assert [mail["to"] for mail in mails(tmp_path)] == ["bob@example.com"]


async def test_whoever_asked_for_the_run_may_deny(keyed: KeyedService) -> None:
    await ruled(keyed.acme, self_approval=False)
    asked = await asked_by(keyed.acme)

    assert await refusal(keyed.acme, asked, "approve") == (403, "self_approval")
    assert (await decide(keyed.acme, asked, "deny")).json()["status"] == "denied"


async def test_a_call_has_brought_one_result_whoever_says_so_again(database_url: str) -> None:
    async with serving_tenants(settings_for(database_url, slots=0)) as keyed:
        question = await asking(keyed.service.app._parts.ports.store, kind="outcome")
        asked = {"id": question.id}

        first, again = [
            await decide(keyed.acme, asked, "happened", result={"paid": 1}) for _ in range(2)
        ]

        assert [first.status_code, again.status_code] == [200, 200]
        other = await refusal(keyed.acme, asked, "happened", result={"paid": 2})
        assert other == (409, "approval_decided")


# --- Always for this session ----------------------------------------------------------------


async def test_a_yes_for_the_session_is_not_asked_for_again_until_it_is_taken_back(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    session = (await client.post("/v1/sessions", json={})).json()["id"]
    asked = await parked(client, session_id=session)
    remember = {"for": "session", "ttl_s": 600, "arguments": "same"}
    await decide(client, asked, "approve", remember=remember)
    await ended(client, asked["run_id"])

    again = {"agent": "demo", "input": "Send a mail to ann@example.com about lunch saying hello"}
    second = (await client.post("/v1/runs", json={**again, "session_id": session})).json()["id"]
    await ended(client, second)
    [grant] = (await client.get(f"/v1/grants?session_id={session}")).json()["data"]
    elsewhere = await parked(client)

    assert (grant["approval_id"], grant["digest"]) == (asked["id"], asked["digest"])
    assert grant["active"] is True
    assert len(mails(tmp_path)) == 2
    assert elsewhere["status"] == "pending"
    revoked = (await client.delete(f"/v1/grants/{grant['id']}")).json()
    third = await parked(client, session_id=session)
    assert (revoked["active"], third["status"]) == (False, "pending")


async def test_a_yes_that_was_to_hold_for_once_is_not_made_to_hold_on_afterwards(
    client: httpx2.AsyncClient,
) -> None:
    asked = await parked(client)
    remember = {"for": "session", "ttl_s": 600}
    await decide(client, asked, "approve")

    late = await refusal(client, asked, "approve", remember=remember)

    assert late == (409, "approval_decided")
    another = await parked(client)
    granted = [await decide(client, another, "approve", remember=remember) for _ in range(2)]
    assert [answer.status_code for answer in granted] == [200, 200]
    grants = (await client.get("/v1/grants")).json()["data"]
    assert [grant["approval_id"] for grant in grants] == [another["id"]]


async def test_what_somebody_granted_to_others_is_no_yes_to_their_own_runs(
    keyed: KeyedService,
) -> None:
    await ruled(keyed.acme, self_approval=False)
    ann = await keyed.holding("runs:write", "runs:read", subject="ann")
    bob = await keyed.holding("runs:write", "runs:read", "approvals:decide", subject="bob")
    asked = await asked_by(ann)
    remember = {"for": "session", "ttl_s": 600, "arguments": "same"}
    await decide(bob, asked, "approve", remember=remember)
    await ended(ann, asked["run_id"])

    again = await started(ann, MAIL, agent="ruled", session_id=asked["session_id"])
    anns = await ended(ann, again)
    bobs = await asked_by(bob, session_id=asked["session_id"])

    assert anns["status"] == "completed"
    assert (bobs["status"], bobs["digest"]) == ("pending", asked["digest"])
    assert await refusal(bob, bobs, "approve") == (403, "self_approval")


async def test_one_of_several_votes_grants_nothing(client: httpx2.AsyncClient) -> None:
    await ruled(client, required=2)
    asked = await asked_by(client)

    code = await refusal(
        client, asked, "approve", digest=asked["digest"], remember={"for": "session", "ttl_s": 9}
    )

    assert code == (409, "not_rememberable")
    assert (await client.get("/v1/grants")).json()["data"] == []


# --- Silence, reminders and second thoughts -------------------------------------------------


async def test_silence_goes_to_others_and_then_is_a_no(keyed: KeyedService, tmp_path: Path) -> None:
    await ruled(
        keyed.acme, approvers=["user:ann"], ttl_s=0.2, on_timeout="escalate",
        escalate_to=["user:cas"],
    )  # fmt: skip
    asked = await asked_by(keyed.acme)

    run = await ended(keyed.acme, asked["run_id"])

    types = [event["type"] for event in await events(keyed.acme, asked["run_id"])]
    approval = await shown(keyed.acme, asked)
    assert run["status"] == "completed"
    assert types.index("approval.escalated") < types.index("approval.expired")
    assert types.count("approval.escalated") == types.count("approval.expired") == 1
    assert (approval["status"], approval["escalated"]) == ("expired", True)
    assert approval["terms"]["approvers"] == ["user:cas"]
    assert mails(tmp_path) == []


async def test_silence_may_end_the_run(client: httpx2.AsyncClient) -> None:
    await ruled(client, ttl_s=0.05, on_timeout="fail")
    asked = await asked_by(client)

    run = await ended(client, asked["run_id"])

    assert (run["status"], run["error"]["code"]) == ("failed", "approval_expired")


async def test_a_question_is_taken_back_by_whoever_may_run(
    keyed: KeyedService, tmp_path: Path
) -> None:
    await ruled(keyed.acme)
    asked = await asked_by(keyed.acme)
    path = f"/v1/approvals/{asked['id']}/withdraw"
    reader = await keyed.holding("runs:read")
    writer = await keyed.holding("runs:write")

    assert (await reader.post(path, json={})).json()["code"] == "missing_scope"
    assert (await keyed.globex.post(path, json={})).status_code == 404
    taken = (await writer.post(path, json={"reason": "settled by phone"})).json()
    again = (await writer.post(path, json={"reason": "settled by phone"})).json()

    run = await ended(keyed.acme, asked["run_id"])
    log = {event["type"]: event["data"] for event in await events(keyed.acme, asked["run_id"])}
    [act] = await acts(keyed.acme, asked)
    assert (taken["status"], taken["comment"]) == ("withdrawn", "settled by phone")
    assert again == taken
    assert run["status"] == "completed"
    assert log["approval.withdrawn"]["reason"] == "settled by phone"
    assert act["action"] == "approval.withdrawn"
    assert mails(tmp_path) == []


async def test_the_audit_trail_says_from_where_a_decision_came(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)
    headers = {"user-agent": "inbox/1.0"}
    body = {"decision": "approve", "digest": asked["digest"]}
    await client.post(f"/v1/approvals/{asked['id']}/decision", json=body, headers=headers)

    [act] = await acts(client, asked)

    assert act["details"]["from"] == {"address": "127.0.0.1", "user_agent": "inbox/1.0"}
    assert act["details"]["seen"]["arguments"] == ARGUMENTS
    assert act["details"]["seen"]["digest"] == asked["digest"]


# --- All or none ----------------------------------------------------------------------------


def naming(*decisions: tuple[dict[str, Any], str]) -> dict[str, Any]:
    return {
        "mode": "all",
        "decisions": [
            {"approval_id": asked["id"], "decision": decision} for asked, decision in decisions
        ],
    }


async def test_several_are_decided_together(client: httpx2.AsyncClient, tmp_path: Path) -> None:
    first, second = await parked(client), await parked(client)
    body = naming((second, "deny"), (first, "approve"))
    headers = {"idempotency-key": "k-all"}

    answer = await client.post("/v1/approvals/decisions", json=body, headers=headers)
    again = await client.post("/v1/approvals/decisions", json=body, headers=headers)

    await ended(client, first["run_id"])
    statuses = [each["approval"]["status"] for each in answer.json()["data"]]
    assert (answer.status_code, statuses) == (200, ["denied", "approved"])
    assert again.headers["idempotency-replayed"] == "true"
    assert [each["approval"]["status"] for each in again.json()["data"]] == statuses
    assert len(mails(tmp_path)) == 1


async def test_where_one_cannot_be_decided_none_is(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    first, second, third = [await parked(client) for _ in range(3)]
    await decide(client, second, "deny")
    missing = {"id": "apr_none"}
    body = naming((first, "approve"), (second, "approve"), (missing, "deny"), (third, "happened"))

    answer = await client.post("/v1/approvals/decisions", json=body)

    told = answer.json()
    assert (answer.status_code, told["code"]) == (409, "none_decided")
    assert [each["problem"] and each["problem"]["code"] for each in told["data"]] == [
        None, "approval_decided", "approval_not_found", "wrong_decision",
    ]  # fmt: skip
    assert told["data"][1]["problem"]["approval"]["status"] == "denied"
    statuses = [(await shown(client, each))["status"] for each in (first, third)]
    assert statuses == ["pending", "pending"]
    assert await acts(client, first) == []
    assert mails(tmp_path) == []


async def test_two_who_decide_the_same_together_do_not_wait_for_each_other(
    client: httpx2.AsyncClient,
) -> None:
    first, second = await parked(client), await parked(client)
    bodies = [
        naming((first, "deny"), (second, "deny")),
        naming((second, "approve"), (first, "approve")),
    ]

    answers = await asyncio.gather(
        *(client.post("/v1/approvals/decisions", json=body) for body in bodies)
    )

    assert sorted(answer.status_code for answer in answers) == [200, 409]
    statuses = {(await shown(client, each))["status"] for each in (first, second)}
    assert len(statuses) == 1


# --- Finding --------------------------------------------------------------------------------


async def test_the_inbox_is_searched_by_kind_and_age(client: httpx2.AsyncClient) -> None:
    asked = await parked(client)

    async def found(**query: str) -> int:
        return len((await client.get("/v1/approvals", params=query)).json()["data"])

    assert await found(kind="call") == 1
    assert await found(kind="outcome") == 0
    assert await found(older_than_s="3600") == 0
    assert await found(created_after=asked["created_at"]) == 0
    assert await found(created_after="2020-01-01T00:00:00Z") == 1
    assert await found(created_before="2020-01-01T00:00:00Z") == 0
    assert await found(mine="true") == 1
