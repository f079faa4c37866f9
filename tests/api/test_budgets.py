"""Budgets over HTTP: declared, watched, changed; and runs of a real service that keep them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.asking import events
from tests.api.making import a_budget, an_agent, made, refusal
from tests.api.serving import KeyedService, Service, serving, settings_for
from tests.stubs.directed_model import DirectedModel, directed_model

PRICES = '["openai/stub"]\ninput = 1.0\noutput = 2.0\n'
UNNAMED = {"model_calls": None, "tool_calls": None}


async def a_run(client: httpx2.AsyncClient, text: str = "hello", **changes: Any) -> dict[str, Any]:
    """Let the clerk answer, and return the run once it is over."""
    run = await made(client, "/v1/runs?wait=20", {"agent": "clerk", "input": text, **changes})
    assert run["ended_at"] is not None, run
    return run


async def counters(client: httpx2.AsyncClient, budget: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first page of what is counted."""
    listed: list[dict[str, Any]] = (await client.get(f"/v1/budgets/{budget['id']}")).json()[
        "counters"
    ]["data"]
    return listed


# --- As a resource ---


async def test_a_budget_is_shown_as_it_was_made(client: httpx2.AsyncClient) -> None:
    limits = {"tokens": 5, "cost_usd_micros": 7, "active_s": 9}
    said = {
        "scope": "user",
        "scope_value": "ann",
        "period": "month",
        "limits": limits,
        "warn_at": 0.3,
        "metadata": {"team": "a"},
    }

    answer = await client.post("/v1/budgets", json=said)

    assert answer.status_code == 201
    budget = answer.json()
    assert budget == {
        **said,
        "limits": {**limits, **UNNAMED},
        "known": None,
        "id": budget["id"],
        "version": 1,
        "created_at": budget["created_at"],
        "updated_at": budget["created_at"],
    }
    assert answer.headers["location"] == f"/v1/budgets/{budget['id']}"
    assert answer.headers["etag"] == '"1"'
    looked_up = (await client.get(f"/v1/budgets/{budget['id']}")).json()
    del looked_up["counters"]
    assert looked_up == budget


@pytest.mark.parametrize("scope", ["agent", "session"])
async def test_a_budget_says_whether_there_is_whom_it_names(
    client: httpx2.AsyncClient, scope: str
) -> None:
    thing = await made(client, f"/v1/{scope}s", an_agent() if scope == "agent" else {})
    wanted = {"somebody": thing["id"], "nobody": "nobody", "each": None}

    answers = {
        who: await made(client, "/v1/budgets", a_budget(scope=scope, scope_value=value))
        for who, value in wanted.items()
    }

    known = {who: budget["known"] for who, budget in answers.items()}
    assert known == {"somebody": True, "nobody": False, "each": None}
    path = f"/v1/budgets/{answers['somebody']['id']}"
    await client.delete(f"/v1/{scope}s/{thing['id']}")
    assert (await client.get(path)).json()["known"] is False
    assert (await client.patch(path, json={"warn_at": 0.5})).json()["known"] is False
    listed = (await client.get("/v1/budgets")).json()["data"]
    assert [budget["known"] for budget in listed] == [None, False, False]


async def test_a_budget_by_an_agents_name_knows_it(client: httpx2.AsyncClient) -> None:
    agent = await made(client, "/v1/agents", an_agent())

    budget = await made(client, "/v1/budgets", a_budget(scope="agent", scope_value=agent["name"]))

    assert budget["known"] is True


async def test_a_repeated_request_makes_one_budget(client: httpx2.AsyncClient) -> None:
    key = {"Idempotency-Key": "budget-1"}

    answers = [await client.post("/v1/budgets", json=a_budget(), headers=key) for _ in range(2)]

    first, again = (answer.json() for answer in answers)
    assert first == again
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert len((await client.get("/v1/budgets")).json()["data"]) == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"limits": {}}, "/limits"),
        ({"limits": {"model_calls": None}}, "/limits"),
        ({"limits": {"model_calls": -1}}, "/limits/model_calls"),
        ({"limits": {"cost_usd": "1.00"}}, "/limits/cost_usd"),
        ({"scope": "galaxy"}, "/scope"),
        ({"period": "week"}, "/period"),
        ({"scope_value": "ann"}, ""),
        ({"warn_at": 0}, "/warn_at"),
        ({"warn_at": 1.5}, "/warn_at"),
        ({"colour": "red"}, "/colour"),
    ],
)
async def test_a_budget_that_bounds_nothing_or_nobody_is_refused(
    client: httpx2.AsyncClient, change: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/v1/budgets", json=a_budget(**change))

    assert refusal(answer) == (422, "invalid_request")
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_a_change_keeps_what_it_does_not_name(client: httpx2.AsyncClient) -> None:
    budget = await made(client, "/v1/budgets", a_budget(metadata={"team": "a"}))
    path = f"/v1/budgets/{budget['id']}"

    answer = await client.patch(path, json={"limits": {"tokens": 9}}, headers={"If-Match": '"1"'})

    changed = answer.json()
    assert answer.headers["etag"] == '"2"'
    assert changed["limits"] == {
        "tokens": 9, "cost_usd_micros": None, "model_calls": None, "tool_calls": None,
        "active_s": None,
    }  # fmt: skip
    kept = ("warn_at", "metadata", "scope", "period", "created_at")
    assert all(changed[name] == budget[name] for name in kept)


async def test_a_change_that_changes_nothing_makes_no_version(client: httpx2.AsyncClient) -> None:
    budget = await made(client, "/v1/budgets", a_budget())

    answer = await client.patch(f"/v1/budgets/{budget['id']}", json={"warn_at": 0.8})

    assert answer.json() == budget


@pytest.mark.parametrize("body", [{"limits": None}, {"limits": {}}, {"scope": "user"}])
async def test_a_budget_keeps_limits_and_whose_it_is(
    client: httpx2.AsyncClient, body: dict[str, Any]
) -> None:
    budget = await made(client, "/v1/budgets", a_budget())

    answer = await client.patch(f"/v1/budgets/{budget['id']}", json=body)

    assert refusal(answer) == (422, "invalid_request")


async def test_only_the_version_that_is_meant_is_changed_or_deleted(
    client: httpx2.AsyncClient,
) -> None:
    budget = await made(client, "/v1/budgets", a_budget())
    path, stale = f"/v1/budgets/{budget['id']}", {"If-Match": '"7"'}

    refused = [
        await client.patch(path, json={"warn_at": 0.5}, headers=stale),
        await client.delete(path, headers=stale),
    ]

    assert [refusal(answer) for answer in refused] == [(412, "precondition_failed")] * 2
    assert (await client.delete(path, headers={"If-Match": '"1"'})).status_code == 204
    assert refusal(await client.get(path)) == (404, "budget_not_found")


async def test_budgets_are_listed_and_filtered(client: httpx2.AsyncClient) -> None:
    first = await made(client, "/v1/budgets", a_budget(metadata={"team": "a"}))
    second = await made(client, "/v1/budgets", a_budget(scope="user", scope_value="ann"))

    async def ids(query: str) -> list[str]:
        answer = await client.get(f"/v1/budgets?{query}")
        return [budget["id"] for budget in answer.json()["data"]]

    assert await ids("") == [second["id"], first["id"]]
    assert await ids(f"limit=1&after={second['id']}") == [first["id"]]
    assert await ids("scope=user&scope_value=ann") == [second["id"]]
    assert await ids("metadata[team]=a") == [first["id"]]
    assert refusal(await client.get("/v1/budgets?scope=galaxy")) == (400, "bad_query")


async def test_there_is_an_end_to_how_many_budgets_there_may_be(
    client: httpx2.AsyncClient,
) -> None:
    for _ in range(100):
        await made(client, "/v1/budgets", a_budget())

    answer = await client.post("/v1/budgets", json=a_budget())

    assert refusal(answer) == (409, "too_many_budgets")


async def test_reading_and_writing_are_rights_of_their_own(keyed: KeyedService) -> None:
    reader = await keyed.holding("budgets:read")
    writer = await keyed.holding("budgets:write")

    budget = await made(writer, "/v1/budgets", a_budget())

    assert (await reader.get("/v1/budgets")).json()["data"] == [budget]
    assert refusal(await reader.post("/v1/budgets", json=a_budget())) == (403, "missing_scope")
    assert refusal(await writer.get("/v1/budgets")) == (403, "missing_scope")


async def test_the_audit_trail_tells_who_made_changed_and_deleted_a_budget(
    keyed: KeyedService,
) -> None:
    budget = await made(keyed.acme, "/v1/budgets", a_budget())
    path = f"/v1/budgets/{budget['id']}"
    await keyed.acme.patch(path, json={"limits": {"tokens": 9}})
    await keyed.acme.delete(path)

    trail = (await keyed.acme.get(f"/v1/audit?target={budget['id']}")).json()["data"]

    assert [act["action"] for act in trail] == [
        "budget.deleted", "budget.changed", "budget.created",
    ]  # fmt: skip
    assert trail[1]["details"]["limits"]["tokens"] == 9
    assert trail[1]["details"]["limits"]["model_calls"] is None


async def test_a_budget_binds_its_own_tenant_alone(keyed: KeyedService) -> None:
    await made(keyed.acme, "/v1/budgets", a_budget(limits={"model_calls": 0}))
    for client in (keyed.acme, keyed.globex):
        await made(client, "/v1/agents", an_agent())

    ended = [(await a_run(client))["status"] for client in (keyed.acme, keyed.globex)]

    assert ended == ["incomplete", "completed"]


# --- What is counted ---


async def test_a_budget_that_nobody_spent_of_shows_all_that_it_gives(
    client: httpx2.AsyncClient,
) -> None:
    whole = await made(client, "/v1/budgets", a_budget(limits={"model_calls": 5}))
    each = await made(client, "/v1/budgets", a_budget(scope="user"))

    [counter] = await counters(client, whole)

    assert counter["scope_value"] is None
    assert counter["resets_at"] > whole["created_at"]
    assert (counter["spent"], counter["reserved"]) == ({"model_calls": 0}, {"model_calls": 0})
    assert counter["remaining"] == {"model_calls": 5}
    assert await counters(client, each) == []


async def test_only_whom_a_counter_that_nobody_spent_of_is_for_finds_it(
    client: httpx2.AsyncClient,
) -> None:
    budget = await made(client, "/v1/budgets", a_budget(scope="user", scope_value="ann"))

    found = {
        whom: (await client.get(f"/v1/budgets/{budget['id']}/counters?scope_value={whom}")).json()
        for whom in ("ann", "bob", "")
    }

    shown = {whom: [each["scope_value"] for each in page["data"]] for whom, page in found.items()}
    assert shown == {"ann": ["ann"], "bob": [], "": []}


async def test_what_each_user_has_spent_is_listed(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    limits = {"tokens": 100_000, "cost_usd_micros": 10**6, "tool_calls": 1}
    budget = await made(
        client, "/v1/budgets", a_budget(scope="user", period="total", limits=limits)
    )
    for user in ("ann", "bob"):
        await a_run(client, "What is 2 + 3?", user=user)

    page = (await client.get(f"/v1/budgets/{budget['id']}/counters?limit=1")).json()
    found = (await client.get(f"/v1/budgets/{budget['id']}/counters?scope_value=ann")).json()

    assert (page["has_more"], page["data"][0]["scope_value"]) == (True, "bob")
    [ann] = found["data"]
    assert ann["resets_at"] is None
    assert ann["spent"]["tool_calls"] == 1
    assert ann["remaining"]["tool_calls"] == 0
    assert 0 < ann["spent"]["tokens"] == 100_000 - ann["remaining"]["tokens"]
    assert (ann["spent"]["cost_usd_micros"], ann["spent"]["cost_usd"]) == (0, "0")


async def test_a_tool_that_is_tried_out_counts_and_no_model_does(
    client: httpx2.AsyncClient,
) -> None:
    limits = {"tool_calls": 1, "model_calls": 0}
    budget = await made(client, "/v1/budgets", a_budget(limits=limits))

    calls = [
        await client.post("/v1/tools/add/call", json={"arguments": {"a": 1, "b": 2}})
        for _ in range(2)
    ]

    assert calls[0].json()["status"] == "completed", calls[0].text
    assert calls[1].json()["error"]["code"] == "budget_exceeded", calls[1].text
    [counter] = await counters(client, budget)
    assert counter["spent"] == {"tool_calls": 1, "model_calls": 0}


# --- Runs ---


def prices_file() -> str:
    """Write the prices down; return where."""
    path = Path("prices.toml")
    path.write_text(PRICES)
    return str(path)


@asynccontextmanager
async def stubbed(
    database_url: str, model: DirectedModel, **changes: Any
) -> AsyncIterator[Service]:
    """Serve with a stub for a model, which has a price."""
    settings = settings_for(
        database_url,
        openai_base_url=model.base_url,
        openai_api_key="none",
        prices=prices_file(),
        **changes,
    )
    async with serving(settings) as service, service.client() as client:
        await made(client, "/v1/agents", an_agent(model="openai/stub", tools=["add"]))
        yield service


async def test_of_twenty_runs_at_once_five_may_call_the_model(database_url: str) -> None:
    async with (
        directed_model() as model,
        stubbed(database_url, model, slots=20) as service,
        service.client() as client,
    ):
        budget = await made(client, "/v1/budgets", a_budget(limits={"model_calls": 5}))

        ended = await asyncio.gather(*(a_run(client, "slowly 20") for _ in range(20)))

        assert len(model.requests) == 5
        assert [run["status"] for run in ended].count("completed") == 5
        assert {run["finish_reason"] for run in ended} == {"stop", "budget"}
        [counter] = await counters(client, budget)
        assert counter["spent"] == {"model_calls": 5}
        assert counter["reserved"] == counter["remaining"] == {"model_calls": 0}


async def test_runs_that_spend_at_once_do_not_pass_a_budget_in_money_together(
    database_url: str,
) -> None:
    async with (
        directed_model() as model,
        stubbed(database_url, model, slots=12) as service,
        service.client() as client,
    ):
        limits = {"cost_usd_micros": 300}
        budget = await made(client, "/v1/budgets", a_budget(limits=limits))
        agent = {"limits": {"max_output_tokens": 70}}
        await client.patch("/v1/agents/clerk", json=agent)

        await asyncio.gather(*(a_run(client, "slowly 5") for _ in range(12)))

        rooms = [request["max_tokens"] for request in model.requests]
        assert 0 < len(rooms) < 12
        assert 0 < min(rooms) <= max(rooms) <= 70
        [counter] = await counters(client, budget)
        assert counter["spent"]["cost_usd_micros"] == 20 * len(rooms) <= 300
        assert counter["reserved"]["cost_usd_micros"] == 0


async def test_the_log_tells_of_a_warning_and_of_the_end(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    budget = await made(client, "/v1/budgets", a_budget(limits={"model_calls": 2}, warn_at=0.5))

    first, second = await a_run(client, "What is 2 + 3?"), await a_run(client)

    said = {"budget": budget["id"], "limit": "model_calls"}
    warned = [each for each in await events(client, first["id"]) if each["type"][:6] == "budget"]
    assert [each["data"] for each in warned] == [{**said, "spent": 1, "of": 2}]
    *_, exceeded, _ = await events(client, second["id"])
    assert exceeded["type"] == "budget.exceeded"
    assert exceeded["data"].items() >= {**said, "spent": 2, "of": 2}.items()
    assert exceeded["data"]["resets_at_ms"] is not None
    assert (second["status"], second["finish_reason"]) == ("incomplete", "budget")
    assert second["output"]["text"] == ""


async def test_an_unpriced_model_fails_where_money_is_bounded(database_url: str) -> None:
    async with (
        directed_model() as model,
        stubbed(database_url, model) as service,
        service.client() as client,
    ):
        await client.patch("/v1/agents/clerk", json={"model": "openai/unheard-of"})
        await made(client, "/v1/budgets", a_budget(limits={"cost_usd_micros": 10**9}))

        run = await a_run(client)

        assert (run["status"], run["error"]["code"]) == ("failed", "unpriced_model")
        assert model.requests == []


async def test_a_deleted_budget_binds_nobody_any_more(client: httpx2.AsyncClient) -> None:
    await made(client, "/v1/agents", an_agent())
    budget = await made(client, "/v1/budgets", a_budget(limits={"model_calls": 0}))
    assert (await a_run(client))["status"] == "incomplete"

    await client.delete(f"/v1/budgets/{budget['id']}")

    assert (await a_run(client))["status"] == "completed"
