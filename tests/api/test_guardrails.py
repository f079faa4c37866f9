"""Guardrails through the service: what reaches the model, the client and the tools."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.asking import ended, events
from tests.api.making import made, refusal
from tests.api.serving import serving, settings_for
from tests.stubs.directed_model import DirectedModel, directed_model

MAIL = "ann@example.com"
WRITE = f"Write to {MAIL} about lunch."
TOOLS = """
from pathlib import Path

from milepost.tools import tool


@tool
def send(to: str) -> str:
    \"\"\"Send a mail.\"\"\"
    with Path("sent.txt").open("a") as sent:
        sent.write(to)
    return f"Sent to {to} for bob@example.com."
"""
RAILS = """
from milepost.guardrails import Block, rail


@rail
def polite(subject):
    return None if "please" in subject.text.lower() else Block("no word of politeness")
"""


@pytest.fixture
async def model() -> AsyncIterator[DirectedModel]:
    """A model that calls what the user says, and else repeats it."""
    async with directed_model() as model:
        yield model


@pytest.fixture
async def client(
    database_url: str, model: DirectedModel, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service that has a tool, and a guardrail of its own."""
    (tmp_path / "shop_tools.py").write_text(TOOLS)
    (tmp_path / "shop_rails.py").write_text(RAILS)
    settings = settings_for(
        database_url,
        tools=str(tmp_path / "shop_tools.py"),
        guardrails=str(tmp_path / "shop_rails.py"),
        OPENAI_BASE_URL=model.base_url,
    )
    async with serving(settings) as service, service.client() as client:
        yield client


def an_agent(**guardrails: Any) -> dict[str, Any]:
    """Return the body of an agent with these guardrails."""
    return {
        "name": "clerk", "model": "openai/directed", "tools": ["send"], "guardrails": guardrails
    }  # fmt: skip


async def run(client: httpx2.AsyncClient, said: str, **more: Any) -> dict[str, Any]:
    """Have the agent answer, and return the run once it is over."""
    begun = await made(client, "/v1/runs", {"agent": "clerk", "input": said, **more})
    return await ended(client, begun["id"])


async def streamed(client: httpx2.AsyncClient, said: str) -> tuple[str, dict[str, Any]]:
    """Follow a run while it answers; return what was shown, piece by piece, and the answer."""
    begun = await made(client, "/v1/runs", {"agent": "clerk", "input": said})
    followed = await client.get(f"/v1/runs/{begun['id']}/events")
    frames = [frame.split("data: ") for frame in followed.text.split("\n\n")]
    named = [(frame[0], json.loads(frame[1])["data"]) for frame in frames if len(frame) > 1]
    shown = "".join(told["text"] for name, told in named if "message.delta" in name)
    return shown, next(told for name, told in named if "message.completed" in name)


def told(model: DirectedModel) -> list[tuple[str, str]]:
    """Return what the model was shown last."""
    return [(turn["role"], turn["content"]) for turn in model.requests[-1]["messages"]]


async def test_a_blocked_input_never_reaches_the_model(
    client: httpx2.AsyncClient, model: DirectedModel
) -> None:
    await made(client, "/v1/agents", an_agent(input=[{"type": "pii", "action": "block"}]))

    over = await run(client, WRITE)

    assert model.requests == []
    assert (over["status"], over["finish_reason"]) == ("incomplete", "guardrail")
    [stepped_in] = [
        event["data"]
        for event in await events(client, over["id"])
        if event["type"] == "guardrail.triggered"
    ]
    assert stepped_in == {
        "guardrail": "pii", "action": "blocked", "reason": "an e-mail address",
        "call_id": None, "place": "input",
    }  # fmt: skip


async def test_a_rewritten_input_is_what_the_model_and_the_session_have(
    client: httpx2.AsyncClient, model: DirectedModel
) -> None:
    await made(client, "/v1/agents", an_agent(input=[{"type": "pii"}]))
    first = await run(client, WRITE)

    await run(client, "And then?", session_id=first["session_id"])

    said = (await client.get(f"/v1/sessions/{first['session_id']}/messages")).text
    assert told(model)[0] == ("user", "Write to [email] about lunch.")
    assert told(model)[-1] == ("user", "And then?")
    assert MAIL not in str(model.requests)
    assert MAIL not in said
    assert "Write to [email] about lunch." in said


async def test_a_blocked_answer_is_never_seen_on_the_stream(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent(output=[{"type": "pii", "action": "block"}]))

    shown, answer = await streamed(client, f"slowly 5\n{WRITE}")

    assert shown == answer["content"] == "said: slowly 5 Write to [blocked by the guardrail pii]"
    assert answer["finish_reason"] == "content_filter"


async def test_whoever_joins_what_is_shown_has_the_answer_as_it_was_rewritten(
    client: httpx2.AsyncClient,
) -> None:
    await made(client, "/v1/agents", an_agent(output=[{"type": "pii"}]))

    shown, answer = await streamed(client, f"slowly 5\n{WRITE}")

    assert shown == answer["content"] == "said: slowly 5 Write to [email] about lunch. "


async def test_a_call_with_blocked_arguments_is_not_made_and_the_model_is_told(
    client: httpx2.AsyncClient, model: DirectedModel, tmp_path: Path
) -> None:
    rails = [{"type": "pii", "action": "block", "tools": ["send"]}]
    await made(client, "/v1/agents", an_agent(tool_arguments=rails))

    over = await run(client, f'call send {{"to": "{MAIL}"}}')

    assert not (tmp_path / "sent.txt").exists()
    assert over["status"] == "completed"
    assert told(model)[-1] == (
        "tool",
        "Error (guardrail_blocked): the guardrail pii refused it: an e-mail address",
    )


async def test_a_result_is_read_as_it_was_rewritten(
    client: httpx2.AsyncClient, model: DirectedModel, tmp_path: Path
) -> None:
    await made(client, "/v1/agents", an_agent(tool_results=[{"type": "pii"}]))

    over = await run(client, f'call send {{"to": "{MAIL}"}}')

    assert (tmp_path / "sent.txt").read_text() == MAIL
    assert told(model)[-1] == ("tool", "Sent to [email] for [email].")
    assert over["output"]["text"].strip() == "said: Sent to [email] for [email]."


async def test_a_tool_that_is_tried_under_an_agent_s_rules_has_its_guardrails(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    rails = an_agent(input=[{"type": "pii", "action": "block"}], tool_results=[{"type": "pii"}])
    await made(client, "/v1/agents", rails)

    tried = await made(client, "/v1/tools/send/call", {"arguments": {"to": MAIL}, "agent": "clerk"})

    assert (tmp_path / "sent.txt").read_text() == MAIL
    assert "Sent to [email] for [email]." in str(tried)
    assert MAIL not in str(tried.get("result", tried))


async def test_a_call_that_could_not_be_judged_is_not_made_where_that_is_said(
    client: httpx2.AsyncClient, model: DirectedModel, tmp_path: Path
) -> None:
    await made(client, "/v1/agents", an_agent(coherence={"on_error": "block"}))

    over = await run(client, f'call send {{"to": "{MAIL}"}}')

    question = next(asked for asked in model.requests if "conversation" in str(asked))
    assert not (tmp_path / "sent.txt").exists()
    assert "tools" not in question
    assert over["usage"]["model_calls"] == 3


async def test_a_guardrail_of_the_installation_s_own_is_asked(
    client: httpx2.AsyncClient, model: DirectedModel
) -> None:
    await made(client, "/v1/agents", an_agent(input=[{"type": "python", "name": "polite"}]))

    rude = await run(client, "Write!")
    polite = await run(client, "Please write.")

    assert (rude["status"], polite["status"]) == ("incomplete", "completed")
    assert len(model.requests) == 1


async def test_an_agent_shows_its_guardrails_and_they_may_be_changed(
    client: httpx2.AsyncClient,
) -> None:
    shown = await made(client, "/v1/agents", an_agent(output=[{"type": "topics", "words": ["x"]}]))

    again = await client.patch("/v1/agents/clerk", json={"guardrails": shown["guardrails"]})
    gone = await client.patch("/v1/agents/clerk", json={"guardrails": None})

    assert shown["guardrails"] == {
        "input": [],
        "output": [
            {"type": "topics", "words": ["x"], "action": "block", "replacement": "[removed]",
             "tools": []}
        ],
        "tool_arguments": [], "tool_results": [], "coherence": None, "hold_output": False,
    }  # fmt: skip
    assert again.json()["version"] == 1
    assert (gone.json()["version"], gone.json()["guardrails"]) == (2, None)


@pytest.mark.parametrize(
    ("rail", "code", "pointer"),
    [
        ({"type": "python", "name": "rude"}, "unknown_guardrail", "/guardrails/input/0/name"),
        ({"type": "regex", "pattern": "(a+)+$"}, "invalid_guardrail", "/guardrails/input/0"),
        ({"type": "magic"}, "invalid_request", "/guardrails/input/0"),
    ],
)
async def test_a_guardrail_that_cannot_be_is_refused(
    client: httpx2.AsyncClient, rail: dict[str, Any], code: str, pointer: str
) -> None:
    answer = await client.post("/v1/agents", json=an_agent(input=[rail]))

    assert refusal(answer) == (422, code)
    assert answer.json()["errors"][0]["pointer"] == pointer
