"""`/v1/traces`: what runs did, how long it took and what it cost."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from milepost.core.spans import Span
from milepost.core.usage import Usage
from milepost.store import queue
from milepost.store.records import UsageRow
from milepost.telemetry.context import trace_id_of
from tests.api.asking import decide, ended, equipped, parked, started
from tests.api.serving import KeyedService, Service, serving, settings_for
from tests.store.making import NOW_MS, a_finish
from tests.stubs.directed_model import directed_model
from tests.stubs.openai_server import (
    LAST_FRAME,
    TOOL_RESULTS,
    Answers,
    framed,
    serving_answers,
)
from tests.stubs.web_server import saying, web_server


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
    of_spans = ("spans", "total_duration_ms", "reasoning", "reasoning_history")
    assert of_run == {**listed, **{name: of_run[name] for name in of_spans}}


async def test_a_trace_adds_its_steps_up_and_places_each_of_them_in_time(idle: Service) -> None:
    async with idle.client() as client:
        run_id = await started(client, "hello")
        stretch = a_span(run_id)
        chat = a_span(run_id, 4, kind="chat", start_ms=NOW_MS + 100, end_ms=NOW_MS + 350)
        call = a_span(run_id, 5, kind="execute_tool", start_ms=NOW_MS + 350, end_ms=NOW_MS + 900)
        await finished(idle, run_id, stretch, chat, call)

        trace = (await client.get(f"/v1/runs/{run_id}/trace")).json()

    placed = [(span["offset_ms"], span["duration_ms"]) for span in trace["spans"]]
    assert placed == [(0, 1_000), (100, 250), (350, 550)]
    assert trace["total_duration_ms"] == 250 + 550


async def test_a_trace_is_narrowed_to_types_of_steps(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "add 2 and 3")
    await ended(client, run_id)

    path = f"/v1/runs/{run_id}/trace"
    one = (await client.get(f"{path}?type=execute_tool")).json()
    two = (await client.get(f"{path}?type=chat,%20execute_tool")).json()
    none = (await client.get(f"/v1/traces/{run_id}?type=loop")).json()
    failed = (await client.get(f"{path}?status=error")).json()

    assert [span["kind"] for span in one["spans"]] == ["execute_tool"]
    assert [span["kind"] for span in two["spans"]] == ["chat", "execute_tool", "chat"]
    assert (none["spans"], failed["spans"]) == ([], [])
    assert {trace["span_count"] for trace in (one, two, none)} == {4}


async def test_a_collector_s_document_is_narrowed_the_same_way(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "add 2 and 3")
    await ended(client, run_id)

    otlp = (await client.get(f"/v1/traces/{run_id}?format=otlp&type=execute_tool")).json()

    [batch] = otlp["resourceSpans"]
    assert [span["name"] for span in batch["scopeSpans"][0]["spans"]] == ["execute_tool add"]


async def test_what_was_done_to_a_call_is_in_its_run_s_trace(client: httpx2.AsyncClient) -> None:
    approval = await parked(client)
    await decide(client, approval, "deny", comment="not today")
    await ended(client, approval["run_id"])

    trace = (await client.get(f"/v1/runs/{approval['run_id']}/trace?type=policy,denial")).json()

    asked, denied = trace["spans"]
    assert (asked["name"], denied["name"]) == ("policy ask send_email", "denial send_email")
    assert {span["duration_ms"] for span in trace["spans"]} == {0}
    assert {span["tool"] for span in trace["spans"]} == {"send_email"}
    assert "not today" not in str(trace["spans"])


async def test_what_a_tool_was_only_denied_is_no_run_in_which_it_ran(
    client: httpx2.AsyncClient,
) -> None:
    approval = await parked(client)
    await decide(client, approval, "deny")
    await ended(client, approval["run_id"])

    assert await found(client, "tool=send_email") == []


async def test_a_run_is_found_by_the_model_that_stood_in_for_another(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    async with directed_model() as model, web_server(saying({"error": "full"}, 503)) as full:
        file = tmp_path / "mine.toml"
        file.write_text(
            f'[providers.full]\nwire = "openai"\nbase_url = "{full.url}"\n'
            f'[providers.idle]\nwire = "openai"\nbase_url = "{model.base_url}"\n'
        )
        settings = settings_for(sqlite_database_url, providers=str(file))
        async with serving(settings) as service, service.client() as client:
            agent = {"name": "clerk", "model": "full/big", "fallbacks": ["idle/directed"]}
            assert (await client.post("/v1/agents", json=agent)).status_code == 201
            run_id = await started(client, "Hi", agent="clerk")
            await ended(client, run_id)

            assert await found(client, "model=idle/directed") == [run_id]
            assert await found(client, "model=full/big") == [run_id]
            assert await found(client, "model=idle/other") == []


async def test_a_child_s_trace_hangs_below_its_parent_s_call(sqlite_database_url: str) -> None:
    scribe = {"name": "scribe", "model": "openai/directed"}
    clerk = {"name": "clerk", "model": "openai/directed", "tools": ["agent:scribe"]}
    async with (
        directed_model() as model,
        serving(settings_for(sqlite_database_url, OPENAI_BASE_URL=model.base_url)) as service,
        service.client() as client,
    ):
        for agent in (scribe, clerk):
            assert (await client.post("/v1/agents", json=agent)).status_code == 201
        said = 'call agent:scribe {"input": "hello"}'
        run_id = await started(client, said, agent="clerk", metadata={"team": "red"})
        await ended(client, run_id)
        parent = (await client.get(f"/v1/runs/{run_id}/trace")).json()
        [call] = (span for span in parent["spans"] if span["tool"] == "agent:scribe")
        child_id = call["attributes"]["milepost.child_run.id"]
        child = (await client.get(f"/v1/runs/{child_id}/trace")).json()
        listed = (await client.get("/v1/traces")).json()["data"]

    stretch = child["spans"][0]
    assert (stretch["kind"], stretch["parent_id"]) == ("invoke_agent", call["span_id"])
    assert child["trace_id"] == parent["trace_id"]
    assert (child["parent_run_id"], parent["parent_run_id"]) == (run_id, None)
    assert stretch["attributes"]["milepost.parent_run_id"] == run_id
    assert parent["spans"][0]["attributes"]["milepost.metadata.team"] == "red"
    assert call["attributes"]["milepost.child_run.status"] == "completed"
    assert call["duration_ms"] >= sum(
        span["duration_ms"] for span in child["spans"] if span["kind"] == "invoke_agent"
    )
    assert {each["parent_run_id"] for each in listed} == {None, run_id}


def chunks(*deltas: dict[str, Any], reason: str) -> tuple[bytes, ...]:
    """Return an answer of the Chat Completions wire, in pieces."""
    said = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    last = {"index": 0, "delta": {}, "finish_reason": reason}
    usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    bodies: list[dict[str, Any]] = [{"model": "stub", "choices": [each]} for each in (*said, last)]
    bodies.append({"model": "stub", "choices": [], "usage": usage})
    told = (framed(b"data: " + orjson.dumps(body) + b"\n\n") for body in bodies)
    return (*told, framed(b"data: [DONE]\n\n"), LAST_FRAME)


ADD = {"index": 0, "id": "vendor_1", "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'}}
THINKING = Answers(
    call=chunks(
        {"reasoning_content": "They want a sum."},
        {"content": "I'll add them up."},
        {"tool_calls": [ADD]},
        reason="tool_calls",
    ),
    text=chunks({"reasoning_content": "It is 5."}, {"content": "5"}, reason="stop"),
    tool_results=TOOL_RESULTS,
)


async def test_why_a_model_did_what_it_did_is_kept_step_by_step(sqlite_database_url: str) -> None:
    agent = {"name": "clerk", "model": "openai/stub", "tools": ["add"]}
    async with (
        serving_answers(THINKING) as base_url,
        serving(settings_for(sqlite_database_url, OPENAI_BASE_URL=base_url)) as service,
        service.client() as client,
    ):
        await client.post("/v1/agents", json=agent)
        run_id = await started(client, "2 + 3?", agent="clerk")
        run = await ended(client, run_id)
        trace = (await client.get(f"/v1/runs/{run_id}/trace")).json()

    assert trace["reasoning_history"] == [
        {
            "step": 1,
            "message_id": "msg_1",
            "text": "I'll add them up.",
            "thinking": "They want a sum.",
            "tools": ["add"],
        },
        {"step": 2, "message_id": "msg_2", "text": None, "thinking": "It is 5.", "tools": []},
    ]
    assert trace["reasoning"] == "It is 5."
    assert [(span["kind"], span["reasoning"]) for span in trace["spans"]] == [
        ("invoke_agent", None),
        ("chat", "They want a sum.\nI'll add them up."),
        ("execute_tool", None),
        ("chat", "It is 5."),
    ]
    assert run["usage"]["model_calls"] == 2, "nobody was asked once more for a reason"


async def test_a_run_whose_model_gave_no_reasons_has_none(client: httpx2.AsyncClient) -> None:
    run_id = await started(client, "hi")
    await ended(client, run_id)

    trace = (await client.get(f"/v1/runs/{run_id}/trace")).json()

    assert (trace["reasoning"], trace["reasoning_history"]) == (None, [])


async def test_a_trace_is_the_caller_s_where_it_came_with_one(client: httpx2.AsyncClient) -> None:
    caller = f"00-{'5' * 32}-{'6' * 16}-01"
    answer = await client.post(
        "/v1/runs", json={"agent": "demo", "input": "hi"}, headers={"traceparent": caller}
    )
    run = await ended(client, answer.json()["id"])

    trace = (await client.get(f"/v1/traces/{run['id']}")).json()

    assert trace["trace_id"] == "5" * 32
    assert {span["trace_id"] for span in trace["spans"]} == {"5" * 32}


async def test_a_caller_that_names_two_traces_is_taken_for_one_that_names_none(
    client: httpx2.AsyncClient,
) -> None:
    callers = [("traceparent", f"00-{digit * 32}-{'6' * 16}-01") for digit in "57"]
    answer = await client.post("/v1/runs", json={"agent": "demo", "input": "hi"}, headers=callers)
    run = await ended(client, answer.json()["id"])

    trace = (await client.get(f"/v1/traces/{run['id']}")).json()

    assert trace["trace_id"] == trace_id_of(run["id"])


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


@pytest.mark.parametrize("query", ["format=xml", "type=llm_call", "status=failed"])
async def test_a_form_that_there_is_not_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    run_id = await started(client, "hi")

    answer = await client.get(f"/v1/traces/{run_id}?{query}")

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
