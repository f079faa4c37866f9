"""Names of tools that vendors refuse, and their way back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.messages import Message, ToolCall
from milepost.core.model import CallDelta, Delta, ModelRequest, RequestedCall, TextDelta, ToolSchema
from milepost.providers.assemble import Assembly
from milepost.providers.http import Http
from milepost.providers.openai import openai
from milepost.providers.wire_names import NAME_CHARS_MAX, WireNames, taken_name
from tests.stubs.raw_server import SSE_HEAD, chunk, serving

TAKEN_BY_EVERY_VENDOR = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def asking(*tools: str, called: str = "") -> ModelRequest:
    calls = (ToolCall("call_1_0", called, {"a": 1}),) if called else ()
    messages = (Message("user", "Hi"), Message("assistant", calls=calls))
    return ModelRequest("t", "m", messages, tools=tuple(ToolSchema(t, "", {}) for t in tools))


def told(*tools: str) -> list[str]:
    """Return the tools' names as vendors get them."""
    request = asking(*tools)
    return [tool.name for tool in WireNames.of(request).outward(request).tools]


def test_names_that_vendors_take_cost_nothing() -> None:
    request, deltas = asking("add", "file-read", called="add"), [TextDelta("Hi")]
    names = WireNames.of(request)

    assert names.outward(request) is request
    assert names.inward([*deltas]) == deltas


@pytest.mark.parametrize(
    ("name", "legible"),
    [
        ("agent:researcher", "agent_researcher_"),
        ("files.read", "files_read_"),
        ("agent:" + "x" * 128, "agent_xxx"),
        ("7up:now", "_7up_now_"),
        ("\N{GREEK SMALL LETTER ALPHA}", "_"),
        ("", ""),
    ],
)
def test_a_name_that_vendors_refuse_stays_legible(name: str, legible: str) -> None:
    assert TAKEN_BY_EVERY_VENDOR.fullmatch(taken_name(name))
    assert taken_name(name).startswith(legible)


def test_a_name_goes_out_the_same_whatever_tools_are_beside_it() -> None:
    assert told("agent:a", "add")[0] == told("files.read", "agent:a")[1]


def test_names_that_look_alike_stay_apart() -> None:
    names = told("agent:a", "agent.a", "agent_a")

    assert len(set(names)) == 3
    assert names[2] == "agent_a"


def test_a_tool_cannot_take_another_ones_place() -> None:
    usurper = taken_name("agent:bank")

    names = told("agent:bank", usurper)

    assert names[1] == usurper
    assert names[0] not in {usurper, "agent:bank"}


def test_the_calls_of_a_conversation_have_the_names_of_its_tools() -> None:
    request = asking("agent:a", called="agent:a")

    sent = WireNames.of(request).outward(request)

    assert sent.messages[1].calls[0].name == sent.tools[0].name
    assert sent.messages[1].calls[0].arguments == {"a": 1}


def test_a_tool_beside_one_that_is_renamed_stays_the_same_thing() -> None:
    """What is made of a tool is kept for as long as it is."""
    request = asking("add", "agent:a")

    assert WireNames.of(request).outward(request).tools[0] is request.tools[0]


def test_a_call_comes_back_under_the_name_that_we_know() -> None:
    request = asking("agent:a")
    names = WireNames.of(request)
    wire = names.outward(request).tools[0].name
    said: list[Delta] = [CallDelta(0, "id", wire), CallDelta(0, arguments="{}"), TextDelta(wire)]

    assert names.inward(said) == [CallDelta(0, "id", "agent:a"), *said[1:]]


@given(st.sets(st.text(max_size=NAME_CHARS_MAX * 2), max_size=8))
def test_whatever_tools_are_called_all_names_are_taken_and_come_back(tools: set[str]) -> None:
    request = asking(*sorted(tools))
    names = WireNames.of(request)
    sent = [tool.name for tool in names.outward(request).tools]

    back = names.inward([CallDelta(0, name=name) for name in sent])

    assert all(TAKEN_BY_EVERY_VENDOR.fullmatch(name) for name in sent)
    assert back == [CallDelta(0, name=name) for name in sorted(tools)]


async def test_an_agent_is_called_as_a_tool_over_the_wire() -> None:
    request = asking("agent:researcher")
    wire = taken_name("agent:researcher")
    call = {"index": 0, "id": "call_7", "function": {"name": wire, "arguments": "{}"}}
    assembly = Assembly()

    async with (
        serving((SSE_HEAD, chunk({"tool_calls": [call]}), chunk({}, "tool_calls"))) as stub,
        Http() as http,
    ):
        async for delta in openai(http, base_url=stub.base_url, api_key=None).stream(request):
            assembly.feed(delta)

    (sent,) = stub.requests
    assert sent.body["tools"] == [
        {"type": "function", "function": {"name": wire, "description": "", "parameters": {}}}
    ]
    assert assembly.reply().calls == (RequestedCall("call_7", "agent:researcher", "{}"),)
