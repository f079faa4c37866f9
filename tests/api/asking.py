"""Runs that ask a person: how a test starts one, and how it learns what became of it."""

import json
from pathlib import Path
from typing import Any

import httpx2

MAIL = "Send a mail to ann@example.com about lunch saying hello"
DEMO = {
    "name": "demo",
    "model": "demo/offline",
    "tools": ["add", "multiply", "current_time", "send_email"],
}
ARGUMENTS = {"to": "ann@example.com", "subject": "lunch", "body": "hello"}


async def equipped(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """Give the client's tenant the demo agent, which only the first tenant has from the start."""
    answer = await client.post("/v1/agents", json=DEMO)
    assert answer.status_code == 201, answer.text
    return client


async def started(client: httpx2.AsyncClient, text: str, **changes: Any) -> str:
    """Start a run and return its id."""
    answer = await client.post("/v1/runs", json={"agent": "demo", "input": text, **changes})
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["id"]
    return run_id


async def parked(client: httpx2.AsyncClient, text: str = MAIL, **changes: Any) -> dict[str, Any]:
    """Start a run, follow it to where it waits for a person, and return what it asks."""
    run_id = await started(client, text, **changes)
    await client.get(f"/v1/runs/{run_id}/events?until=waiting")
    listed = (await client.get(f"/v1/approvals?run_id={run_id}")).json()["data"]
    approval: dict[str, Any] = listed[0]
    return approval


async def decide(
    client: httpx2.AsyncClient, approval: dict[str, Any], decision: str, **more: Any
) -> httpx2.Response:
    """Answer a question."""
    body = {"decision": decision, **more}
    return await client.post(f"/v1/approvals/{approval['id']}/decision", json=body)


async def ended(client: httpx2.AsyncClient, run_id: str) -> dict[str, Any]:
    """Wait for the run's end and return the run."""
    run: dict[str, Any] = (await client.get(f"/v1/runs/{run_id}/wait")).json()
    assert run["ended_at"] is not None, run
    return run


async def events(client: httpx2.AsyncClient, run_id: str) -> list[dict[str, Any]]:
    """Return the run's log."""
    answer = await client.get(f"/v1/runs/{run_id}/events", headers={"accept": "application/json"})
    log: list[dict[str, Any]] = answer.json()["data"]
    return log


def mails(folder: Path) -> list[dict[str, Any]]:
    """Return the mails that the demo's tool has written."""
    outbox = folder / ".milepost" / "outbox.jsonl"
    if not outbox.exists():
        return []
    return [json.loads(line) for line in outbox.read_text().splitlines()]
