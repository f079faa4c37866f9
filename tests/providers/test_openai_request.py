"""Requests on the Chat Completions wire."""

from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from milepost.core.json import Json
from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.openai_request import ChatEncoder, Dialect, ReasoningField, TokensField
from tests.providers.openai_sdk import CHAT, as_declared, sent_by_the_client

PIXEL = Image("data:image/png;base64,iVBORw0KGgo=")
PHOTO = Image("https://example.com/photo.jpg")
ADD = ToolSchema(
    "add",
    "Add",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)


class City(BaseModel):
    name: str
    country: str | None = None


def encoded(
    request: ModelRequest,
    tokens_field: TokensField = "max_tokens",
    reasoning_field: ReasoningField | None = None,
) -> dict[str, Any]:
    encoder = ChatEncoder(Dialect(tokens_field, reasoning_field))
    body: dict[str, Any] = orjson.loads(encoder.encode(request))
    return body


def messages(*said: Message, reasoning_field: ReasoningField | None = None) -> list[dict[str, Any]]:
    body = encoded(ModelRequest("t", "m", said), reasoning_field=reasoning_field)
    sent: list[dict[str, Any]] = body["messages"]
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


# --- What was chosen --------------------------------------------------------------------------


def test_all_that_shapes_a_reply_is_sent_when_it_is_set() -> None:
    request = ModelRequest(
        "t", "m", (), tools=(ADD,), top_p=0.9, stop=("END", "\n\n"), reasoning_effort="low",
        parallel_tools=False,
    )  # fmt: skip

    body = encoded(request)

    assert (body["top_p"], body["stop"]) == (0.9, ["END", "\n\n"])
    assert (body["reasoning_effort"], body["parallel_tool_calls"]) == ("low", False)


def test_nothing_is_said_of_parallel_calls_where_there_are_no_tools() -> None:
    """OpenAI refuses it."""
    assert "parallel_tool_calls" not in encoded(ModelRequest("t", "m", (), parallel_tools=True))


def test_a_tool_is_written_once_for_all_requests() -> None:
    request = ModelRequest("t", "m", (), tools=(ADD,))
    encoder = ChatEncoder(Dialect("max_tokens"))

    assert encoder.encode(request) == encoder.encode(request)


# --- Pictures ---------------------------------------------------------------------------------


def test_pictures_stand_before_the_text() -> None:
    assert messages(Message("user", "What is this?", images=(PIXEL, PHOTO))) == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": PIXEL.url}},
                {"type": "image_url", "image_url": {"url": PHOTO.url}},
                {"type": "text", "text": "What is this?"},
            ],
        }
    ]


def test_a_picture_needs_no_words() -> None:
    (sent,) = messages(Message("user", images=(PIXEL,)))

    assert sent["content"] == [{"type": "image_url", "image_url": {"url": PIXEL.url}}]


# --- Answers of a shape -----------------------------------------------------------------------


def test_an_answer_is_held_to_a_schema_that_the_vendor_can_hold_it_to() -> None:
    wanted = ResponseFormat(City.model_json_schema(), "City of the year")

    sent = encoded(ModelRequest("t", "m", (), response_format=wanted))["response_format"]

    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["strict"] is True
    assert sent["json_schema"]["schema"]["required"] == ["name", "country"]
    assert sent["json_schema"]["name"].startswith("City_of_the_year_")


def test_a_schema_that_the_vendor_cannot_hold_an_answer_to_guides_it_still() -> None:
    schema: dict[str, Json] = {"type": "object", "additionalProperties": {"type": "integer"}}
    request = ModelRequest("t", "m", (), response_format=ResponseFormat(schema))

    assert encoded(request)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema, "strict": False},
    }


# --- Reasoning --------------------------------------------------------------------------------

THOUGHT = Sealed("openai", {"reasoning": "17 and 25, so 42."})


def thinking(*sealed: Sealed) -> Message:
    return Message("assistant", calls=(ToolCall("call_1_0", "add", {"a": 1}),), sealed=sealed)


def test_reasoning_is_not_sent_back_to_who_did_not_ask_for_it() -> None:
    (sent,) = messages(thinking(THOUGHT))

    assert set(sent) == {"role", "content", "tool_calls"}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_back_beside_the_calls_that_it_led_to(field: ReasoningField) -> None:
    (sent,) = messages(thinking(THOUGHT), reasoning_field=field)

    assert sent[field] == "17 and 25, so 42."


@pytest.mark.parametrize(
    "sealed", [(), (Sealed("anthropic", {"reasoning": "x"}),), (Sealed("openai", {"other": "x"}),)]
)
def test_a_call_without_a_thought_says_so_to_who_insists(sealed: tuple[Sealed, ...]) -> None:
    (sent,) = messages(thinking(*sealed), reasoning_field="reasoning_content")

    assert sent["reasoning_content"] == ""


def test_an_answer_needs_no_reasoning() -> None:
    (sent,) = messages(
        Message("assistant", "42", sealed=(THOUGHT,)), reasoning_field="reasoning_content"
    )

    assert sent == {"role": "assistant", "content": "42"}


# --- Beside the vendor's own client -----------------------------------------------------------

EVERYTHING = ModelRequest(
    "t",
    "gpt-5-mini",
    (
        Message("system", "Be kind"),
        Message("user", "What is this?", images=(PIXEL, PHOTO)),
        Message("assistant", "Let me add.", (ToolCall("call_1_0", "add", {"a": 1}, "id_a"),)),
        Message("tool", "2", call_id="call_1_0"),
        Message("assistant", "2"),
        Message("user", "Thanks"),
    ),
    tools=(ADD,),
    temperature=0.5,
    tokens_max=100,
    top_p=0.9,
    stop=("END",),
    reasoning_effort="low",
    parallel_tools=True,
    response_format=ResponseFormat(City.model_json_schema(), "City"),
)


def test_all_that_we_send_is_declared_by_the_vendors_client() -> None:
    body = encoded(EVERYTHING, "max_completion_tokens")

    assert as_declared(CHAT, body) == body


async def test_we_send_what_the_vendors_client_sends() -> None:
    async def ask(client: AsyncOpenAI) -> None:
        async with client.chat.completions.stream(
            model="gpt-5-mini",
            messages=[
                {"role": "system", "content": "Be kind"},
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": PIXEL.url}},
                        {"type": "image_url", "image_url": {"url": PHOTO.url}},
                        {"type": "text", "text": "What is this?"},
                    ],
                },
                {
                    "role": "assistant",
                    "content": "Let me add.",
                    "tool_calls": [
                        {
                            "id": "id_a",
                            "type": "function",
                            "function": {"name": "add", "arguments": '{"a":1}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "id_a", "content": "2"},
                {"role": "assistant", "content": "2"},
                {"role": "user", "content": "Thanks"},
            ],
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": "add",
                        "description": "Add",
                        "parameters": dict(ADD.parameters),
                    },
                }
            ],
            temperature=0.5,
            max_completion_tokens=100,
            top_p=0.9,
            stop=["END"],
            reasoning_effort="low",
            parallel_tool_calls=True,
            response_format=City,
            stream_options={"include_usage": True},
        ):
            pass

    assert encoded(EVERYTHING, "max_completion_tokens") == await sent_by_the_client(ask)
