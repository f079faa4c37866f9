"""Requests on the generateContent wire, judged by what Google's own client sends."""

import asyncio
import base64
import re
from typing import Any

import orjson
import pytest
from google import genai
from google.genai import types
from google.genai.types import Content, GenerateContentConfig, Part, ThinkingConfig

from milepost.core.json import Json
from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.gemini_request import UNSIGNED, encode
from milepost.providers.gemini_seals import sealed_call, sealed_text, sealed_thought
from tests.stubs import gemini_server
from tests.stubs.gemini_server import KEY, fault_of

MODERN, OLD = "gemini-3-pro", "gemini-2.5-flash"
PIXEL = base64.b64encode(b"\x89PNG\xff\xfe").decode()
SIGNED = base64.b64encode(b"\xff\xfesigned").decode()
NUMBER: dict[str, Json] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD = ToolSchema("add", "Add", NUMBER)


def encoded(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(encode(request))
    return body


def contents(*said: Message, model: str = MODERN) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = encoded(ModelRequest("t", model, said))["contents"]
    return sent


def config(**fields: Any) -> dict[str, Any]:
    model = fields.pop("model", MODERN)
    request = ModelRequest("t", model, (Message("user", "Hi"),), **fields)
    sent: dict[str, Any] = encoded(request).get("generationConfig", {})
    return sent


def asked(call_id: str, provider_id: str = "", *sealed: Sealed) -> Message:
    call = ToolCall(call_id, "add", {"a": 1}, provider_id)
    return Message("assistant", calls=(call,), sealed=sealed)


def answered(call_id: str, content: str = "2") -> Message:
    return Message("tool", content, call_id=call_id)


# --- As Google's own client says it ------------------------------------------------------------


TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(name="add", description="Add", parameters_json_schema=NUMBER)
    ]
)
CALLED = types.FunctionCall(id="fc_1", name="add", args={"a": 1})
RETURNED = types.FunctionResponse(id="fc_1", name="add", response={"output": "2"})

CASES: dict[str, tuple[ModelRequest, list[Content], GenerateContentConfig]] = {
    "text": (
        ModelRequest(
            "t",
            MODERN,
            (
                Message("system", "Be kind"),
                Message("user", "Hi"),
                Message("assistant", "Hello"),
                Message("user", "Bye"),
            ),
        ),
        [
            Content(role="user", parts=[Part(text="Hi")]),
            Content(role="model", parts=[Part(text="Hello")]),
            Content(role="user", parts=[Part(text="Bye")]),
        ],
        GenerateContentConfig(system_instruction=Content(parts=[Part(text="Be kind")])),
    ),
    "pictures": (
        ModelRequest(
            "t",
            MODERN,
            (
                Message(
                    "user",
                    "What is this?",
                    images=(
                        Image(f"data:image/png;base64,{PIXEL}"),
                        Image("https://example.com/cat.webp"),
                    ),
                ),
            ),
        ),
        [
            Content(
                role="user",
                parts=[
                    Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png"),
                    Part.from_uri(file_uri="https://example.com/cat.webp", mime_type="image/webp"),
                    Part(text="What is this?"),
                ],
            )
        ],
        GenerateContentConfig(),
    ),
    "tools": (
        ModelRequest(
            "t",
            MODERN,
            (
                Message("user", "Add"),
                asked("call_1_0", "fc_1", sealed_call(0, SIGNED)),
                answered("call_1_0"),
            ),
            tools=(ADD,),
        ),
        [
            Content(role="user", parts=[Part(text="Add")]),
            Content(
                role="model",
                parts=[Part(function_call=CALLED, thought_signature=base64.b64decode(SIGNED))],
            ),
            Content(role="user", parts=[Part(function_response=RETURNED)]),
        ],
        GenerateContentConfig(tools=[TOOL]),
    ),
    "all that shapes a reply": (
        ModelRequest(
            "t",
            MODERN,
            (Message("user", "Hi"),),
            temperature=0.0,
            top_p=0.9,
            tokens_max=50,
            stop=("END", "STOP"),
            reasoning_effort="low",
            response_format=ResponseFormat(NUMBER),
        ),
        [Content(role="user", parts=[Part(text="Hi")])],
        GenerateContentConfig(
            temperature=0.0,
            top_p=0.9,
            max_output_tokens=50,
            stop_sequences=["END", "STOP"],
            thinking_config=ThinkingConfig(
                include_thoughts=True, thinking_level=types.ThinkingLevel.LOW
            ),
            response_mime_type="application/json",
            response_json_schema=NUMBER,
        ),
    ),
    "a budget of thoughts": (
        ModelRequest("t", OLD, (Message("user", "Hi"),), reasoning_effort="medium"),
        [Content(role="user", parts=[Part(text="Hi")])],
        GenerateContentConfig(
            thinking_config=ThinkingConfig(include_thoughts=True, thinking_budget=8192)
        ),
    ),
    "a reply that goes on": (
        ModelRequest(
            "t",
            "gemini-4-argon",
            (
                Message("user", "Hi"),
                Message("assistant", sealed=(Sealed("gemini", {"continuation": SIGNED}),)),
            ),
        ),
        [Content(role="user", parts=[Part(text="Hi")])],
        GenerateContentConfig(continuation_token=base64.b64decode(SIGNED)),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_body_is_what_googles_own_client_sends(case: str) -> None:
    request, said, settings = CASES[case]

    async with gemini_server.serving() as stub:
        await asyncio.to_thread(
            ask_with_googles_client, stub.base_url, request.model, said, settings
        )
        [sent] = stub.bodies

    assert {"generationConfig": {}, **encoded(request)} == in_one_spelling(sent)


def ask_with_googles_client(
    base_url: str, model: str, said: list[Content], settings: GenerateContentConfig
) -> None:
    options = types.HttpOptions(base_url=base_url.removesuffix("/v1beta"), api_version="v1beta")
    with genai.Client(api_key=KEY, http_options=options) as client:
        for _ in client.models.generate_content_stream(
            model=model, contents=[*said], config=settings
        ):
            pass


def in_one_spelling(value: Any) -> Any:
    """The client mixes two spellings of fields, and of base64; the server takes either."""
    match value:
        case dict():
            return {camel(key): in_one_spelling(inner) for key, inner in value.items()}
        case list():
            return [in_one_spelling(inner) for inner in value]
        case str():
            return value.replace("-", "+").replace("_", "/") if is_base64(value) else value
        case _:
            return value


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)


def is_base64(value: str) -> bool:
    return value.replace("-", "+").replace("_", "/") in {PIXEL, SIGNED}


# --- The conversation --------------------------------------------------------------------------


def test_a_plain_request_says_nothing_beyond_the_conversation() -> None:
    assert encoded(ModelRequest("t", MODERN, (Message("user", "Hi"),))) == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]
    }


def test_what_the_system_says_first_stands_apart_and_the_rest_where_it_was_said() -> None:
    said = (Message("system", "A"), Message("user", "Hi"), Message("system", "B"))

    body = encoded(ModelRequest("t", MODERN, said))

    assert body["systemInstruction"] == {"parts": [{"text": "A"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Hi"}, {"text": "B"}]}]


def test_what_one_side_says_in_several_messages_is_one_content() -> None:
    calls = (ToolCall("call_1_0", "add", {}), ToolCall("call_1_1", "add", {}))
    said = (
        Message("user", "A"),
        Message("user", "B"),
        Message("assistant", "C"),
        Message("assistant", "D", calls),
        answered("call_1_0", "1"),
        answered("call_1_1", "2"),
        Message("user", "E"),
    )

    sent = contents(*said)

    assert [(content["role"], len(content["parts"])) for content in sent] == [
        ("user", 2), ("model", 4), ("user", 3),
    ]  # fmt: skip


def test_messages_without_words_are_not_sent() -> None:
    assert contents(Message("user", "Hi"), Message("assistant"), Message("user")) == [
        {"role": "user", "parts": [{"text": "Hi"}]}
    ]


def test_a_conversation_of_nothing_begins_with_nothing_said() -> None:
    assert contents(Message("system", "Begin")) == [{"role": "user", "parts": [{"text": ""}]}]


@pytest.mark.parametrize("url", ["https://example.com/cat?size=9.png", "https://[cat.png"])
def test_a_picture_whose_address_tells_no_format_is_taken_for_a_jpeg(url: str) -> None:
    said = Message("user", images=(Image(url),))

    [sent] = contents(said)

    assert sent["parts"] == [{"fileData": {"fileUri": url, "mimeType": "image/jpeg"}}]


# --- Calls -------------------------------------------------------------------------------------


def wire_calls(*said: Message) -> list[tuple[str, str | None]]:
    parts = [part for content in contents(*said) for part in content["parts"]]
    named = [part.get("functionCall") or part.get("functionResponse") for part in parts]
    return [(part["name"], part.get("id")) for part in named if part]


def test_a_call_and_its_result_share_name_and_id() -> None:
    assert wire_calls(asked("call_1_0", "fc_1"), answered("call_1_0")) == [
        ("add", "fc_1"),
        ("add", "fc_1"),
    ]


def test_a_call_to_which_the_vendor_gave_no_id_has_none() -> None:
    assert wire_calls(asked("call_1_0"), answered("call_1_0")) == [("add", None), ("add", None)]


def test_ids_that_another_run_repeats_are_made_unique() -> None:
    turn = (asked("call_1_0", "same"), answered("call_1_0"))

    ids = [call_id for _, call_id in wire_calls(*turn, *turn)]

    assert ids == ["same", "same", "call_1_0", "call_1_0"]


def test_malformed_arguments_go_back_as_an_empty_object() -> None:
    call = ToolCall("call_1_0", "add", {}, malformed='{"a":')

    [sent] = contents(Message("assistant", calls=(call,)), model=OLD)

    assert sent["parts"] == [{"functionCall": {"name": "add", "args": {}}}]


def test_a_result_whose_call_is_not_there_is_named_after_it() -> None:
    [sent] = contents(answered("call_9_0"))

    assert sent["parts"][0]["functionResponse"]["name"] == "call_9_0"


def test_a_function_of_nothing_has_no_schema() -> None:
    nothing = ToolSchema("now", "What time is it?", {"type": "object", "properties": {}})
    request = ModelRequest("t", MODERN, (), tools=(nothing,))

    [tools] = encoded(request)["tools"]

    assert tools["functionDeclarations"] == [{"name": "now", "description": "What time is it?"}]


# --- Signatures --------------------------------------------------------------------------------


def test_each_call_goes_back_with_its_own_signature() -> None:
    calls = tuple(ToolCall(f"call_1_{n}", "add", {}) for n in range(3))
    said = Message("assistant", calls=calls, sealed=(sealed_call(0, "A"), sealed_call(2, "C")))

    [sent] = contents(said)

    assert [part.get("thoughtSignature") for part in sent["parts"]] == ["A", None, "C"]


def test_a_signed_text_goes_back_as_the_part_that_it_was() -> None:
    said = Message("assistant", "Hello world", sealed=(sealed_text(5, 11, "A"),))

    [sent] = contents(said)

    assert sent["parts"] == [{"text": "Hello"}, {"text": " world", "thoughtSignature": "A"}]


def test_a_signature_of_no_text_goes_back_with_none() -> None:
    sealed = (sealed_text(0, 5, "A"), sealed_text(11, 11, "B"))

    [sent] = contents(Message("assistant", "Hello world", sealed=sealed))

    assert sent["parts"] == [
        {"text": "Hello", "thoughtSignature": "A"},
        {"text": " world"},
        {"text": "", "thoughtSignature": "B"},
    ]


def test_a_signed_thought_goes_back_before_what_it_led_to() -> None:
    [sent] = contents(Message("assistant", "Hi", sealed=(sealed_thought("Hm", "A"),)))

    assert sent["parts"] == [
        {"text": "Hm", "thought": True, "thoughtSignature": "A"},
        {"text": "Hi"},
    ]


def test_the_signature_of_a_text_that_has_become_shorter_is_kept() -> None:
    [sent] = contents(Message("assistant", "He", sealed=(sealed_text(5, 11, "A"),)))

    assert sent["parts"] == [{"text": "He"}, {"text": "", "thoughtSignature": "A"}]


def test_what_other_wires_or_other_versions_have_sealed_is_left_out() -> None:
    strange = (Sealed("anthropic", {"call": 0, "signature": "A"}), Sealed("gemini", {"new": 1}))

    [sent] = contents(Message("assistant", "Hi", sealed=strange))

    assert sent["parts"] == [{"text": "Hi"}]


@pytest.mark.parametrize("model", [MODERN, "gemini-flash-latest", "models/gemini-4-argon"])
def test_calls_of_another_model_are_marked_for_one_that_wants_signatures(model: str) -> None:
    calls = (ToolCall("call_1_0", "add", {}), ToolCall("call_1_1", "add", {}))

    [sent] = contents(Message("assistant", calls=calls), model=model)

    assert [part.get("thoughtSignature") for part in sent["parts"]] == [UNSIGNED, None]


@pytest.mark.parametrize("model", [OLD, "gemini-1.5-pro", "models/gemini-2.0-flash"])
def test_calls_are_not_marked_for_a_model_that_signs_none(model: str) -> None:
    [sent] = contents(asked("call_1_0"), model=model)

    assert "thoughtSignature" not in sent["parts"][0]


def test_a_conversation_from_elsewhere_passes_googles_rules() -> None:
    said = (
        Message("user", "Add"),
        asked("call_1_0", "toolu_1"),
        answered("call_1_0"),
        Message("assistant", "2", sealed=(Sealed("anthropic", {"thinking": "Hm"}),)),
        Message("user", "Again"),
        Message("assistant", "Gladly", (ToolCall("call_1_0", "add", {}, "toolu_1"),)),
        answered("call_1_0"),
    )

    assert fault_of(encoded(ModelRequest("t", MODERN, said))) == ""
    assert fault_of({"contents": contents(*said, model=OLD)}) != ""


# --- Thinking and structured answers -----------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "effort", "told"),
    [
        (MODERN, "high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        (MODERN, "XHIGH", {"includeThoughts": True, "thinkingLevel": "XHIGH"}),
        (MODERN, "2048", {"includeThoughts": True, "thinkingBudget": 2048}),
        (OLD, "-1", {"includeThoughts": True, "thinkingBudget": -1}),
        (OLD, "high", {"includeThoughts": True, "thinkingBudget": 24576}),
        (OLD, "none", {"thinkingBudget": 0}),
        (OLD, "0", {"thinkingBudget": 0}),
        (OLD, "deep", {"includeThoughts": True, "thinkingLevel": "DEEP"}),
    ],
)
def test_effort_is_a_level_or_a_number_of_tokens_as_the_model_has_it(
    model: str, effort: str, told: dict[str, Any]
) -> None:
    assert config(model=model, reasoning_effort=effort) == {"thinkingConfig": told}


def test_a_modern_model_holds_its_answer_to_a_schema_beside_its_tools() -> None:
    sent = config(response_format=ResponseFormat(NUMBER), tools=(ADD,))

    assert sent == {"responseMimeType": "application/json", "responseJsonSchema": NUMBER}


def test_an_old_model_that_has_tools_is_told_the_schema_in_words() -> None:
    said = (Message("system", "Be kind"), Message("user", "Hi"))
    request = ModelRequest("t", OLD, said, (ADD,), response_format=ResponseFormat(NUMBER))

    body = encoded(request)

    assert "generationConfig" not in body
    [kind, schema] = body["systemInstruction"]["parts"]
    assert kind == {"text": "Be kind"}
    assert orjson.dumps(NUMBER).decode() in schema["text"]
    assert fault_of(body, OLD) == ""


def test_an_old_model_without_tools_holds_its_answer_to_the_schema() -> None:
    sent = config(model=OLD, response_format=ResponseFormat(NUMBER))

    assert sent["responseMimeType"] == "application/json"
