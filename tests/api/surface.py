"""Every endpoint, what it asks of its caller, and a body that it takes: walked by several tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.api.making import (
    a_budget,
    a_memory,
    a_schedule,
    a_tool_source,
    a_waiting_run,
    a_webhook,
    an_agent,
    an_ended_batch,
    an_ended_run,
    erased,
    made,
)

MARK = "seen-by-its-own-tenant-alone"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint; any one of `scopes` is enough. None as a body: it reads none."""

    method: str
    path: str
    scopes: tuple[str, ...]
    body: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def owned(self) -> bool:
        """Say whether the path names something that belongs to a tenant."""
        names_any = ("/v1/tools", "/v1/channels", "/v1/users")
        return "{" in self.path and not self.path.startswith(names_any)

    def path_to(self, things: Mapping[str, str]) -> str:
        """Return the path to one of these things."""
        named = {"{name}": things["secret" if "secrets" in self.path else "tool"]}
        named |= {f"{{{name}}}": thing for name, thing in things.items()}
        path = self.path
        for placeholder, thing in named.items():
            path = path.replace(placeholder, thing)
        return path


_READ, _WRITE, _ADMIN = ("runs:read",), ("runs:write",), ("admin",)
_AGENTS, _DECIDE = ("agents:write",), ("approvals:decide",)
_BUDGETS, _SPENT = ("budgets:write",), ("budgets:read",)

SURFACE = (
    Endpoint("POST", "/v1/agents", _AGENTS, an_agent(name="another")),
    Endpoint("GET", "/v1/agents", _READ),
    Endpoint("GET", "/v1/cache", _READ),
    Endpoint("DELETE", "/v1/cache", _AGENTS),
    Endpoint("GET", "/v1/agents/{agent}", _READ),
    Endpoint("PATCH", "/v1/agents/{agent}", _AGENTS, {"instructions": "Be brief."}),
    Endpoint("DELETE", "/v1/agents/{agent}", _AGENTS),
    Endpoint("GET", "/v1/agents/{agent}/versions", _READ),
    Endpoint("POST", "/v1/runs", _WRITE, {"agent": "clerk", "input": "hello"}),
    Endpoint("GET", "/v1/runs", _READ),
    Endpoint("GET", "/v1/runs/{run_id}", _READ),
    Endpoint("GET", "/v1/runs/{run_id}/events", _READ),
    Endpoint("GET", "/v1/runs/{run_id}/wait", _READ),
    Endpoint("POST", "/v1/runs/{run_id}/cancel", _WRITE, {"reason": "why not"}),
    Endpoint("POST", "/v1/runs/{run_id}/messages", _WRITE, {"content": "Hurry."}),
    Endpoint("POST", "/v1/runs/{run_id}/retry", _WRITE),
    Endpoint("POST", "/v1/runs/{run_id}/replay", _READ, {}),
    Endpoint("POST", "/v1/runs/{run_id}/fork", _WRITE, {"at_seq": 1}),
    Endpoint(
        "POST",
        "/v1/runs/{run_id}/tool_results",
        _WRITE,
        {"results": [{"call_id": "call_0_0", "result": 1}]},
    ),
    Endpoint("GET", "/v1/runs/{run_id}/tool_calls", _READ),
    Endpoint("GET", "/v1/runs/{run_id}/tool_calls/{call_id}", _READ),
    Endpoint("GET", "/v1/runs/{run_id}/trace", _READ),
    Endpoint("GET", "/v1/runs/{run_id}/usage", _READ),
    Endpoint("GET", "/v1/runs/{run_id}/artifacts", _READ),
    Endpoint("GET", "/v1/artifacts/{artifact_id}", _READ),
    Endpoint("GET", "/v1/artifacts/{artifact_id}/content", _READ),
    Endpoint("POST", "/v1/sessions", _WRITE, {"title": "x"}),
    Endpoint("GET", "/v1/sessions", _READ),
    Endpoint("GET", "/v1/sessions/{session_id}", _READ),
    Endpoint("PATCH", "/v1/sessions/{session_id}", _WRITE, {"title": "x"}),
    Endpoint("DELETE", "/v1/sessions/{session_id}", _WRITE),
    Endpoint("GET", "/v1/sessions/{session_id}/messages", _READ),
    Endpoint("PUT", "/v1/sessions/{session_id}/messages/{place}/pin", _WRITE),
    Endpoint("DELETE", "/v1/sessions/{session_id}/messages/{place}/pin", _WRITE),
    Endpoint("GET", "/v1/sessions/{session_id}/pins", _READ),
    Endpoint("GET", "/v1/sessions/{session_id}/summaries", _READ),
    Endpoint("DELETE", "/v1/sessions/{session_id}/summaries/{summary_id}", _WRITE),
    Endpoint("GET", "/v1/sessions/{session_id}/events", _READ),
    Endpoint("POST", "/v1/sessions/{session_id}/fork", _WRITE, {"title": "x"}),
    Endpoint("GET", "/v1/sessions/{session_id}/export", _READ),
    Endpoint("GET", "/v1/sessions/{session_id}/state", _READ),
    Endpoint(
        "POST",
        "/v1/session_imports",
        _WRITE,
        {"format": "milepost.session/1", "session": {}, "runs": []},
    ),
    Endpoint("GET", "/v1/sessions/{session_id}/runs", _READ),
    Endpoint("GET", "/v1/tools", _READ),
    Endpoint("GET", "/v1/tool_permissions", _ADMIN),
    Endpoint("PUT", "/v1/tool_permissions", _ADMIN, {"permissions": {}}),
    Endpoint("GET", "/v1/policies/tenant", _READ),
    Endpoint("PUT", "/v1/policies/tenant", _AGENTS, {"policy": {"allow": ["*"]}}),
    Endpoint("DELETE", "/v1/policies/tenant", _AGENTS),
    Endpoint("GET", "/v1/policies/sessions/{session_id}", _READ),
    Endpoint("PUT", "/v1/policies/sessions/{session_id}", _AGENTS, {"policy": {"allow": ["*"]}}),
    Endpoint("DELETE", "/v1/policies/sessions/{session_id}", _AGENTS),
    Endpoint("POST", "/v1/policies/check", _READ, {"agent": "clerk", "tool": "add"}),
    Endpoint("GET", "/v1/grants", _READ + _DECIDE),
    Endpoint("GET", "/v1/grants/{grant_id}", _READ + _DECIDE),
    Endpoint("DELETE", "/v1/grants/{grant_id}", _DECIDE),
    Endpoint("GET", "/v1/tools/{name}", _READ),
    Endpoint("POST", "/v1/tools/{name}/call", _WRITE, {"arguments": {"a": 1, "b": 2}}),
    Endpoint("POST", "/v1/batches", _WRITE, {"agent": "clerk", "items": [{"input": "hello"}]}),
    Endpoint("GET", "/v1/batches", _READ),
    Endpoint("GET", "/v1/batches/{batch_id}", _READ),
    Endpoint("DELETE", "/v1/batches/{batch_id}", _WRITE),
    Endpoint("GET", "/v1/batches/{batch_id}/results", _READ),
    Endpoint("GET", "/v1/batches/{batch_id}/events", _READ),
    Endpoint("POST", "/v1/batches/{batch_id}/cancel", _WRITE, {"reason": "why not"}),
    Endpoint("POST", "/v1/schedules", _WRITE, a_schedule()),
    Endpoint("GET", "/v1/schedules", _READ),
    Endpoint("GET", "/v1/schedules/{schedule_id}", _READ),
    Endpoint("PATCH", "/v1/schedules/{schedule_id}", _WRITE, {"enabled": False}),
    Endpoint("DELETE", "/v1/schedules/{schedule_id}", _WRITE),
    Endpoint(
        "POST",
        "/v1/channels/{channel}/messages",
        _WRITE,
        {"conversation": "c1", "message_id": "m1", "intent": "cancel"},
    ),
    Endpoint("GET", "/v1/channels/{channel}/conversations/{conversation}/pending", _READ),
    Endpoint("GET", "/v1/approvals", _READ + _DECIDE),
    Endpoint(
        "POST",
        "/v1/approvals/decisions",
        _DECIDE,
        {"decisions": [{"approval_id": "apr_0", "decision": "approve"}]},
    ),
    Endpoint("GET", "/v1/approvals/events", _READ + _DECIDE),
    Endpoint("GET", "/v1/approvals/{approval_id}", _READ + _DECIDE),
    Endpoint("POST", "/v1/approvals/{approval_id}/withdraw", _WRITE + _DECIDE, {"reason": "no"}),
    Endpoint("POST", "/v1/approvals/{approval_id}/decision", _DECIDE, {"decision": "approve"}),
    Endpoint("GET", "/v1/traces", _READ),
    Endpoint("GET", "/v1/traces/{run_id}", _READ),
    Endpoint("GET", "/v1/usage", _READ),
    Endpoint("POST", "/v1/budgets", _BUDGETS, a_budget()),
    Endpoint("GET", "/v1/budgets", _SPENT),
    Endpoint("GET", "/v1/budgets/{budget_id}", _SPENT),
    Endpoint("PATCH", "/v1/budgets/{budget_id}", _BUDGETS, {"warn_at": 0.5}),
    Endpoint("DELETE", "/v1/budgets/{budget_id}", _BUDGETS),
    Endpoint("GET", "/v1/budgets/{budget_id}/counters", _SPENT),
    Endpoint("POST", "/v1/memories", _WRITE, a_memory()),
    Endpoint("GET", "/v1/memories", _READ),
    Endpoint("DELETE", "/v1/memories", _WRITE),
    Endpoint("GET", "/v1/memories/{memory_id}", _READ),
    Endpoint("PUT", "/v1/memories/{memory_id}", _WRITE, {"content": "Tea, please."}),
    Endpoint("DELETE", "/v1/memories/{memory_id}", _WRITE),
    Endpoint("GET", "/v1/queue", _READ),
    Endpoint("POST", "/v1/tool_sources", _ADMIN, a_tool_source("another", "tap")),
    Endpoint("GET", "/v1/tool_sources", _ADMIN),
    Endpoint("GET", "/v1/tool_sources/{source_id}", _ADMIN),
    Endpoint("DELETE", "/v1/tool_sources/{source_id}", _ADMIN),
    Endpoint("POST", "/v1/keys", _ADMIN, {"name": "x", "scopes": ["runs:read"]}),
    Endpoint("GET", "/v1/keys", _ADMIN),
    Endpoint("GET", "/v1/keys/{key_id}", _ADMIN),
    Endpoint("DELETE", "/v1/keys/{key_id}", _ADMIN),
    Endpoint("GET", "/v1/secrets", _ADMIN),
    Endpoint("PUT", "/v1/secrets/{name}", _ADMIN, {"value": "x"}),
    Endpoint("DELETE", "/v1/secrets/{name}", _ADMIN),
    Endpoint("DELETE", "/v1/users/{user}", _ADMIN),
    Endpoint("GET", "/v1/users/{user}/export", _ADMIN),
    Endpoint("GET", "/v1/erasures", _ADMIN),
    Endpoint("GET", "/v1/erasures/{erasure_id}", _ADMIN),
    Endpoint("GET", "/v1/retention", _ADMIN),
    Endpoint("PUT", "/v1/retention", _ADMIN, {"traces_s": 86_400}),
    Endpoint("GET", "/v1/admin/storage", _ADMIN),
    Endpoint("GET", "/v1/audit", _ADMIN),
    Endpoint("POST", "/v1/webhooks", _ADMIN, a_webhook()),
    Endpoint("GET", "/v1/webhooks", _ADMIN),
    Endpoint("GET", "/v1/webhooks/{webhook_id}", _ADMIN),
    Endpoint("PATCH", "/v1/webhooks/{webhook_id}", _ADMIN, {"description": "x"}),
    Endpoint("POST", "/v1/webhooks/{webhook_id}/secret", _ADMIN, {}),
    Endpoint("POST", "/v1/webhooks/{webhook_id}/test", _ADMIN, {}),
    Endpoint("GET", "/v1/webhooks/{webhook_id}/deliveries", _ADMIN),
    Endpoint("GET", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}", _ADMIN),
    Endpoint("POST", "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", _ADMIN, {}),
    Endpoint("DELETE", "/v1/webhooks/{webhook_id}", _ADMIN),
)

NOTHING = {
    "agent": "agt_0",
    "approval_id": "apr_0",
    "artifact_id": "art_0",
    "batch_id": "bat_0",
    "budget_id": "bud_0",
    "delivery_id": "whd_0",
    "erasure_id": "era_0",
    "call_id": "call_0_0",
    "channel": "sms",
    "conversation": "c1",
    "key_id": "key_0",
    "memory_id": "mem_0",
    "run_id": "run_0",
    "schedule_id": "sch_0",
    "secret": "none",
    "session_id": "ses_0",
    "summary_id": "sum_0",
    "place": "9.9",
    "source_id": "tsr_0",
    "tool": "none",
    "user": "nobody",
    "webhook_id": "whk_0",
}


async def stocked(client: httpx2.AsyncClient) -> dict[str, str]:
    """Give the client's tenant one of everything; return what each is called."""
    label = {"mark": MARK}
    agent = await made(client, "/v1/agents", an_agent(instructions=MARK, metadata=label))
    session = await made(client, "/v1/sessions", {"title": MARK, "metadata": label})
    budget = await made(client, "/v1/budgets", a_budget(metadata=label))
    await an_ended_run(client, session_id=session["id"], metadata=label)
    run = await a_waiting_run(client, session_id=session["id"], metadata=label, user=MARK)
    (approval,) = (await client.get("/v1/approvals?status=pending")).json()["data"]
    batch = await an_ended_batch(client, ["What is 2 + 3?"], metadata=label)
    schedule = await made(client, "/v1/schedules", a_schedule(name=MARK, metadata=label))
    memory = await made(client, "/v1/memories", a_memory(content=MARK))
    key = await made(client, "/v1/keys", {"name": MARK, "scopes": ["runs:read"]})
    source = await made(client, "/v1/tool_sources", a_tool_source(MARK, "click"))
    stored = await client.put(f"/v1/secrets/{MARK}", json={"value": MARK})
    assert stored.status_code == 200, stored.text
    hook = await made(client, "/v1/webhooks", a_webhook(description=MARK, metadata=label))
    delivery = await made(client, f"/v1/webhooks/{hook['id']}/test", {})
    erasure = await erased(client, "somebody else")
    return {
        "agent": agent["id"],
        "approval_id": approval["id"],
        # No tool of the demo leaves one; test_artifacts.py has some, and another tenant ask for it.
        "artifact_id": NOTHING["artifact_id"],
        "batch_id": batch["id"],
        "budget_id": budget["id"],
        "call_id": "call_1_0",
        "channel": NOTHING["channel"],
        "conversation": NOTHING["conversation"],
        "erasure_id": erasure["id"],
        "key_id": key["id"],
        "memory_id": memory["id"],
        "run_id": run["id"],
        "schedule_id": schedule["id"],
        "secret": MARK,
        "session_id": session["id"],
        "summary_id": "sum_0",
        "place": "1.0",
        "source_id": source["id"],
        "tool": "add",
        "user": MARK,
        "webhook_id": hook["id"],
        "delivery_id": delivery["id"],
    }


async def stored(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Return what changes would be seen in."""
    lists = ("agents", "runs", "sessions", "approvals", "keys", "secrets", "audit")
    return {name: (await client.get(f"/v1/{name}?limit=100")).json() for name in lists}


async def call(
    client: httpx2.AsyncClient,
    endpoint: Endpoint,
    things: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
) -> httpx2.Response:
    """Call an endpoint on these things with the body that it takes."""
    path = endpoint.path_to(things)
    if endpoint.path == ENDLESS:
        return await _begun(client, path)
    if endpoint.body is None:
        return await client.request(endpoint.method, path, headers=headers)
    return await client.request(endpoint.method, path, json=endpoint.body, headers=headers)


ENDLESS = "/v1/approvals/events"


async def _begun(client: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """Return an answer that never ends as far as its first event."""
    told = b""
    async with client.stream("GET", path) as answer:
        async for piece in answer.aiter_bytes():
            told += piece
            if answer.is_success and b"\n\n" in told:
                break
    return httpx2.Response(answer.status_code, headers=answer.headers, content=told)
