"""The spans of requests that make runs: a collector gets them, and what hangs on them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from milepost.telemetry.context import TraceContext
from tests.api.asking import events
from tests.api.chatting import Chat, chatting
from tests.api.making import an_agent, an_ended_run, made
from tests.api.serving import serving, settings_for
from tests.telemetry.collector import Collector, attributes_of, listening

CALLER = TraceContext("5" * 32, "6" * 16)
HEADERS = {"traceparent": CALLER.header()}
SUM = {"arguments": {"a": 2, "b": 3}}


def below_the_caller(collector: Collector, request: str, stretch: str) -> bool:
    """Say whether the run's stretch hangs on the request's span, and that on the caller's."""
    place, agent = collector.spans[request], collector.spans[stretch]
    assert {span.trace_id.hex() for span in collector.all_spans} == {CALLER.trace_id}
    assert place.parent_span_id.hex() == CALLER.span_id
    return agent.parent_span_id == place.span_id


@asynccontextmanager
async def told_of(collector: Collector, database_url: str, folder: Path) -> AsyncIterator[Chat]:
    """Serve a chat whose spans the collector gets, all of them by the end."""
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
    async with chatting(database_url, folder, **endpoint) as chat:
        yield chat


async def test_the_run_that_answers_in_a_chat_hangs_on_the_message_s_request(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    with listening() as collector:
        async with told_of(collector, sqlite_database_url, tmp_path) as chat:
            chat.client.headers.update(HEADERS)
            await chat.say("hello")

        request = "POST /v1/channels/{channel}/messages"
        assert below_the_caller(collector, request, "invoke_agent clerk")
        assert attributes_of(collector.spans[request])["http.response.status_code"] == 200


async def test_the_run_that_executes_what_was_confirmed_hangs_on_the_confirmation(
    sqlite_database_url: str, tmp_path: Path
) -> None:
    with listening() as collector:
        async with told_of(collector, sqlite_database_url, tmp_path) as chat:
            await chat.call("refund", order="A1")
            chat.client.headers.update(HEADERS)
            confirmed = await chat.say("yes")
            await events(chat.client, confirmed["run_id"])

        ids = {span.span_id for span in collector.all_spans}
        parents = {span.parent_span_id for span in collector.all_spans} - {b""}
        assert parents - ids == {bytes.fromhex(CALLER.span_id)}


async def test_a_tool_that_is_called_has_the_request_above_it_that_called_it(
    sqlite_database_url: str,
) -> None:
    with listening() as collector:
        settings = settings_for(sqlite_database_url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        async with serving(settings) as service, service.client() as client:
            answer = await client.post("/v1/tools/add/call", json=SUM, headers=HEADERS)
            assert answer.status_code == 200, answer.text

        request = "POST /v1/tools/{name}/call"
        assert below_the_caller(collector, request, "invoke_agent direct:add")
        assert attributes_of(collector.spans[request])["http.response.status_code"] == 200


@pytest.mark.parametrize(
    ("query", "said", "status"),
    [("?wait=20", {}, 200), ("", {"stream": True}, 200), ("", {}, 202), ("?wait=0", {}, 202)],
)
async def test_the_span_of_a_request_has_the_status_of_its_answer(
    sqlite_database_url: str, query: str, said: dict[str, Any], status: int
) -> None:
    with listening() as collector:
        settings = settings_for(sqlite_database_url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        async with serving(settings) as service, service.client() as client:
            await made(client, "/v1/agents", an_agent())
            body = {"agent": "clerk", "input": "Hello!", **said}
            answer = await client.post(f"/v1/runs{query}", json=body)
            assert answer.status_code == status

        told = attributes_of(collector.spans["POST /v1/runs"])
        assert told["http.response.status_code"] == status


async def test_the_span_of_a_fork_has_the_status_of_its_answer(sqlite_database_url: str) -> None:
    with listening() as collector:
        settings = settings_for(sqlite_database_url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        async with serving(settings) as service, service.client() as client:
            await made(client, "/v1/agents", an_agent())
            run = await an_ended_run(client)
            await made(client, f"/v1/runs/{run['id']}/fork", {"at_seq": 1})

        told = attributes_of(collector.spans["POST /v1/runs/{run_id}/fork"])
        assert told["http.response.status_code"] == 202
