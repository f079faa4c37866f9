"""What the API's tests make through the API, with everything filled in."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2

MAIL = "Send a mail to ann@example.com that says hello"


def an_agent(**changes: Any) -> dict[str, Any]:
    """Return the body of an agent that talks and adds, without a key."""
    return {"name": "clerk", "model": "demo/offline", "tools": ["add", "send_email"], **changes}


def a_tool_source(name: str, tool: str) -> dict[str, Any]:
    """Return the body of a source of one tool that the client runs."""
    declared = {"name": tool, "description": "X.", "parameters": {"type": "object"}}
    return {"kind": "client", "name": name, "tools": [declared]}


def a_budget(**changes: Any) -> dict[str, Any]:
    """Return the body of a budget that is large enough for any test."""
    return {"scope": "tenant", "period": "day", "limits": {"model_calls": 1_000}, **changes}


def a_memory(**changes: Any) -> dict[str, Any]:
    """Return the body of something that all of the tenant's agents are to know."""
    return {"scope": "tenant", "kind": "fact", "content": "The shop opens at nine.", **changes}


def a_webhook(**changes: Any) -> dict[str, Any]:
    """Return the body of a webhook where nobody ever answers, on this machine."""
    return {"url": "http://127.0.0.2:9/hook", "events": ["approval.decided"], **changes}


def a_schedule(**changes: Any) -> dict[str, Any]:
    """Return the body of a schedule that no test lives to see come, every New Year's Eve."""
    run = {"agent": "clerk", "input": "What is 2 + 3?"}
    return {"cron": "59 23 31 12 *", "run": run, **changes}


async def made(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create something; return it as it is shown."""
    answer = await client.post(path, json=body)
    assert answer.is_success, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def an_ended_run(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    """Let an agent answer, and return the run once it is over."""
    body = {"agent": "clerk", "input": "What is 2 + 3?", **changes}
    run = await made(client, "/v1/runs?wait=20", body)
    assert run["status"] == "completed", run
    return run


async def a_waiting_run(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    """Let an agent ask for leave to send a mail, and return the run that waits for it."""
    run = await made(client, "/v1/runs", {"agent": "clerk", "input": MAIL, **changes})
    async with client.stream("GET", f"/v1/runs/{run['id']}/events?until=waiting") as events:
        await events.aread()
    waiting: dict[str, Any] = (await client.get(f"/v1/runs/{run['id']}")).json()
    assert waiting["status"] == "waiting", waiting
    return waiting


async def an_ended_batch(
    client: httpx2.AsyncClient, inputs: Sequence[str], **changes: Any
) -> dict[str, Any]:
    """Let an agent answer each of these, and return the batch once it is over."""
    items = [{"input": each} for each in inputs]
    batch = await made(client, "/v1/batches", {"agent": "clerk", "items": items, **changes})
    return await over(client, batch["id"])


async def over(client: httpx2.AsyncClient, batch_id: str) -> dict[str, Any]:
    """Wait for a batch's end, and return it."""
    async with client.stream("GET", f"/v1/batches/{batch_id}/events") as events:
        await events.aread()
    shown: dict[str, Any] = (await client.get(f"/v1/batches/{batch_id}")).json()
    assert shown["ended_at"] is not None, shown
    return shown


async def erased(client: httpx2.AsyncClient, user: str) -> dict[str, Any]:
    """Erase a user, and return the erasure once it is done."""
    answer = await client.delete(f"/v1/users/{user}")
    assert answer.status_code == 202, answer.text
    async with asyncio.timeout(60):
        while True:
            shown: dict[str, Any] = (await client.get(answer.headers["location"])).json()
            if shown["status"] == "completed":
                return shown
            await asyncio.sleep(0.05)


def refusal(answer: httpx2.Response) -> tuple[int, str]:
    """Return the status and the code of a problem, having checked its shape."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["error"]["code"] == problem["code"]
    assert problem["request_id"] == answer.headers["x-request-id"]
    return answer.status_code, problem["code"]
