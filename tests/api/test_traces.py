"""`/v1/traces`: what runs did, how long it took and what it cost."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.store import queue
from milepost.store.records import UsageRow
from tests.api.asking import ended, equipped, started
from tests.api.serving import KeyedService, Service, serving, settings_for
from tests.store.making import NOW_MS, a_finish


@pytest.fixture
async def idle(database_url: str) -> AsyncIterator[Service]:
    """A service whose runs only the test drives."""
    async with serving(settings_for(database_url, slots=0)) as service:
        yield service


async def finished(service: Service, run_id: str, *spans: Span, usage: Usage | None = None) -> None:
    """Drive the one run that is queued to its end, with these spans and this usage."""
    store = service.app._parts.ports.store
    await store.write(queue.register(f"worker of {run_id}", 60_000))
    [claim] = await store.write(queue.claim(f"worker of {run_id}", 1, run_id, NOW_MS))
    assert claim.run_id == run_id
    used = () if usage is None else (_row(claim.session_id, usage),)
    failed = any(span.status == "error" for span in spans)
    last = a_finish(claim, "failed" if failed else "completed", spans=spans, usage=used)
    await store.append(last)


def _row(session_id: str, usage: Usage) -> UsageRow:
    return UsageRow(9, session_id, "demo", "demo/offline", None, "{}", NOW_MS, usage)


def a_span(run_id: str, seq: int = 3, **changes: Any) -> Span:
    """Return a span of a second, of the run's only stretch unless said otherwise."""
    given: dict[str, Any] = {
        "run_id": run_id,
        "seq": seq,
        "trace_id": "a" * 32,
        "span_id": f"{seq:016x}",
        "parent_id": None,
        "kind": "invoke_agent",
        "name": "invoke_agent demo",
        "start_ms": NOW_MS,
        "end_ms": NOW_MS + 1_000,
        "status": "ok",
        **changes,
    }
    return Span(**given)


async def found(client: httpx2.AsyncClient, query: str) -> list[str]:
    answer = await client.get(f"/v1/traces?{query}")
    assert answer.status_code == 200, answer.text
    return [each["run_id"] for each in answer.json()["data"]]


async def test_a_run_s_trace_shows_its_spans_in_their_order(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "add 2 and 3", metadata={"team": "red"})
    run = await ended(client, run_id)

    trace = (await client.get(f"/v1/traces/{run_id}")).json()

    agent, first_chat, tool, second_chat = trace["spans"]
    assert [span["kind"] for span in trace["spans"]] == [
        "invoke_agent", "chat", "execute_tool", "chat",
    ]  # fmt: skip
    assert {span["parent_id"] for span in (first_chat, tool, second_chat)} == {agent["span_id"]}
    assert (tool["tool"], first_chat["model"]) == ("add", "demo/offline")
    assert {span["trace_id"] for span in trace["spans"]} == {trace["trace_id"]}
    assert (trace["span_count"], trace["tool_calls"], trace["errors"]) == (4, 1, 0)
    assert trace["usage"] == run["usage"]
    assert (trace["status"], trace["metadata"]) == ("completed", {"team": "red"})
    assert trace["ended_at"] == run["ended_at"]


async def test_a_run_and_its_trace_show_the_same(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "add 2 and 3")
    await ended(client, run_id)

    of_run = (await client.get(f"/v1/runs/{run_id}/trace")).json()

    listed = (await client.get("/v1/traces")).json()["data"][0]
    assert of_run == (await client.get(f"/v1/traces/{run_id}")).json()
    assert of_run == {**listed, "spans": of_run["spans"]}


async def test_a_trace_is_the_caller_s_where_it_came_with_one(client: httpx2.AsyncClient) -> None:
    caller = f"00-{'5' * 32}-{'6' * 16}-01"
    answer = await client.post(
        "/v1/runs", json={"agent": "demo", "input": "hi"}, headers={"traceparent": caller}
    )
    run = await ended(client, answer.json()["id"])

    trace = (await client.get(f"/v1/traces/{run['id']}")).json()

    assert trace["trace_id"] == "5" * 32
    assert {span["trace_id"] for span in trace["spans"]} == {"5" * 32}


async def test_a_trace_is_shown_as_the_document_that_a_collector_takes(
    client: httpx2.AsyncClient,
) -> None:
    run_id = await started(client, "add 2 and 3")
    await ended(client, run_id)
    trace = (await client.get(f"/v1/traces/{run_id}")).json()

    otlp = (await client.get(f"/v1/traces/{run_id}?format=otlp")).json()

    [batch] = otlp["resourceSpans"]
    [scope] = batch["scopeSpans"]
    assert batch["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": "milepost"}}
    ]
    assert [span["spanId"] for span in scope["spans"]] == [
        span["span_id"] for span in trace["spans"]
    ]
    assert [span.get("parentSpanId") for span in scope["spans"]] == [
        span["parent_id"] for span in trace["spans"]
    ]
    assert {span["traceId"] for span in scope["spans"]} == {trace["trace_id"]}


async def test_a_run_that_nobody_took_yet_has_an_empty_trace(idle: Service) -> None:
    async with idle.client() as client:
        run_id = await started(client, "hello")

        trace = (await client.get(f"/v1/traces/{run_id}")).json()
        otlp = (await client.get(f"/v1/traces/{run_id}?format=otlp")).json()

    assert (trace["status"], trace["spans"], trace["duration_ms"]) == ("queued", [], None)
    assert re.fullmatch("[0-9a-f]{32}", trace["trace_id"])
    assert otlp == {"resourceSpans": []}


async def test_traces_are_found_by_who_ran_and_what_became_of_it(
    client: httpx2.AsyncClient,
) -> None:
    session = (await client.post("/v1/sessions", json={})).json()["id"]
    first = await started(client, "hi", session_id=session, metadata={"team": "red"}, user="ann")
    await ended(client, first)
    second = await started(client, "what time is it?")
    await ended(client, second)

    assert await found(client, "") == [second, first]
    assert await found(client, "order=asc") == [first, second]
    assert await found(client, f"session_id={session}") == [first]
    assert await found(client, "user=ann") == [first]
    assert await found(client, "metadata[team]=red") == [first]
    assert await found(client, "status=completed&agent=demo") == [second, first]
    assert await found(client, "status=failed") == []
    assert await found(client, "created_after=2100-01-01T00:00:00Z") == []


async def test_traces_are_found_by_the_tools_and_models_in_them(client: httpx2.AsyncClient) -> None:
    talk = await started(client, "hi")
    await ended(client, talk)
    add = await started(client, "add 2 and 3")
    await ended(client, add)

    assert await found(client, "tool=add") == [add]
    assert await found(client, "tool=multiply") == []
    assert await found(client, "model=demo/offline") == [add, talk]
    assert await found(client, "model=openai/gpt-5-mini") == []


async def test_traces_are_found_by_their_errors(idle: Service) -> None:
    async with idle.client() as client:
        fine = await started(client, "hello")
        await finished(idle, fine, a_span(fine))
        bad = await started(client, "hello")
        broken = a_span(bad, kind="execute_tool", tool="add", status="error", error="No such Order")
        await finished(idle, bad, broken)

        assert await found(client, "errors=true") == [bad]
        assert await found(client, "error=such order") == [bad]
        assert await found(client, "error=100%25") == []
        assert await found(client, "errors=false") == [bad, fine]


async def test_traces_are_found_by_how_long_they_took_and_what_they_cost(idle: Service) -> None:
    async with idle.client() as client:
        run_id = await started(client, "hello")
        span = a_span(run_id, start_ms=NOW_MS - 5_000, end_ms=NOW_MS)
        await finished(idle, run_id, span, usage=Usage(model_calls=1, cost_nanos=2_000_500))
        [trace] = (await client.get("/v1/traces")).json()["data"]

        assert trace["duration_ms"] == 5_000
        assert (trace["usage"]["cost_usd_micros"], trace["usage"]["cost_usd"]) == (
            2_000,
            "0.0020005",
        )
        assert await found(client, "min_duration_ms=5000") == [run_id]
        assert await found(client, "min_duration_ms=5001") == []
        assert await found(client, "min_cost_usd_micros=2000") == [run_id]
        assert await found(client, "min_cost_usd_micros=2001") == []


async def test_traces_come_in_pages(client: httpx2.AsyncClient) -> None:
    runs = [await started(client, "hi") for _ in range(3)]

    page = (await client.get("/v1/traces?limit=2")).json()
    rest = (await client.get(f"/v1/traces?limit=2&after={page['next_cursor']}")).json()

    assert [each["run_id"] for each in page["data"]] == [runs[2], runs[1]]
    assert [each["run_id"] for each in rest["data"]] == [runs[0]]
    assert (page["has_more"], rest["has_more"], rest["next_cursor"]) == (True, False, None)


@pytest.mark.parametrize(
    "query",
    ["errors=yes", "min_duration_ms=-1", "min_cost_usd_micros=1.5", "status=done", "color=red"],
)
async def test_a_filter_that_cannot_be_read_is_refused(
    client: httpx2.AsyncClient, query: str
) -> None:
    answer = await client.get(f"/v1/traces?{query}")

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")


async def test_a_form_that_there_is_not_is_refused(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "hi")

    answer = await client.get(f"/v1/traces/{run_id}?format=xml")

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")


@pytest.mark.parametrize("query", ["", "?format=otlp"])
async def test_another_tenant_s_trace_does_not_exist(keyed: KeyedService, query: str) -> None:
    run_id = await started(await equipped(keyed.acme), "hi")

    answer = await keyed.globex.get(f"/v1/traces/{run_id}{query}")

    assert (answer.status_code, answer.json()["code"]) == (404, "run_not_found")
    assert await found(keyed.globex, "") == []


async def test_traces_are_for_those_who_may_read_runs(keyed: KeyedService) -> None:
    writer = await keyed.holding("runs:write")

    answers = [await writer.get("/v1/traces"), await writer.get("/v1/traces/run_1")]

    assert [answer.json()["code"] for answer in answers] == ["missing_scope"] * 2
