"""A real model behind the service: what is asserted is the protocol, never the wording."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

pytestmark = [pytest.mark.real_llm, pytest.mark.timeout(300)]

CALM = {"temperature": 0.0, "max_output_tokens": 120}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colour": {"enum": ["red", "green", "blue"]},
    },
    "required": ["name", "age", "colour"],
    "additionalProperties": False,
}
IDLE_S = 10
STORY = "Write a long story about a robot who learns to paint."


async def agent(client: httpx2.AsyncClient, wire: str = "chat", **rest: Any) -> str:
    """Make an agent of the model and return its name."""
    body = {"name": f"small-{wire}", "model": f"{wire}/smollm2", "limits": CALM, **rest}
    made = await client.post("/v1/agents", json=body)
    assert made.status_code == 201, made.text
    name: str = made.json()["name"]
    return name


async def ran(client: httpx2.AsyncClient, name: str, said: str, **rest: Any) -> dict[str, Any]:
    """Run the agent to its end and return the run."""
    made = await client.post("/v1/runs", json={"agent": name, "input": said, **rest})
    assert made.status_code == 202, made.text
    run: dict[str, Any] = (await client.get(f"/v1/runs/{made.json()['id']}/wait")).json()
    return run


async def streamed(client: httpx2.AsyncClient, name: str, said: str) -> list[dict[str, Any]]:
    """Run the agent and return what its stream said, frame by frame."""
    body = {"agent": name, "input": said, "stream": True}
    async with client.stream("POST", "/v1/runs", json=body) as answer:
        return [
            json.loads(line.removeprefix("data:"))
            async for line in answer.aiter_lines()
            if line.startswith("data:")
        ]


def of(frames: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return what the frames of this kind hold."""
    return [frame["data"] for frame in frames if frame["type"] == kind]


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_a_question_is_answered_over_every_wire(
    client: httpx2.AsyncClient, wire: str
) -> None:
    run = await ran(client, await agent(client, wire), "What is the capital of France?")

    assert run["status"] in {"completed", "incomplete"}, run
    assert run["output"]["text"]
    assert run["usage"]["input_tokens"] > 5
    assert run["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_text_streams_as_it_is_made_and_adds_up_to_the_message(
    client: httpx2.AsyncClient, wire: str
) -> None:
    frames = await streamed(client, await agent(client, wire), STORY)

    deltas = of(frames, "message.delta")
    [message] = of(frames, "message.completed")
    assert len(deltas) >= 3, "it comes in pieces"
    assert "".join(delta["text"] for delta in deltas) == message["content"]
    assert frames[-1]["type"] in {"run.completed", "run.incomplete"}


async def test_a_tool_is_called_and_its_result_goes_back(client: httpx2.AsyncClient) -> None:
    name = await agent(client, tools=["add"])

    frames = await streamed(client, name, "Add 17 and 25")

    called = of(frames, "tool_call.requested")
    assert {call["name"] for call in called} == {"add"}
    assert of(frames, "tool_call.completed"), frames
    assert frames[-1]["type"] in {"run.completed", "run.incomplete"}
    assert len(of(frames, "message.completed")) >= 2, "the model saw the result"


async def test_an_answer_fits_the_schema_that_was_asked_for(client: httpx2.AsyncClient) -> None:
    run = await ran(
        client, await agent(client), "Invent a person.", response_format={"schema": PERSON}
    )

    assert run["status"] == "completed", run
    person = run["output"]["parsed"]
    assert set(person) == {"name", "age", "colour"}
    assert person["colour"] in {"red", "green", "blue"}


async def test_a_cancelled_run_stops_the_model_in_the_middle(
    client: httpx2.AsyncClient, model: str
) -> None:
    limits = {"temperature": 0.0, "max_output_tokens": 3_000}
    name = await agent(client, limits=limits)
    body = {"agent": name, "input": STORY, "stream": True}
    kinds: list[str] = []
    async with client.stream("POST", "/v1/runs", json=body) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data:"):
                continue
            frame = json.loads(line.removeprefix("data:"))
            if frame["type"] == "message.delta" and "message.delta" not in kinds:
                await client.post(f"/v1/runs/{frame['run_id']}/cancel", json={"reason": "enough"})
            kinds.append(frame["type"])

    assert kinds[-1] == "run.cancelled"
    assert "message.completed" not in kinds
    async with httpx2.AsyncClient() as outside, asyncio.timeout(IDLE_S):
        while any(slot["is_processing"] for slot in (await outside.get(f"{model}/slots")).json()):
            pass  # The model notices at its next token that nobody listens.


async def test_a_gated_call_waits_for_a_person_and_then_runs(client: httpx2.AsyncClient) -> None:
    name = await agent(client, tools=["add"], policy={"ask": ["add"]})
    made = await client.post("/v1/runs", json={"agent": name, "input": "Add 17 and 25"})
    run_id = made.json()["id"]
    await client.get(f"/v1/runs/{run_id}/events?until=waiting")

    [approval] = (await client.get(f"/v1/approvals?run_id={run_id}")).json()["data"]
    decided = await client.post(
        f"/v1/approvals/{approval['id']}/decision", json={"decision": "approve"}
    )
    run = (await client.get(f"/v1/runs/{run_id}/wait")).json()

    assert decided.status_code == 200, decided.text
    assert approval["tool"] == "add"
    assert run["status"] in {"completed", "incomplete", "waiting"}, run
    events = await client.get(f"/v1/runs/{run_id}/events", headers={"accept": "application/json"})
    types = [event["type"] for event in events.json()["data"]]
    assert types.index("approval.decided") < types.index("tool_call.completed")
