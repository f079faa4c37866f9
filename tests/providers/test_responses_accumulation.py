"""Streams of the Responses API, summed up by us and by the vendor's own client."""

from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ParsedResponse

from milepost.core.messages import Message, ToolCall
from milepost.core.model import ModelRequest, Reply
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.failures import Failures
from milepost.providers.http import Http
from milepost.providers.payload import TOKENS_MAX
from milepost.providers.responses import responses
from milepost.providers.responses_events import Events
from milepost.providers.responses_request import ResponsesEncoder
from tests.providers.openai_sdk import client_of
from tests.stubs import responses_server
from tests.stubs.responses_server import EVENTS, Script, usage

SEAL = "responses:openai"


def by_us(events: Sequence[dict[str, Any]]) -> Reply:
    decoder, assembly = Events(Failures("openai", None), SEAL), Assembly()
    for event in events:
        whole = EVENTS.dump_json(EVENTS.validate_python(event), by_alias=True)
        for delta in decoder.decode(whole):
            assembly.feed(delta)
    assembly.feed(decoder.finish())
    return assembly.reply()


def by_the_client(events: Sequence[dict[str, Any]]) -> ParsedResponse[Any]:
    state = ResponseStreamState[Any](input_tools=omit, text_format=omit)
    told: Any = None
    for event in events:
        for each in state.handle_event(EVENTS.validate_python(event)):
            told = each
    whole: ParsedResponse[Any] = told.response
    return whole


def assert_same(ours: Reply, theirs: ParsedResponse[Any]) -> None:
    calls = [item for item in theirs.output if item.type == "function_call"]
    thoughts = [
        part.text for item in theirs.output if item.type == "reasoning" for part in item.summary
    ]
    said = [part for item in theirs.output if item.type == "message" for part in item.content]
    assert ours.text == "".join(
        part.text if part.type == "output_text" else part.refusal for part in said
    )
    assert ours.reasoning == "\n\n".join(thought for thought in thoughts if thought)
    assert [(call.provider_id, call.name, call.arguments) for call in ours.calls] == [
        (call.call_id, call.name, call.arguments.strip() or "{}") for call in calls
    ]
    assert (ours.response_id, ours.model) == (theirs.id, theirs.model)
    assert theirs.usage is not None
    assert ours.usage == usage_of(theirs.usage.model_dump())


def usage_of(told: dict[str, Any]) -> Usage:
    read, written = told["input_tokens_details"], told["output_tokens_details"]
    return Usage(
        told["input_tokens"],
        told["output_tokens"],
        read["cached_tokens"],
        read["cache_write_tokens"],
        written["reasoning_tokens"],
    )


TEXTS = st.text(max_size=5)
PIECES = st.lists(TEXTS, max_size=3).map(tuple)
NAMES = st.sampled_from(["add", "look"])
COUNTS = st.integers(0, TOKENS_MAX)
PROMPTS = st.integers(1, TOKENS_MAX)
PHASES = st.sampled_from([None, "commentary", "final_answer"])


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A well-formed stream of thoughts, texts, refusals, and calls that come in turns."""
    script = Script()
    for kind in draw(st.lists(st.sampled_from(["thought", "message", "refusal", "calls"]))):
        match kind:
            case "thought":
                script.thought(*draw(st.lists(PIECES, max_size=2)))
            case "message":
                script.message(*draw(PIECES), phase=draw(PHASES))
            case "refusal":
                script.message(*draw(PIECES), refusing=True)
            case _:
                script.calls(*draw(st.lists(st.tuples(NAMES, PIECES), min_size=1, max_size=3)))
    took = usage(
        draw(PROMPTS),
        draw(COUNTS),
        cached=draw(COUNTS),
        written=draw(COUNTS),
        reasoning=draw(COUNTS),
    )
    return script.end(draw(st.sampled_from(["completed", "incomplete"])), usage=took)


@given(streams())
def test_we_add_up_to_what_the_vendors_client_adds_up_to(events: list[dict[str, Any]]) -> None:
    assert_same(by_us(events), by_the_client(events))


def sent_back(reply: Reply) -> list[tuple[str, ...]]:
    """Return what goes out when the conversation goes on after `reply`."""
    calls = tuple(
        ToolCall(f"call_1_{n}", call.name, {}, call.provider_id)
        for n, call in enumerate(reply.calls)
    )
    message = Message("assistant", reply.text, calls, sealed=reply.sealed)
    body = ResponsesEncoder(SEAL).encode(ModelRequest("t", "m", (message,)))
    return [outlined(item) for item in orjson.loads(body)["input"]]


def outlined(item: dict[str, Any]) -> tuple[str, ...]:
    match item["type"]:
        case "message":
            content = item["content"]
            told = content if isinstance(content, list) else [{"text": content}]
            text = "".join(part.get("text") or part.get("refusal") or "" for part in told)
            return "message", text, item.get("phase") or ""
        case "reasoning":
            return "reasoning", item["id"], item["encrypted_content"]
        case _:
            return item["type"], item["call_id"], item["name"]


@given(streams())
def test_what_was_said_with_thoughts_goes_back_in_its_order(events: list[dict[str, Any]]) -> None:
    reply = by_us(events)
    said = [outlined(item) for item in events[-1]["response"]["output"]]
    said = [item for item in said if item[:2] != ("message", "")]
    while said and said[-1][0] == "reasoning":
        said.pop()  # A thought that led to nothing.

    assert not reply.sealed or sent_back(reply) == said


async def test_both_hear_the_same_from_one_server() -> None:
    request = ModelRequest("t", "m", (Message("user", "What is 17 + 25?"),))
    assembly = Assembly()
    async with (
        responses_server.serving(tokens=5) as base_url,
        Http() as http,
        client_of(base_url) as client,
    ):
        async for delta in responses(http, base_url=base_url, api_key=None).stream(request):
            assembly.feed(delta)
        async with client.responses.stream(model="m", input="What is 17 + 25?") as stream:
            theirs = await stream.get_final_response()

    assert_same(assembly.reply(), theirs)
    assert assembly.reply().reasoning
    assert assembly.reply().calls
