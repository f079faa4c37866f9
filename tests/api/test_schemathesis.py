"""Requests of every kind, made up from the contract, are answered as the contract says."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, STDOUT
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.asking import ended, equipped, parked, started
from tests.api.making import (
    a_budget,
    a_memory,
    a_schedule,
    a_webhook,
    an_agent,
    an_ended_batch,
    an_ended_run,
    made,
)
from tests.api.serving import serving_tenants, settings_for
from tests.contract import CONTRACT

# Only a run that crashed its workers can be sent on, and only one whose tools the client runs takes
# results; none of these is either. No tool of the demo leaves an artifact. A batch's events come as
# a stream only. Nobody makes up the token of a link.
NEVER = {
    "GET /v1/approvals/events",
    "GET /v1/batches/{batch_id}/events",
    "GET /approve/{token}",
    "GET /deny/{token}",
    "GET /v1/artifacts/{artifact_id}",
    "GET /v1/artifacts/{artifact_id}/content",
    "POST /approve/{token}",
    "POST /deny/{token}",
    "POST /v1/runs/{run_id}/retry",
    "POST /v1/runs/{run_id}/tool_results",
}
# Whether a message is on its way just then is a matter of chance, and so is whether a session and
# what is in it belong together, and whether somebody's yes holds on before anybody asks for what it
# leaves.
PERHAPS = {
    "GET /v1/grants/{grant_id}",
    "DELETE /v1/grants/{grant_id}",
    "POST /v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver",
    "DELETE /v1/sessions/{session_id}/summaries/{summary_id}",
    "DELETE /v1/sessions/{session_id}/messages/{place}/pin",
    "PUT /v1/sessions/{session_id}/messages/{place}/pin",
}
ROOT = Path(__file__).parents[2]
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


@pytest.mark.timeout(600)
async def test_no_request_breaks_the_contract(sqlite_database_url: str, tmp_path: Path) -> None:
    """So many examples, limits, chances and sequences, drawn by a fixed seed."""
    contract = closed(CONTRACT)
    (tmp_path / "contract.json").write_text(json.dumps(contract, sort_keys=True))
    async with serving_tenants(settings_for(sqlite_database_url)) as keyed:
        there = await things(keyed.acme)
        own = await things_of_one_operation(keyed.acme)
        tried = await asyncio.create_subprocess_exec(
            SCHEMATHESIS,
            "--config-file", ROOT / "tests" / "api" / "schemathesis.toml",
            "run", tmp_path / "contract.json",
            "--url", keyed.service.base_url,
            "--no-color",
            env={
                **os.environ,
                "CONTRACT_KEY": keyed.acme.headers["authorization"].removeprefix("Bearer "),
                "CONTRACT_THINGS": json.dumps(there),
                "CONTRACT_THINGS_OF": json.dumps(own),
                "CONTRACT_ANSWERS": str(tmp_path / "answers.txt"),
                "PYTHONPATH": str(ROOT),
            },
            stdout=PIPE,
            stderr=STDOUT,
        )  # fmt: skip
        output, _ = await tried.communicate()
        still_admitted = await keyed.acme.get("/v1/keys")

    assert tried.returncode == 0, output.decode()
    assert still_admitted.status_code == 200
    assert never_answered(contract, tmp_path / "answers.txt") - PERHAPS == NEVER


def never_answered(contract: dict[str, Any], answers: Path) -> set[str]:
    """Return the operations of which no request was ever granted."""
    asked = (line.rpartition(" ") for line in answers.read_text().splitlines())
    granted = {operation for operation, _, status in asked if status.startswith("2")}
    operations = {
        f"{method.upper()} {path}"
        for path, item in contract["paths"].items()
        for method in item
        if method != "parameters"
    }
    return operations - granted


async def things(client: httpx2.AsyncClient) -> dict[str, list[str]]:
    """Make something of everything; return the names and ids by the parameter that names one."""
    await equipped(client)
    over = [await started(client, text) for text in ("add 2 and 3", "hello")]
    for run_id in over:
        await ended(client, run_id)
    asked = [await parked(client) for _ in range(4)]
    sessions = [(await client.get(f"/v1/runs/{run_id}")).json()["session_id"] for run_id in over]
    brief = an_agent(name="brief", tools=[], memory={"window": {"messages": 1}})
    await made(client, "/v1/agents", brief)
    await an_ended_run(client, agent="brief", session_id=sessions[0])
    trimmed = (await client.get(f"/v1/sessions/{sessions[0]}/summaries")).json()["data"]
    await client.post("/v1/keys", json={"name": "spare", "scopes": ["runs:read"]})
    keys = (await client.get("/v1/keys")).json()["data"]
    agent = (await client.get("/v1/agents/demo")).json()
    batches = [await an_ended_batch(client, ["hello"], agent="demo") for _ in range(2)]
    budgets = [await made(client, "/v1/budgets", a_budget()) for _ in range(2)]
    memories = [await made(client, "/v1/memories", a_memory(content=f"{n}")) for n in range(2)]
    hook = await made(client, "/v1/webhooks", a_webhook())
    again = a_schedule(run={"agent": "demo", "input": "hello"})
    schedules = [await made(client, "/v1/schedules", again) for _ in range(2)]
    send = f"/v1/webhooks/{hook['id']}/test"
    deliveries = [await made(client, send, {}) for _ in range(2)]
    return {
        "agent": [agent["name"], agent["id"]],
        "batch_id": [batch["id"] for batch in batches],
        "budget_id": [budget["id"] for budget in budgets],
        "run_id": [*over, *(approval["run_id"] for approval in asked)],
        "session_id": sessions,
        "summary_id": [summary["id"] for summary in trimmed],
        "schedule_id": [schedule["id"] for schedule in schedules],
        "place": ["1.0"],
        "approval_id": [approval["id"] for approval in asked],
        "key_id": [key["id"] for key in keys],
        "memory_id": [memory["id"] for memory in memories],
        "tool": ["add"],
        "webhook_id": [hook["id"]],
        "delivery_id": [delivery["id"] for delivery in deliveries],
    }


async def things_of_one_operation(client: httpx2.AsyncClient) -> dict[str, dict[str, list[str]]]:
    """Make what an operation alone may use up; return the ids by operation and parameter."""
    waiting = [(await parked(client))["run_id"] for _ in range(4)]
    withdrawn = [(await parked(client))["id"] for _ in range(4)]
    spent = [await an_ended_run(client, agent="demo") for _ in range(4)]
    keys = [
        await made(client, "/v1/keys", {"name": f"spent-{n}", "scopes": ["runs:read"]})
        for n in range(4)
    ]
    memories = [await made(client, "/v1/memories", a_memory(content=f"m{n}")) for n in range(4)]
    budgets = [await made(client, "/v1/budgets", a_budget()) for _ in range(4)]
    hooks = [await made(client, "/v1/webhooks", a_webhook()) for _ in range(4)]
    again = a_schedule(run={"agent": "demo", "input": "hello"})
    schedules = [await made(client, "/v1/schedules", again) for _ in range(4)]
    return {
        "POST /v1/tools/{name}/call": {"name": ["add"]},
        "POST /v1/runs/{run_id}/messages": {"run_id": waiting},
        "POST /v1/approvals/{approval_id}/withdraw": {"approval_id": withdrawn},
        "DELETE /v1/sessions/{session_id}": {"session_id": [run["session_id"] for run in spent]},
        "DELETE /v1/keys/{key_id}": {"key_id": [key["id"] for key in keys]},
        "DELETE /v1/memories/{memory_id}": {"memory_id": [memory["id"] for memory in memories]},
        "DELETE /v1/budgets/{budget_id}": {"budget_id": [budget["id"] for budget in budgets]},
        "DELETE /v1/webhooks/{webhook_id}": {"webhook_id": [hook["id"] for hook in hooks]},
        "DELETE /v1/schedules/{schedule_id}": {
            "schedule_id": [schedule["id"] for schedule in schedules]
        },
    }


def closed(contract: dict[str, Any]) -> dict[str, Any]:
    """Return the contract with answers that may have no field that it does not name."""
    strict = deepcopy(contract)
    schemas = strict["components"]["schemas"]
    parts = {
        part["$ref"].rpartition("/")[2]
        for schema in schemas.values()
        for part in (*schema.get("allOf", ()), *schema.get("oneOf", ()))
        if "$ref" in part
    }
    for name, schema in schemas.items():
        shaped = "properties" in schema or "allOf" in schema
        if shaped and name not in parts and "additionalProperties" not in schema:
            schema["unevaluatedProperties"] = False
    return strict
