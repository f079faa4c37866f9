"""`/v1/usage`: tokens, money and tool calls, added up by whatever one likes."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from milepost.core.usage import Usage
from milepost.store import queue, usage
from milepost.store.records import UsageRow
from milepost.store.usage import Account, Taken
from tests.api.asking import decide, ended, equipped, parked, started
from tests.api.serving import KeyedService, Service, serving, settings_for
from tests.contract import require_fits
from tests.store.making import an_append
from tests.stubs.directed_model import directed_model

NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
DAY_MS = 86_400_000
SMALL = Usage(input_tokens=10, output_tokens=5, model_calls=1, cost_nanos=1_500)
LARGE = Usage(input_tokens=1_000, output_tokens=500, model_calls=1, cost_nanos=2_000_000_001)
SAVED = Usage(saved_input_tokens=10, saved_output_tokens=5, saved_cost_nanos=1_500)


@pytest.fixture
async def client(database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service that has used something on two days."""
    async with serving(settings_for(database_url, slots=0)) as service, service.client() as client:
        await used(service, client, SMALL, SMALL, model="openai/small", metadata={"team": "red"})
        await used(service, client, LARGE, model="openai/large", time_ms=NOON_MS + DAY_MS)
        await used(service, client, SAVED, model="openai/small", user="ann")
        yield client


async def used(
    service: Service,
    client: httpx2.AsyncClient,
    *usages: Usage,
    model: str,
    time_ms: int = NOON_MS,
    **run: Any,
) -> None:
    """Let a run use this much."""
    run_id = await started(client, "hello", **run)
    store = service.app._parts.ports.store
    await store.write(queue.register(run_id, 60_000))
    [claim] = await store.write(queue.claim(run_id, 1, run_id, time_ms))
    rows = tuple(
        UsageRow(seq, claim.session_id, "demo", model, claim.user, claim.metadata, time_ms, usage)
        for seq, usage in enumerate(usages)
    )
    await store.append(an_append(claim, usage=rows))


async def groups(client: httpx2.AsyncClient, query: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/usage?{query}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    assert (body["has_more"], body["next_cursor"]) == (False, None)
    data: list[dict[str, Any]] = body["data"]
    return data


async def test_all_usage_is_one_group_unless_it_is_grouped(client: httpx2.AsyncClient) -> None:
    [total] = await groups(client, "")

    assert total == {
        "runs": 3,
        "input_tokens": 1_020,
        "output_tokens": 510,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
        "model_calls": 3,
        "cost_nanos": 2_000_003_001,
        "unpriced_calls": 0,
        "unknown_calls": 0,
        "saved_input_tokens": 10,
        "saved_output_tokens": 5,
        "saved_cost_nanos": 1_500,
        "cost_usd_micros": 2_000_003,
        "cost_usd": "2.000003001",
    }


async def test_what_is_of_no_run_is_of_no_agent_and_no_session_as_is_promised(
    database_url: str,
) -> None:
    beside = Taken(Account("default", "ann"), "demo/vectors", SMALL, 1, NOON_MS)
    async with serving(settings_for(database_url, slots=0)) as service, service.client() as client:
        await service.app._parts.ports.store.write(usage.add([beside]))
        [group] = await groups(client, "group_by=agent,session,model,user")

    require_fits("UsageGroup", group)
    assert (group["agent"], group["session"], group["runs"]) == (None, None, 0)
    assert (group["model"], group["user"]) == ("demo/vectors", "ann")


async def test_usage_is_grouped_by_several_things_at_once(client: httpx2.AsyncClient) -> None:
    found = await groups(client, "group_by=day,model")

    assert [(each["day"], each["model"], each["runs"], each["cost_usd"]) for each in found] == [
        ("2026-01-01", "openai/small", 2, "0.000003"),
        ("2026-01-02", "openai/large", 1, "2.000000001"),
    ]


@pytest.mark.parametrize(
    ("group_by", "keys"),
    [
        ("hour", ["2026-01-01T12:00Z", "2026-01-02T12:00Z"]),
        ("agent", ["demo"]),
        ("tenant", ["default"]),
        ("user", ["ann", None]),
        ("metadata.team", ["red", None]),
    ],
)
async def test_usage_is_grouped_by_anything_that_a_run_says(
    client: httpx2.AsyncClient, group_by: str, keys: list[str | None]
) -> None:
    found = await groups(client, f"group_by={group_by}")

    assert [each[group_by] for each in found] == keys


@pytest.mark.parametrize(
    ("query", "tokens"),
    [
        ("model=openai/small", 20),
        ("user=ann", 0),
        ("metadata[team]=red", 20),
        ("agent=demo", 1_020),
        ("agent=other", 0),
        ("from=2026-01-02T12:00:00Z", 1_000),
        ("to=2026-01-02T12:00:00Z", 20),
        ("from=2026-01-01T14:00:00%2B02:00&to=2026-01-01T12:00:01Z", 20),
    ],
)
async def test_usage_is_narrowed_by_filters(
    client: httpx2.AsyncClient, query: str, tokens: int
) -> None:
    [total] = await groups(client, query)

    assert total["input_tokens"] == tokens


async def test_usage_of_one_session(client: httpx2.AsyncClient) -> None:
    by_session = await groups(client, "group_by=session")

    [one] = await groups(client, f"session_id={by_session[0]['session']}")

    assert len(by_session) == 3
    assert one == {key: value for key, value in by_session[0].items() if key != "session"}


@pytest.mark.parametrize(
    "query",
    [
        "group_by=color",
        "group_by=day,day",
        "group_by=metadata.",
        "group_by=tool,model",
        "tool=add&model=openai/small",
        "from=yesterday",
        "status=failed",
    ],
)
async def test_a_question_that_cannot_be_read_is_refused(
    client: httpx2.AsyncClient, query: str
) -> None:
    answer = await client.get(f"/v1/usage?{query}")

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")


async def test_tool_calls_are_added_up_where_tools_are_asked_for(service: Service) -> None:
    async with service.client() as client:
        run_id = await started(client, "add 2 and 3, multiply 4 by 5")
        await ended(client, run_id)
        await ended(client, await started(client, "add 1 and 1"))

        by_tool = await groups(client, "group_by=tool")
        [of_add] = await groups(client, "tool=add")

    assert [(each["tool"], each["runs"], each["tool_calls"]) for each in by_tool] == [
        ("add", 2, 2),
        ("multiply", 1, 1),
    ]
    assert of_add == {
        "runs": 2,
        "tool_calls": 2,
        "failures": 0,
        "failures_by_code": {},
        "success_rate": 1.0,
        "cancelled": 0,
        "denied": 0,
        "coerced": 0,
        "cached": 0,
        "chunks": 0,
        "duration_ms": of_add["duration_ms"],
        "p50_ms": of_add["p50_ms"],
        "p95_ms": of_add["p95_ms"],
    }


async def test_calls_that_were_denied_are_counted_where_tools_are_asked_for(
    service: Service,
) -> None:
    async with service.client() as http:
        approval = await parked(http)
        await decide(http, approval, "deny")
        await ended(http, approval["run_id"])

        [mail] = await groups(http, "group_by=tool,agent&from=2020-01-01T00:00:00Z")

    assert (mail["tool"], mail["agent"]) == ("send_email", "demo")
    assert (mail["tool_calls"], mail["denied"], mail["success_rate"]) == (0, 1, None)


async def test_a_run_s_usage_counts_the_calls_of_each_tool(service: Service) -> None:
    async with service.client() as client:
        run_id = await started(client, "add 2 and 3, multiply 4 by 5, add 1 and 1")
        run = await ended(client, run_id)

        used = (await client.get(f"/v1/runs/{run_id}/usage")).json()
        calls = (await client.get(f"/v1/runs/{run_id}/trace?type=chat")).json()["spans"]

    assert [(each["tool"], each["tool_calls"]) for each in used["tools"]] == [
        ("add", 2),
        ("multiply", 1),
    ]
    assert {name: used[name] for name in run["usage"]} == run["usage"]
    tokens = [span["attributes"]["gen_ai.usage.input_tokens"] for span in calls]
    assert sum(tokens) == used["input_tokens"]


async def test_a_model_without_a_price_says_so(sqlite_database_url: str) -> None:
    agent = {"name": "clerk", "model": "openai/directed"}
    async with (
        directed_model() as model,
        serving(settings_for(sqlite_database_url, OPENAI_BASE_URL=model.base_url)) as service,
        service.client() as client,
    ):
        await client.post("/v1/agents", json=agent)
        run_id = await started(client, "hello", agent="clerk")
        await ended(client, run_id)

        [total] = await groups(client, "group_by=model")
        of_run = (await client.get(f"/v1/runs/{run_id}/usage")).json()

    assert total["model"] == "openai/directed"
    assert (total["input_tokens"], total["output_tokens"]) == (10, 5)
    assert (total["model_calls"], total["unpriced_calls"], total["cost_usd"]) == (1, 1, "0")
    assert of_run.pop("tools") == []
    assert {**of_run, "model": "openai/directed", "runs": 1} == {**total, "run_id": run_id}


async def test_usage_of_another_tenant_is_not_counted(keyed: KeyedService) -> None:
    run_id = await started(await equipped(keyed.acme), "add 2 and 3")
    await ended(keyed.acme, run_id)

    assert await groups(keyed.globex, "group_by=tool") == []
    assert await groups(keyed.globex, "group_by=model") == []
    [of_acme] = await groups(keyed.acme, "group_by=tenant")
    assert (of_acme["tenant"], of_acme["runs"]) == ("acme", 1)


async def test_usage_is_for_those_who_may_read_runs(keyed: KeyedService) -> None:
    writer = await keyed.holding("runs:write")

    answer = await writer.get("/v1/usage")

    assert (answer.status_code, answer.json()["code"]) == (403, "missing_scope")
