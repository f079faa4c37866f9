"""Requests on the Responses wire."""

from typing import Any

import orjson
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from milepost.core.errors import ProviderError
from milepost.core.json import Json
from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.responses_request import ReasoningSummary, ResponsesEncoder
from tests.providers.openai_sdk import RESPONSES, as_declared, sent_by_the_client
from tests.stubs.responses_server import Script

SEAL = "responses:openai"
PIXEL = Image("data:image/png;base64,iVBORw0KGgo=")
PHOTO = Image("https://example.com/photo.jpg")
PARAMETERS: dict[str, Json] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ADD = ToolSchema("add", "Add", PARAMETERS)
LOOK = ToolSchema("look", "Look", {"type": "object", "properties": {"at": {"type": "string"}}})
THOUGHT: dict[str, Json] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "encrypted_content": "gAAAA",
}


class City(BaseModel):
    name: str
    country: str | None = None


def encoded(request: ModelRequest, summary: ReasoningSummary | None = None) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(ResponsesEncoder(SEAL, summary).encode(request))
    return body


def items(*said: Message) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = encoded(ModelRequest("t", "m", said))["input"]
    return sent


def asked(call_id: str, provider_id: str = "", *sealed: Sealed) -> Message:
    call = ToolCall(call_id, "add", {"a": 1}, provider_id)
    return Message("assistant", calls=(call,), sealed=sealed)


def test_a_plain_request_asks_for_a_stream_and_to_keep_nothing() -> None:
    request = ModelRequest("t", "gpt-5-mini", (Message("user", "Hi"),))

    assert encoded(request) == {
        "model": "gpt-5-mini",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    ("model", "thinks"),
    [
        ("gpt-5-mini", True),
        ("o4-mini", True),
        ("qwen3:8b", True),
        ("gpt-4o-mini", False),
        ("gpt-4.1", False),
        ("ft:gpt-4o:us", False),
        ("openai/chatgpt-4o-latest", False),
        ("gpt-5-chat-latest", False),
    ],
)
def test_models_that_do_not_think_are_not_asked_for_their_thoughts(
    model: str, thinks: bool
) -> None:
    """OpenAI refuses the whole request otherwise."""
    assert ("include" in encoded(ModelRequest("t", model, ()))) is thinks


def test_what_the_system_says_first_are_the_instructions() -> None:
    messages = (
        Message("system", "Be kind."),
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("system", "Two steps are left."),
    )

    body = encoded(ModelRequest("t", "m", messages))

    assert body["instructions"] == "Be kind.\n\nBe brief."
    assert body["input"] == [
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "message", "role": "system", "content": "Two steps are left."},
    ]


def test_all_that_shapes_a_reply_is_sent_when_it_is_set() -> None:
    request = ModelRequest(
        "t", "m", (), tools=(ADD,), temperature=0.0, tokens_max=50, top_p=0.9,
        reasoning_effort="low", parallel_tools=False,
    )  # fmt: skip

    body = encoded(request, "auto")

    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.0, 0.9, 50)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["parallel_tool_calls"] is False


def test_nothing_is_said_of_parallel_calls_where_there_are_no_tools() -> None:
    assert "parallel_tool_calls" not in encoded(ModelRequest("t", "m", (), parallel_tools=True))


def test_stop_sequences_are_refused_and_not_ignored() -> None:
    request = ModelRequest("t", "m", (), stop=("END",))

    with pytest.raises(ProviderError, match=r'has no stop sequences.*wire = "openai"') as caught:
        encoded(request)

    assert (caught.value.code, caught.value.retryable) == ("provider_bad_request", False)


def test_pictures_stand_before_the_text() -> None:
    assert items(Message("user", "What is this?", images=(PIXEL, PHOTO))) == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_image", "detail": "auto", "image_url": PIXEL.url},
                {"type": "input_image", "detail": "auto", "image_url": PHOTO.url},
                {"type": "input_text", "text": "What is this?"},
            ],
        }
    ]


def test_a_picture_needs_no_words() -> None:
    (sent,) = items(Message("user", images=(PIXEL,)))

    assert [part["type"] for part in sent["content"]] == ["input_image"]


# --- Tools ------------------------------------------------------------------------------------


def test_a_tool_is_strict_where_its_schema_is() -> None:
    sent = encoded(ModelRequest("t", "m", (), tools=(ADD, LOOK)))["tools"]

    assert sent == [
        {
            "type": "function",
            "name": "add",
            "description": "Add",
            "parameters": PARAMETERS,
            "strict": True,
        },
        {
            "type": "function",
            "name": "look",
            "description": "Look",
            "parameters": dict(LOOK.parameters),
            "strict": False,
        },
    ]


def test_an_array_of_anything_says_so() -> None:
    schema: dict[str, Json] = {"type": "object", "properties": {"all": {"type": "array"}}}
    request = ModelRequest("t", "m", (), tools=(ToolSchema("sum", "Sum", schema),))

    (sent,) = encoded(request)["tools"]

    assert sent["parameters"]["properties"]["all"] == {"type": "array", "items": {}}


def test_a_call_and_its_result_share_the_vendors_id() -> None:
    assert items(asked("call_1_0", "call_a"), Message("tool", "2", call_id="call_1_0")) == [
        {"type": "function_call", "call_id": "call_a", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "call_a", "output": "2"},
    ]


def test_ids_that_the_model_or_another_run_repeats_are_made_unique() -> None:
    turn = (asked("call_1_0", "same"), Message("tool", "2", call_id="call_1_0"))

    sent = items(*turn, *turn, *turn)

    ids = [item["call_id"] for item in sent]
    assert ids[::2] == ids[1::2] == ["same", "call_1_0", "call_1_0_2"]


def test_malformed_arguments_go_back_as_an_empty_object() -> None:
    call = ToolCall("call_1_0", "add", {}, malformed='{"a":')

    sent = items(Message("assistant", "Let me add.", (call,)))

    assert sent[0] == {"type": "message", "role": "assistant", "content": "Let me add."}
    assert sent[1]["arguments"] == "{}"


def test_an_answer_without_words_is_left_out() -> None:
    assert items(Message("user", "Hi"), Message("assistant")) == [
        {"type": "message", "role": "user", "content": "Hi"}
    ]


# --- Thoughts ---------------------------------------------------------------------------------


def test_a_thought_goes_back_as_it_came_before_the_call_that_it_led_to() -> None:
    sent = items(asked("call_1_0", "call_a", Sealed(SEAL, THOUGHT)))

    assert sent[0] == THOUGHT
    assert sent[1]["type"] == "function_call"


@pytest.mark.parametrize("wire", ["responses:azure", "openai", "anthropic"])
def test_what_somebody_else_sealed_does_not_go_out(wire: str) -> None:
    (sent,) = items(asked("call_1_0", "call_a", Sealed(wire, THOUGHT)))

    assert sent["type"] == "function_call"


def test_the_phase_of_a_text_goes_back_with_it() -> None:
    marks: list[dict[str, Json]] = [
        {"type": "message", "chars": 4, "phase": "commentary"},
        {"type": "message", "chars": 5, "phase": "final_answer"},
    ]
    message = Message("assistant", "Hm. Noon.", sealed=tuple(Sealed(SEAL, mark) for mark in marks))

    assert items(message) == [
        {"type": "message", "role": "assistant", "content": "Hm. ", "phase": "commentary"},
        {"type": "message", "role": "assistant", "content": "Noon.", "phase": "final_answer"},
    ]


# --- Answers of a shape -----------------------------------------------------------------------


def test_an_answer_is_held_to_a_schema_that_the_vendor_can_hold_it_to() -> None:
    wanted = ResponseFormat(City.model_json_schema(), "the city")

    sent = encoded(ModelRequest("t", "m", (), response_format=wanted))["text"]["format"]

    assert (sent["type"], sent["strict"]) == ("json_schema", True)
    assert sent["schema"]["required"] == ["name", "country"]
    assert sent["name"].startswith("the_city_")


def test_a_schema_that_the_vendor_cannot_hold_an_answer_to_guides_it_still() -> None:
    schema: dict[str, Json] = {"type": "object", "additionalProperties": {"type": "integer"}}
    request = ModelRequest("t", "m", (), response_format=ResponseFormat(schema))

    assert encoded(request)["text"] == {
        "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
    }


# --- Beside the vendor's own client -----------------------------------------------------------

EVERYTHING = ModelRequest(
    "t",
    "gpt-5-mini",
    (
        Message("system", "Be kind"),
        Message("user", "What is this?", images=(PIXEL, PHOTO)),
        asked("call_1_0", "call_a", Sealed(SEAL, THOUGHT)),
        Message("tool", "2", call_id="call_1_0"),
        Message("assistant", "2"),
        Message("user", "Thanks"),
    ),
    tools=(ADD,),
    temperature=0.5,
    tokens_max=100,
    top_p=0.9,
    reasoning_effort="low",
    parallel_tools=True,
    response_format=ResponseFormat(City.model_json_schema(), "City"),
)


def test_all_that_we_send_is_declared_by_the_vendors_client() -> None:
    body = encoded(EVERYTHING, "auto")

    assert as_declared(RESPONSES, body) == body


async def test_we_send_what_the_vendors_client_sends() -> None:
    async def ask(client: AsyncOpenAI) -> None:
        async with client.responses.stream(
            model="gpt-5-mini",
            store=False,
            include=["reasoning.encrypted_content"],
            instructions="Be kind",
            input=[
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_image", "detail": "auto", "image_url": PIXEL.url},
                        {"type": "input_image", "detail": "auto", "image_url": PHOTO.url},
                        {"type": "input_text", "text": "What is this?"},
                    ],
                },
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "encrypted_content": "gAAAA",
                },
                {
                    "type": "function_call",
                    "call_id": "call_a",
                    "name": "add",
                    "arguments": '{"a":1}',
                },
                {"type": "function_call_output", "call_id": "call_a", "output": "2"},
                {"type": "message", "role": "assistant", "content": "2"},
                {"type": "message", "role": "user", "content": "Thanks"},
            ],
            tools=[
                {
                    "type": "function",
                    "name": "add",
                    "description": "Add",
                    "parameters": dict(PARAMETERS),
                    "strict": True,
                }
            ],
            temperature=0.5,
            max_output_tokens=100,
            top_p=0.9,
            reasoning={"effort": "low", "summary": "auto"},
            parallel_tool_calls=True,
            text_format=City,
        ):
            pass

    assert encoded(EVERYTHING, "auto") == await sent_by_the_client(ask)


async def test_a_thought_goes_back_as_the_vendors_client_gives_it_back() -> None:
    """Its own way is to append a response's output to the next input."""
    script = Script()
    script.thought(("Let me ", "add."), ("Both.",))
    thought = script.events[-1]["item"]
    output: Any = Response.model_validate(script.end()[-1]["response"]).output

    async def ask(client: AsyncOpenAI) -> None:
        await client.responses.create(model="m", input=output, stream=True)

    sent = await sent_by_the_client(ask)
    ours = items(asked("call_1_0", "call_a", Sealed(SEAL, thought)))

    assert ours[0] == sent["input"][0]
