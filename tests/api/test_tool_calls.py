"""`/v1/tools/{name}/call`: a tool, tried under the rules that hold for any run."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.asking import ARGUMENTS, decide, events, mails
from tests.api.making import a_tool_source, an_agent, made, refusal
from tests.api.serving import KeyedService, Service, serving, serving_tenants, settings_for

TOOLS = '''
import asyncio

from milepost.tools import ToolContext, tool
from milepost.core.errors import ToolError

@tool(effect="read")
async def whose(context: ToolContext) -> dict[str, str | None]:
    """Say for whom this is called."""
    return {"user": context.user, "session": context.session_id}

@tool(permissions=["ann"])
def refund(cents: int) -> str:
    """Refund."""
    return f"refunded {cents}"

@tool(no_background=True)
def attended(words: str) -> str:
    """Say it to somebody who waits."""
    return words

@tool(no_background=True)
async def linger() -> None:
    """Never end."""
    await asyncio.Event().wait()

@tool(no_background=True, requires_approval=True)
async def ask() -> None:
    """Ask first."""

@tool(terminal=True)
def finish(words: str) -> str:
    """Finish."""
    return words

@tool
def fail() -> str:
    """Fail."""
    raise ToolError("no more of that")
'''
SUM = {"arguments": {"a": 17, "b": 25}}


@pytest.fixture
async def shop(database_url: str, tmp_path: Path) -> AsyncIterator[KeyedService]:
    """A service with tools that are restricted, end runs, fail, or want somebody to wait."""
    (tmp_path / "shop.py").write_text(TOOLS)
    settings = settings_for(database_url, tools=str(tmp_path / "shop.py"))
    async with serving_tenants(settings) as keyed:
        yield keyed


async def called(client: httpx2.AsyncClient, name: str, **body: Any) -> dict[str, Any]:
    """Try a tool, and return what came of it."""
    answer = await client.post(f"/v1/tools/{name}/call", json=body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_tool_is_tried_as_a_run_of_its_own(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/tools/add/call", json=SUM)

    shown = answer.json()
    assert answer.status_code == 200
    assert (shown["status"], shown["result"], shown["error"]) == ("completed", 42, None)
    assert shown["latency_ms"] >= 0
    assert answer.headers["location"] == f"/v1/runs/{shown['run_id']}"
    run = (await client.get(answer.headers["location"])).json()
    assert (run["status"], run["agent"], run["output"]["text"]) == (
        "completed", "direct:add", "42",
    )  # fmt: skip
    assert (run["usage"]["cost_nanos"], run["usage"]["unpriced_calls"]) == (0, 0)
    spans = (await client.get(f"/v1/runs/{run['id']}/trace")).json()["spans"]
    assert "execute_tool add" in [span["name"] for span in spans]
    session = (await client.get(f"/v1/sessions/{run['session_id']}")).json()
    assert session["kind"] == "trial"
    assert (await client.get("/v1/sessions")).json()["data"] == []


async def test_arguments_that_do_not_fit_are_a_failed_call_as_a_model_would_see_it(
    client: httpx2.AsyncClient,
) -> None:
    shown = await called(client, "add", arguments={"a": 1, "c": 2})

    assert (shown["status"], shown["result"]) == ("failed", None)
    assert shown["error"]["code"] == "invalid_arguments"


async def test_a_tool_that_fails_says_why_and_one_that_ends_runs_ends_this_one(
    shop: KeyedService,
) -> None:
    failed = await called(shop.acme, "fail")
    ended = await called(shop.acme, "finish", arguments={"words": "done"})

    assert failed["error"] == {"code": "tool_failed", "message": "fail failed: no more of that"}
    assert (ended["status"], ended["result"]) == ("completed", "done")


async def test_a_tool_that_asks_waits_for_its_approval_and_then_goes_on(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    asked = await client.post("/v1/tools/send_email/call", json={"arguments": ARGUMENTS})
    run = asked.json()
    [approval] = (await client.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]

    await decide(client, approval, "approve")
    ended = (await client.get(f"/v1/runs/{run['id']}/wait")).json()

    assert (asked.status_code, run["status"]) == (202, "waiting")
    assert approval["tool"] == "send_email"
    assert ended["status"] == "completed"
    assert len(mails(tmp_path)) == 1


async def test_a_call_is_edited_by_its_approver_as_in_any_run(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    run = (await client.post("/v1/tools/send_email/call", json={"arguments": ARGUMENTS})).json()
    [approval] = (await client.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]

    edited = await decide(
        client, approval, "approve", arguments={**ARGUMENTS, "to": "bob@example.com"}
    )
    await client.get(f"/v1/runs/{run['id']}/wait")

    assert edited.status_code == 200, edited.text
    assert [mail["to"] for mail in mails(tmp_path)] == ["bob@example.com"]


async def test_the_policy_of_a_named_agent_holds(client: httpx2.AsyncClient) -> None:
    policy = {"deny": ["add"], "allow": ["*"]}
    agent = {"name": "strict", "model": "demo/offline", "policy": policy}
    await made(client, "/v1/agents", agent)

    denied = await called(client, "add", agent="strict", **SUM)
    allowed = await called(client, "multiply", agent="strict", **SUM)

    assert denied["status"] == "denied"
    assert denied["error"] == {"code": "denied", "message": "policy: policy: deny add"}
    assert allowed["result"] == 425
    unknown = await client.post("/v1/tools/add/call", json={**SUM, "agent": "nobody"})
    assert refusal(unknown) == (404, "agent_not_found")


async def test_permissions_hold_for_the_user_and_the_key_that_asks(shop: KeyedService) -> None:
    ann = await shop.holding("runs:write", subject="ann")
    bob = await shop.holding("runs:write", subject="bob")
    cents = {"arguments": {"cents": 5}}

    assert (await called(ann, "refund", **cents))["result"] == "refunded 5"
    for client in (bob, await shop.holding("runs:write")):
        assert (await called(client, "refund", **cents))["status"] == "denied"
    acting = await bob.post("/v1/tools/refund/call", json={**cents, "user": "ann"})
    assert refusal(acting) == (403, "missing_scope")


async def test_a_call_joins_the_session_that_it_names(shop: KeyedService) -> None:
    session = await made(shop.acme, "/v1/sessions", {})

    shown = await called(shop.acme, "whose", session_id=session["id"], user="ann")

    assert shown["result"] == {"user": "ann", "session": session["id"]}


async def test_a_call_in_the_background_is_answered_at_once(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/tools/add/call", json={**SUM, "background": True})

    run = answer.json()
    assert answer.status_code == 202
    ended = (await client.get(f"/v1/runs/{run['id']}/wait")).json()
    assert ended["output"]["text"] == "42"


async def test_a_call_that_cannot_be_waited_for_so_is_not_made(client: httpx2.AsyncClient) -> None:
    for background in (False, True):
        said = {**SUM, "background": background}
        answer = await client.post("/v1/tools/add/call?wait=soon", json=said)
        assert refusal(answer) == (400, "bad_query")

    assert (await client.get("/v1/runs")).json()["data"] == []


async def test_a_tool_that_wants_somebody_to_wait_is_not_run_in_the_background(
    shop: KeyedService,
) -> None:
    path, said = "/v1/tools/attended/call", {"arguments": {"words": "hello"}}

    left = await shop.acme.post(path, json={**said, "background": True})
    unattended = await shop.acme.post(f"{path}?wait=0", json=said)

    assert refusal(left) == refusal(unattended) == (409, "no_background")
    assert (await called(shop.acme, "attended", **said))["result"] == "hello"


@pytest.mark.parametrize("name", ["linger", "ask"])
async def test_a_tool_that_wants_somebody_to_wait_is_stopped_when_the_wait_is_over(
    shop: KeyedService, name: str
) -> None:
    answer = await shop.acme.post(f"/v1/tools/{name}/call?wait=1", json={})

    shown = answer.json()
    assert (answer.status_code, shown["error"]["code"]) == (200, "cancelled"), answer.text
    run = (await shop.acme.get(f"/v1/runs/{shown['run_id']}")).json()
    assert run["status"] == "cancelled"
    [cancelled] = [
        event for event in await events(shop.acme, run["id"]) if event["type"] == "run.cancelled"
    ]
    assert cancelled["data"]["reason"] == "nobody waits for it any more"
    assert (await shop.acme.get("/v1/approvals?status=pending")).json()["data"] == []


async def test_a_tool_that_wants_somebody_to_wait_is_stopped_when_the_client_leaves(
    shop: KeyedService,
) -> None:
    with pytest.raises(httpx2.TimeoutException):
        await shop.acme.post("/v1/tools/linger/call", json={}, timeout=1.0)

    [run] = (await shop.acme.get("/v1/runs")).json()["data"]
    ended = (await shop.acme.get(f"/v1/runs/{run['id']}/wait")).json()
    assert ended["status"] == "cancelled"


async def test_a_tool_that_wants_somebody_to_wait_has_a_deadline_if_all_who_wait_die(
    shop: KeyedService,
) -> None:
    shown = await called(shop.acme, "attended", arguments={"words": "hello"})

    run = (await shop.acme.get(f"/v1/runs/{shown['run_id']}")).json()

    assert run["deadline_at"] is not None


async def test_the_same_request_calls_once(client: httpx2.AsyncClient) -> None:
    headers = {"idempotency-key": "k1"}

    first = await client.post("/v1/tools/add/call", json=SUM, headers=headers)
    again = await client.post("/v1/tools/add/call", json=SUM, headers=headers)
    other = await client.post("/v1/tools/add/call", json={}, headers=headers)

    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(other) == (422, "idempotency_key_reused")
    assert len((await client.get("/v1/runs")).json()["data"]) == 1


@pytest.mark.parametrize("gone", ["tool", "agent"])
async def test_the_same_request_is_answered_though_what_it_needs_is_gone(
    client: httpx2.AsyncClient, gone: str
) -> None:
    nowhere = {"name": "look", "description": "X.", "method": "GET", "url": "http://127.0.0.2:9/"}
    source = await made(
        client, "/v1/tool_sources", {"kind": "http", "name": "shop", "tools": [nowhere]}
    )
    await made(client, "/v1/agents", an_agent(tools=["look"]))
    asked: dict[str, Any] = {
        "url": "/v1/tools/look/call",
        "json": {"agent": "clerk"},
        "headers": {"idempotency-key": "k1"},
    }

    first = await client.post(**asked)
    left = f"/v1/tool_sources/{source['id']}" if gone == "tool" else "/v1/agents/clerk"
    assert (await client.delete(left)).status_code == 204
    again = await client.post(**asked)
    another = await client.post(**{**asked, "headers": {}})

    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert refusal(another) == (404, f"{gone}_not_found")


async def test_what_cannot_be_called_here_is_refused_with_words(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/tool_sources", a_tool_source("screen", "click"))

    clicked = await client.post("/v1/tools/click/call", json={})
    gone = await client.post("/v1/tools/launch_rocket/call", json={})

    assert refusal(clicked) == (409, "client_tool_call")
    assert "answer its calls" in clicked.json()["detail"]
    assert refusal(gone) == (404, "tool_not_found")


async def test_a_reader_may_call_nothing(keyed: KeyedService) -> None:
    reader = await keyed.holding("runs:read")

    assert refusal(await reader.post("/v1/tools/add/call", json=SUM)) == (403, "missing_scope")


async def test_a_call_outlives_the_process_that_began_it(sqlite_database_url: str) -> None:
    settings = settings_for(sqlite_database_url)
    async with serving(settings.model_copy(update={"slots": 0})) as first, first.client() as client:
        queued = await client.post("/v1/tools/add/call", json={**SUM, "background": True})

    async with serving(settings) as second, second.client() as client:
        run = (await client.get(f"/v1/runs/{queued.json()['id']}/wait")).json()

    assert run["output"]["text"] == "42"


async def test_no_agent_can_be_made_with_the_provider_of_single_calls(service: Service) -> None:
    async with service.client() as client:
        answer = await client.post("/v1/agents", json={"name": "x", "model": "direct/call"})

    assert refusal(answer) == (422, "unknown_provider")


async def test_a_person_s_answer_is_the_result_of_the_tool_that_asks(
    sqlite_database_url: str,
) -> None:
    settings = settings_for(sqlite_database_url, toolbox="ask_user")
    async with serving(settings) as service, service.client() as client:
        body = {"arguments": {"question": "Which one?"}}
        run = (await client.post("/v1/tools/ask_user/call", json=body)).json()
        [approval] = (await client.get(f"/v1/approvals?run_id={run['id']}")).json()["data"]

        await decide(client, approval, "approve", comment="the blue one")
        ended = (await client.get(f"/v1/runs/{run['id']}/wait")).json()

    assert approval["arguments"] == {"question": "Which one?"}
    assert ended["output"]["text"] == "the blue one"
