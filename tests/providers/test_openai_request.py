"""Requests on the Chat Completions wire."""

from typing import Any

import orjson
import pytest

from milepost.core.json import Json
from milepost.core.messages import Message, ToolCall
from milepost.core.model import ModelRequest, ToolSchema
from milepost.providers.openai_request import TokensField, encode


def encoded(request: ModelRequest, tokens_field: TokensField = "max_tokens") -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(encode(request, tokens_field))
    return body


def messages(*said: Message) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = encoded(ModelRequest("t", "m", said))["messages"]
    return sent


def asked(call_id: str, provider_id: str = "") -> Message:
    return Message("assistant", calls=(ToolCall(call_id, "add", {"a": 1}, provider_id),))


def wire_ids(*said: Message) -> list[tuple[str, str]]:
    """Return each call's id on the wire, with the one of the result that follows it."""
    sent = messages(*said)
    calls = [message["tool_calls"][0]["id"] for message in sent if "tool_calls" in message]
    results = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    return list(zip(calls, results, strict=True))


def test_a_plain_request_asks_for_a_stream_with_usage_and_for_nothing_else() -> None:
    request = ModelRequest("t", "gpt-5-mini", (Message("system", "Be kind"), Message("user", "Hi")))

    assert encoded(request) == {
        "model": "gpt-5-mini",
        "messages": [
            {"role": "system", "content": "Be kind"},
            {"role": "user", "content": "Hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("tokens_field", ["max_tokens", "max_completion_tokens"])
def test_sampling_and_the_bound_on_tokens_are_sent_when_set(tokens_field: TokensField) -> None:
    request = ModelRequest("t", "m", (), temperature=0.0, tokens_max=50)

    body = encoded(request, tokens_field)

    assert (body["temperature"], body[tokens_field]) == (0.0, 50)


def test_tools_are_sent_as_functions() -> None:
    schema: dict[str, Json] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = ModelRequest("t", "m", (), tools=(ToolSchema("add", "Add", schema),))

    assert encoded(request)["tools"] == [
        {
            "type": "function",
            "function": {"name": "add", "description": "Add", "parameters": schema},
        }
    ]


def test_an_array_of_anything_says_so() -> None:
    schema: dict[str, Json] = {"type": "object", "properties": {"all": {"type": "array"}}}
    request = ModelRequest("t", "m", (), tools=(ToolSchema("sum", "Sum", schema),))

    [sent] = encoded(request)["tools"]

    assert sent["function"]["parameters"]["properties"]["all"] == {"type": "array", "items": {}}


def test_a_call_and_its_result_share_the_vendors_id() -> None:
    assert messages(asked("call_1_0", "vendor_7"), Message("tool", "2", call_id="call_1_0")) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "vendor_7",
                    "type": "function",
                    "function": {"name": "add", "arguments": '{"a":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "vendor_7", "content": "2"},
    ]


def test_a_call_without_a_vendors_id_has_ours() -> None:
    ids = wire_ids(asked("call_1_0"), Message("tool", "2", call_id="call_1_0"))

    assert ids == [("call_1_0", "call_1_0")]


def test_ids_that_the_model_or_another_run_repeats_are_made_unique() -> None:
    turn = (asked("call_1_0", "same"), Message("tool", "2", call_id="call_1_0"))

    ids = wire_ids(*turn, *turn, *turn)

    assert ids == [("same", "same"), ("call_1_0", "call_1_0"), ("call_1_0_2", "call_1_0_2")]


def test_parallel_calls_of_one_id_get_their_own_results() -> None:
    calls = (ToolCall("call_1_0", "add", {}, "same"), ToolCall("call_1_1", "add", {}, "same"))
    results = (
        Message("tool", "first", call_id="call_1_0"),
        Message("tool", "second", call_id="call_1_1"),
    )

    sent = messages(Message("assistant", calls=calls), *results)

    assert [call["id"] for call in sent[0]["tool_calls"]] == ["same", "call_1_1"]
    assert [message["tool_call_id"] for message in sent[1:]] == ["same", "call_1_1"]


def test_a_longer_conversation_begins_with_the_ids_of_a_shorter_one() -> None:
    turn = (asked("call_1_0", "same"), Message("tool", "2", call_id="call_1_0"))

    assert messages(*turn, *turn)[:2] == messages(*turn)


def test_malformed_arguments_go_back_as_an_empty_object() -> None:
    call = ToolCall("call_1_0", "add", {}, malformed='{"a":')

    sent = messages(Message("assistant", "Let me add.", (call,)))

    assert sent[0]["content"] == "Let me add."
    assert sent[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_an_answer_without_words_stays_a_text() -> None:
    assert messages(Message("assistant")) == [{"role": "assistant", "content": ""}]
