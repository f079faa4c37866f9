"""`/v1/tool_permissions`, and what runs may call with it."""

from typing import Any

import httpx2
import pytest

from tests.api.asking import events
from tests.api.making import made, refusal
from tests.api.serving import KeyedService

CLICK = {
    "kind": "client",
    "name": "screen",
    "tools": [{"name": "click", "description": "Click.", "parameters": {"type": "object"}}],
}
PATH = "/v1/tool_permissions"
SUM = {"agent": "clerk", "input": "What is 2 + 3?"}


async def outcome(client: httpx2.AsyncClient, **changes: Any) -> list[dict[str, Any]]:
    """Let a run add, and return the events of its log."""
    run = await made(client, "/v1/runs?wait=20", {**SUM, **changes})
    assert run["status"] == "completed", run
    return await events(client, run["id"])


async def test_a_map_is_replaced_as_a_whole_and_each_change_is_audited(
    keyed: KeyedService,
) -> None:
    acme = keyed.acme
    first = await acme.get(PATH)
    put = await acme.put(PATH, json={"permissions": {"add": ["ann"], "multiply": []}})
    again = await acme.put(PATH, json={"permissions": {"add": ["ann", "scope:sums"]}})

    assert (first.json(), first.headers["etag"]) == (
        {"permissions": {}, "unknown": [], "updated_at": None}, '"0"',
    )  # fmt: skip
    assert (put.status_code, put.headers["etag"]) == (200, '"1"')
    assert again.json()["permissions"] == {"add": ["ann", "scope:sums"]}
    assert (await acme.get(PATH)).json() == again.json()
    assert (await keyed.globex.get(PATH)).json()["permissions"] == {}
    trail = (await acme.get("/v1/audit?action=tool_permissions.changed")).json()["data"]
    assert [act["details"] for act in trail] == [
        {"permissions": {"add": ["ann", "scope:sums"]}},
        {"permissions": {"add": ["ann"], "multiply": []}},
    ]


async def test_what_changes_nothing_makes_no_version(keyed: KeyedService) -> None:
    body = {"permissions": {"add": ["ann"]}}
    await keyed.acme.put(PATH, json=body)

    again = await keyed.acme.put(PATH, json=body)

    assert again.headers["etag"] == '"1"'
    trail = (await keyed.acme.get("/v1/audit?action=tool_permissions.changed")).json()["data"]
    assert len(trail) == 1


async def test_another_version_than_was_meant_is_not_replaced(keyed: KeyedService) -> None:
    body = {"permissions": {"add": ["ann"]}}
    await keyed.acme.put(PATH, json=body)

    late = await keyed.acme.put(PATH, json={"permissions": {}}, headers={"if-match": '"0"'})
    right = await keyed.acme.put(PATH, json={"permissions": {}}, headers={"if-match": '"1"'})

    assert refusal(late) == (412, "precondition_failed")
    assert right.json()["permissions"] == {}


@pytest.mark.parametrize(
    "permissions",
    [
        {"add": "ann"}, {"add": [""]}, {"add": [" ann"]}, {"add": ["scope:"]}, {"add": [1]},
        {"": ["ann"]}, {"a b": []}, {"add": ["a\u0000b"]}, [],
    ],
)  # fmt: skip
async def test_a_map_that_names_nobody_properly_is_refused(
    keyed: KeyedService, permissions: Any
) -> None:
    answer = await keyed.acme.put(PATH, json={"permissions": permissions})

    assert answer.status_code in {400, 422}
    assert (await keyed.acme.get(PATH)).json()["permissions"] == {}


async def test_names_that_no_tool_has_are_kept_and_told_until_one_has_them(
    keyed: KeyedService,
) -> None:
    """A source may be added later, or be made anew; a slip must not look like a lock."""
    body = {"permissions": {"ad": ["ann"], "add": ["ann"], "click": []}}

    put = await keyed.acme.put(PATH, json=body)
    await made(keyed.acme, "/v1/tool_sources", CLICK)

    assert (put.status_code, put.json()["unknown"]) == (200, ["ad", "click"])
    assert put.json()["permissions"] == body["permissions"]
    assert (await keyed.acme.get(PATH)).json()["unknown"] == ["ad"]
    assert (await keyed.globex.get(PATH)).json()["unknown"] == []


async def test_only_an_administrator_sees_and_sets_the_map(keyed: KeyedService) -> None:
    clerk = await keyed.holding("runs:read", "runs:write", "agents:write")

    assert refusal(await clerk.get(PATH)) == (403, "missing_scope")
    assert refusal(await clerk.put(PATH, json={"permissions": {}})) == (403, "missing_scope")


async def clerk_of(keyed: KeyedService) -> None:
    """Make the agent that adds."""
    await made(
        keyed.acme, "/v1/agents", {"name": "clerk", "model": "demo/offline", "tools": ["add"]}
    )


async def test_a_tool_is_not_offered_to_a_run_that_may_not_call_it(keyed: KeyedService) -> None:
    await clerk_of(keyed)
    writer = await keyed.holding("runs:read", "runs:write", subject="bob")
    allowed = await outcome(writer)
    await keyed.acme.put(PATH, json={"permissions": {"add": ["ann"]}})

    narrowed = await outcome(writer)

    assert "tool_call.completed" in [event["type"] for event in allowed]
    assert "tool_call.requested" not in [event["type"] for event in narrowed]


async def test_a_key_s_own_scope_opens_what_its_permissions_name(keyed: KeyedService) -> None:
    await clerk_of(keyed)
    await keyed.acme.put(PATH, json={"permissions": {"add": ["ann", "scope:sums"]}})
    adds = await keyed.holding("runs:read", "runs:write", "scope:sums")
    other = await keyed.holding("runs:read", "runs:write", "scope:other")
    ann = await keyed.holding("runs:read", "runs:write", subject="ann")

    called = [
        "tool_call.completed" in [event["type"] for event in await outcome(client)]
        for client in (adds, other, ann)
    ]

    assert called == [True, False, True]
