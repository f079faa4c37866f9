"""`/v1/policies` and `/v1/grants`: rules that stand besides agents', and what a call would meet."""

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from milepost.runtime.clock import now_ms
from milepost.store import grants
from milepost.store.grants import GrantRow
from tests.api.asking import events
from tests.api.making import an_agent, made, refusal
from tests.api.searching import tables_with
from tests.api.serving import KeyedService

TENANT = "/v1/policies/tenant"
CHECK = "/v1/policies/check"
SUM = {"agent": "clerk", "input": "What is 2 + 3?"}
ADD = {"agent": "clerk", "tool": "add", "arguments": {"a": "2", "b": 3}}


@pytest.fixture(autouse=True)
async def clerk(keyed: KeyedService) -> None:
    """An agent that adds, without a policy of its own."""
    await made(keyed.acme, "/v1/agents", an_agent(tools=["add"]))


async def checked(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    """Ask what would become of a call."""
    answer = await client.post(CHECK, json={**ADD, **changes})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_policy_is_replaced_as_a_whole_shown_as_it_holds_and_audited(
    keyed: KeyedService,
) -> None:
    acme = keyed.acme
    rule = {"tool": "refund", "arg": "cents", "pattern": "9*", "reason": "too much"}
    first = await acme.get(TENANT)
    put = await acme.put(TENANT, json={"policy": {"deny": ["delete_*"], "deny_when": [rule]}})

    assert (first.json()["policy"], first.headers["etag"]) == (None, '"0"')
    assert put.json()["policy"] == {
        "deny": ["delete_*"],
        "ask": [],
        "allow": [],
        "deny_when": [
            {
                "tool": "refund",
                "args": [{"arg": "cents", "pattern": "9*"}],
                "reason": "too much",
            }
        ],
    }
    assert (await acme.get(TENANT)).json() == put.json()
    assert (await acme.put(TENANT, json={"policy": put.json()["policy"]})).headers["etag"] == '"1"'
    assert (await keyed.globex.get(TENANT)).json()["policy"] is None
    trail = (await acme.get("/v1/audit?action=policy.changed")).json()["data"]
    assert [act["target"] for act in trail] == ["tenant"]


async def test_who_names_no_version_removes_a_policy_whoever_else_changes_it_meanwhile(
    keyed: KeyedService,
) -> None:
    acme, body = keyed.acme, {"policy": {"deny": ["delete_*"]}}
    await acme.put(TENANT, json=body)

    answers = await asyncio.gather(*(acme.delete(TENANT) for _ in range(8)))

    assert {each.status_code for each in answers} == {204}
    acts = (await acme.get("/v1/audit?action=policy.changed")).json()["data"]
    assert [act["details"]["policy"] is None for act in acts] == [True, False]


async def test_a_policy_is_changed_only_as_the_version_that_was_read(keyed: KeyedService) -> None:
    acme = keyed.acme
    await acme.put(TENANT, json={"policy": {"deny": ["x"]}})

    late = await acme.put(TENANT, json={"policy": {}}, headers={"If-Match": '"0"'})
    removed = await acme.delete(TENANT, headers={"If-Match": '"1"'})

    assert refusal(late) == (412, "precondition_failed")
    assert removed.status_code == 204
    assert (await acme.get(TENANT)).json()["policy"] is None
    assert (await acme.delete(TENANT)).status_code == 204


async def test_a_policy_in_the_place_of_one_that_was_removed_is_another_version(
    keyed: KeyedService,
) -> None:
    acme = keyed.acme
    read = (await acme.put(TENANT, json={"policy": {"deny": ["x"]}})).headers["etag"]
    await acme.delete(TENANT)
    gone = await acme.get(TENANT)
    await acme.put(TENANT, json={"policy": {"deny": ["y"]}})

    late = [
        await acme.put(TENANT, json={"policy": {}}, headers={"If-Match": read}),
        await acme.delete(TENANT, headers={"If-Match": read}),
    ]

    assert (gone.json()["policy"], gone.json()["version"]) == (None, 0)
    assert [refusal(each) for each in late] == [(412, "precondition_failed")] * 2
    assert (await acme.get(TENANT)).json()["policy"]["deny"] == ["y"]


async def test_a_tenants_rule_holds_for_the_next_call_of_any_run(keyed: KeyedService) -> None:
    acme = keyed.acme
    await made(acme, "/v1/runs?wait=20", SUM)
    await acme.put(TENANT, json={"policy": {"deny": [{"tool": "add", "reason": "no sums"}]}})

    run = await made(acme, "/v1/runs?wait=20", SUM)

    log = await events(acme, run["id"])
    denied = [each["data"] for each in log if each["type"] == "tool_call.denied"]
    assert [each["reason"] for each in denied] == ["tenant's policy: deny add: no sums"]


async def test_a_sessions_rules_are_its_own_and_go_with_it(keyed: KeyedService) -> None:
    acme = keyed.acme
    session = await made(acme, "/v1/sessions", {})
    path = f"/v1/policies/sessions/{session['id']}"
    await acme.put(path, json={"policy": {"deny": ["add"]}})

    here, elsewhere = await checked(acme, session_id=session["id"]), await checked(acme)

    assert (here["verdict"], elsewhere["verdict"]) == ("deny", "allow")
    assert refusal(await keyed.globex.get(path)) == (404, "session_not_found")
    assert (await acme.delete(f"/v1/sessions/{session['id']}")).status_code == 204
    assert refusal(await acme.get(path)) == (404, "session_not_found")


async def test_nobody_gets_around_a_sessions_rules_by_forking_it(keyed: KeyedService) -> None:
    acme, writer = keyed.acme, await keyed.holding("runs:write", "runs:read")
    run = await made(acme, "/v1/runs?wait=20", SUM)
    path = "/v1/policies/sessions/"
    rules = {"deny": ["add"], "ask": ["multiply"], "allow": ["send_email"]}
    await acme.put(path + run["session_id"], json={"policy": rules})

    fork = await made(writer, f"/v1/sessions/{run['session_id']}/fork", {})
    again = await made(writer, f"/v1/sessions/{fork['id']}/fork", {})
    forked_run = await made(writer, f"/v1/runs/{run['id']}/fork", {"at_seq": 1})

    for session_id in (fork["id"], again["id"], forked_run["session_id"]):
        kept = (await acme.get(path + session_id)).json()
        here = await checked(acme, session_id=session_id)
        assert (here["verdict"], kept["version"]) == ("deny", 1)
        assert kept["policy"] == {"deny": ["add"], "ask": ["multiply"], "allow": []}


async def test_a_fork_of_a_session_without_rules_has_none(keyed: KeyedService) -> None:
    acme = keyed.acme
    session = await made(acme, "/v1/sessions", {})
    path = "/v1/policies/sessions/"
    await acme.put(path + session["id"], json={"policy": {"allow": ["add"]}})

    fork = await made(acme, f"/v1/sessions/{session['id']}/fork", {})

    assert (await acme.get(path + fork["id"])).json()["policy"] is None


@pytest.mark.parametrize(
    ("policy", "pointer", "said"),
    [
        ({"deny_when": [{"tool": "add"}]}, "/policy/deny_when/0", "name a tool alone in deny"),
        ({"deny": [{"tool": "add", "arg": "a"}]}, "/policy/deny/0", "go together"),
        ({"deny": [{"tool": "add", "args": [{"arg": "a["}]}]}, "/policy/deny/0", "no way to"),
        (
            {"ask": [{"tool": "a", "args": [{"arg": "b", "min": 2, "max": 1}]}]},
            "/policy/ask/0",
            "min is more than max",
        ),
        ({"ask": [{"tool": "a", "on_timeout": "escalate"}]}, "/policy/ask/0", "escalate_to"),
        (
            {"ask": [{"tool": "a", "required": 2, "approvers": ["user:ann"]}]},
            "/policy/ask/0",
            "name more",
        ),
        ({"ask": [{"tool": "a", "approvers": ["ann"]}]}, "/policy/ask/0", "pattern"),
        ({"allow": [{"tool": "a", "required": 2}]}, "/policy/allow/0", "no such field"),
        ({"allow": [{"tool": "a", "rate": {"more_than": -1, "within_s": 1}}]}, "/policy", ""),
        (
            {"allow": [{"tool": "a", "rate": {"more_than": 3, "within_s": 60}}]},
            "/policy/allow/0",
            "one call too many",
        ),
        ({"alow": []}, "/policy/alow", "no such field"),
    ],
)
async def test_a_rule_that_means_nothing_is_refused_with_its_place(
    keyed: KeyedService, policy: dict[str, Any], pointer: str, said: str
) -> None:
    answer = await keyed.acme.put(TENANT, json={"policy": policy})

    assert answer.status_code == 422, answer.text
    faults = answer.json()["errors"]
    assert any(
        fault["pointer"].startswith(pointer) and said in fault["detail"] for fault in faults
    ), faults


async def test_a_check_says_what_would_happen_and_why_and_does_nothing(
    keyed: KeyedService,
) -> None:
    acme = keyed.acme
    asked = {"tool": "add", "required": 2, "reason": "two must see it"}
    await acme.put(TENANT, json={"policy": {"ask": [asked]}})

    ask, unknown = await checked(acme), await checked(acme, tool="subtract")
    invalid = await checked(acme, arguments={"a": "x", "b": 3})

    assert (ask["verdict"], ask["terms"]) == ("ask", {"required": 2})
    assert ask["reason"] == "tenant's policy: ask add: two must see it"
    assert ask["arguments"] == {"a": 2, "b": 3}
    assert (unknown["verdict"], unknown["error"]["code"]) == ("invalid", "unknown_tool")
    assert (invalid["verdict"], invalid["by"]) == ("invalid", "schema")
    assert (await acme.get("/v1/runs")).json()["data"] == []


async def test_a_check_foretells_what_a_rate_will_say_and_counts_nothing(
    keyed: KeyedService,
) -> None:
    acme = keyed.acme
    often = {"tool": "add", "rate": {"more_than": 1, "within_s": 3600}}
    await acme.put(TENANT, json={"policy": {"ask": [often]}})
    before = [await checked(acme) for _ in range(3)]
    await made(acme, "/v1/runs?wait=20", SUM)

    after = await checked(acme)

    assert [(each["verdict"], each["counts"]) for each in before] == [("allow", [1])] * 3
    assert (after["verdict"], after["counts"]) == ("ask", [2])


async def test_a_key_without_the_scope_changes_no_rules(keyed: KeyedService) -> None:
    reader = await keyed.holding("runs:read", "runs:write", "approvals:decide")

    put = await reader.put(TENANT, json={"policy": {}})
    deleted = await reader.delete(TENANT)

    assert [refusal(each)[0] for each in (put, deleted)] == [403, 403]


# --- Grants ---


async def a_grant(keyed: KeyedService, **changes: Any) -> GrantRow:
    """Put a grant into force, as a decision does."""
    session = await made(keyed.acme, "/v1/sessions", {})
    row = GrantRow(
        f"gra_{uuid.uuid4().hex}", "acme", session["id"], "add", None, "apr_1", "user:ann",
        now_ms(), now_ms() + 3_600_000,
    )  # fmt: skip
    row = replace(row, **changes)
    await keyed.service.process.app._parts.ports.store.write(grants.add(row))
    return row


async def test_a_grant_is_shown_listed_and_taken_back_once(keyed: KeyedService) -> None:
    acme, row = keyed.acme, await a_grant(keyed)
    await a_grant(keyed, expires_ms=1)
    path = f"/v1/grants/{row.id}"

    shown = (await acme.get(path)).json()
    active = (await acme.get("/v1/grants?active=true")).json()["data"]
    over = (await acme.get("/v1/grants?active=false")).json()["data"]
    revoked, again = await acme.delete(path), await acme.delete(path)

    assert (shown["tool"], shown["granted_by"], shown["active"]) == ("add", "user:ann", True)
    assert ([each["id"] for each in active], len(over)) == ([row.id], 1)
    assert (revoked.json()["active"], again.json()) == (False, revoked.json())
    trail = (await acme.get("/v1/audit?action=grant.revoked")).json()["data"]
    assert [act["target"] for act in trail] == [row.id]


async def test_a_grant_opens_its_session_until_it_is_taken_back(keyed: KeyedService) -> None:
    acme, row = keyed.acme, await a_grant(keyed)
    await acme.put(TENANT, json={"policy": {"ask": ["add"]}})

    granted = await checked(acme, session_id=row.session_id)
    elsewhere = await checked(acme)
    await acme.delete(f"/v1/grants/{row.id}")

    assert (granted["verdict"], granted["reason"]) == ("allow", f"grant: {row.id}")
    assert elsewhere["verdict"] == "ask"
    assert (await checked(acme, session_id=row.session_id))["verdict"] == "ask"


async def test_another_tenants_grants_and_a_foreign_scope_are_closed(keyed: KeyedService) -> None:
    row = await a_grant(keyed)
    path = f"/v1/grants/{row.id}"
    writer = await keyed.holding("runs:write", "agents:write")

    assert refusal(await keyed.globex.get(path)) == (404, "grant_not_found")
    assert refusal(await keyed.globex.delete(path)) == (404, "grant_not_found")
    assert (await keyed.globex.get("/v1/grants")).json()["data"] == []
    assert refusal(await writer.delete(path))[0] == 403
    assert refusal(await writer.get("/v1/grants"))[0] == 403


async def test_no_policy_outlives_the_session_that_goes_meanwhile(
    keyed: KeyedService, database_url: str
) -> None:
    ids = [(await made(keyed.acme, "/v1/sessions", {}))["id"] for _ in range(20)]
    said = {"policy": {"deny": ["Xylo5577"]}}
    kept = [keyed.acme.put(f"/v1/policies/sessions/{each}", json=said) for each in ids]
    gone = [keyed.acme.delete(f"/v1/sessions/{each}") for each in ids]

    both = zip(kept, gone, strict=True)
    answers = await asyncio.gather(*(each for pair in both for each in pair))

    assert {each.status_code for each in answers[::2]} <= {200, 404}
    assert {each.status_code for each in answers[1::2]} == {204}
    assert "policies" not in tables_with(database_url, "Xylo5577")
