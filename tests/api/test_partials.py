"""Structured answers over HTTP while they are written, for those who ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import orjson
import pytest

from milepost import Milepost
from tests.api.asking import ended, events, started
from tests.api.serving import serving, settings_for
from tests.live.client import Sent, parsed
from tests.stubs.openai_server import LAST_FRAME, TOOL_RESULTS, Answers, framed, serving_answers

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
VALUE = {"city": "Lyon", "days": 3}
CLERK = {"name": "clerk", "model": "openai/stub", "response_format": {"schema": SCHEMA}}
PLAIN = {"name": "plain", "model": "openai/stub"}


def said(*pieces: str) -> Answers:
    """Return a model that says this, whatever it is asked."""
    chunks = [({"content": piece}, None) for piece in pieces]
    bodies = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in [*chunks, ({}, "stop")]
    ]
    told = [framed(b"data: " + orjson.dumps(body) + b"\n\n") for body in bodies]
    answer = (*told, framed(b"data: [DONE]\n\n"), LAST_FRAME)
    return Answers(answer, answer, TOOL_RESULTS)


@asynccontextmanager
async def talking(database_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve agents whose model writes its answer slowly."""
    pieces = ('{"city": "Ly', 'on", ', '"days": ', "3}")
    async with (
        serving_answers(said(*pieces), token_delay_s=0.15) as base_url,
        serving(settings_for(database_url, OPENAI_BASE_URL=base_url)) as service,
        service.client() as client,
    ):
        for agent in (CLERK, PLAIN):
            answer = await client.post("/v1/agents", json=agent)
            assert answer.status_code == 201, answer.text
        yield client


def partials(sent: list[Sent]) -> list[Any]:
    return [each.data["value"] for each in sent if each.event == "output.partial"]


async def followed(client: httpx2.AsyncClient, run_id: str, query: str) -> list[Sent]:
    answer = await client.get(f"/v1/runs/{run_id}/events?{query}")
    return parsed(answer.content)


async def test_the_value_of_a_structured_answer_grows_in_the_stream(
    sqlite_database_url: str,
) -> None:
    async with talking(sqlite_database_url) as client:
        run_id = await started(client, "Where to?", agent="clerk")
        sent = await followed(client, run_id, "partials=true")
        log = await events(client, run_id)
        run = await ended(client, run_id)

    grown = partials(sent)
    assert grown[0] == {"city": "Ly"}
    assert {"city": "Lyon"} in grown
    assert all(value.items() <= VALUE.items() for value in grown[1:])
    assert run["output"]["parsed"] == VALUE
    assert "output.partial" not in {event["type"] for event in log}


async def test_a_run_without_a_schema_has_no_values(sqlite_database_url: str) -> None:
    async with talking(sqlite_database_url) as client:
        run_id = await started(client, "Where to?", agent="plain")

        sent = await followed(client, run_id, "partials=true")

    assert [each.event for each in sent].count("message.delta") > 1
    assert partials(sent) == []


async def test_a_run_s_own_schema_counts_as_its_agent_s_does(sqlite_database_url: str) -> None:
    async with talking(sqlite_database_url) as client:
        own = {"response_format": {"schema": SCHEMA}}
        run_id = await started(client, "Where to?", agent="plain", **own)

        assert partials(await followed(client, run_id, "partials=true"))


async def test_whoever_starts_a_run_may_stream_its_values_at_once(
    sqlite_database_url: str,
) -> None:
    body = {"agent": "clerk", "input": "Where to?", "stream": True}
    async with talking(sqlite_database_url) as client:
        answer = await client.post("/v1/runs?partials=true", json=body)
        silent = await client.post("/v1/runs", json=body)

    assert {"city": "Lyon"} in partials(parsed(answer.content))
    assert partials(parsed(silent.content)) == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wish_for_values_that_cannot_be_read_is_refused_before_anything_is_done(
    sqlite_database_url: str, method: str
) -> None:
    settings = settings_for(sqlite_database_url, slots=0)
    async with serving(settings) as service, service.client() as client:
        run_id = await started(client, "hi")
        path = f"/v1/runs/{run_id}/events" if method == "GET" else "/v1/runs"
        body = {"agent": "demo", "input": "hi"} if method == "POST" else None

        answer = await client.request(method, f"{path}?partials=maybe", json=body)

        runs = (await client.get("/v1/runs")).json()["data"]
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")
    assert [run["id"] for run in runs] == [run_id]


async def test_a_direct_call_of_a_tool_has_no_values(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/tools/add/call", json={"arguments": {"a": 1, "b": 2}})

    sent = await followed(client, answer.json()["run_id"], "partials=true")

    assert sent[-1].event == "run.completed"
    assert partials(sent) == []


async def test_the_client_library_passes_values_on(sqlite_database_url: str) -> None:
    async with (
        talking(sqlite_database_url) as client,
        Milepost(str(client.base_url)) as milepost,
    ):
        run = await milepost.runs.create("clerk", "Where to?")
        stream = milepost.runs.stream(run.id, types=["output.partial"], partials=True)
        values = [event.data["value"] async for event in stream]

    assert {"city": "Lyon"} in values
