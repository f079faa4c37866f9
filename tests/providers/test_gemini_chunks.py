"""Chunks of a streamed generateContent reply, made and judged by Google's own types."""

import base64
from typing import Any

import orjson
import pytest
from google.genai import types
from google.genai.types import Candidate, Content, GenerateContentResponse, Part
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.core.messages import Sealed
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ReasoningDelta,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.failures import Failures
from milepost.providers.gemini_chunks import SEALED_CHARS_MAX, Chunks
from milepost.providers.gemini_seals import (
    sealed_call,
    sealed_continuation,
    sealed_text,
    sealed_thought,
)
from tests.stubs.gemini_server import CALL, Chunk, answers, refusal, text_chunks, usage

NAMES = ("response-1", "gemini-3-stub")


def chunks() -> Chunks:
    return Chunks(Failures("gemini", None))


def decoded(*events: Chunk) -> list[Delta]:
    reading = chunks()
    return [delta for event in events for delta in reading.decode(orjson.dumps(event))]


def finished(*events: Chunk) -> Finished:
    reading = chunks()
    for event in events:
        reading.decode(orjson.dumps(event))
    return reading.finish()


def refused(*events: Chunk) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decoded(*events)
    return caught.value


def called(name: str, args: object = None, call_id: str = "", signature: str = "") -> Chunk:
    call = {"name": name, "args": args, "id": call_id}
    part: Chunk = {"functionCall": {key: value for key, value in call.items() if value}}
    return {**part, "thoughtSignature": signature} if signature else part


# --- As Google's own types have it -------------------------------------------------------------


def made(*parts: Part, reason: types.FinishReason | None = None, **fields: Any) -> bytes:
    """Return a chunk as a server writes it that has Google's own types."""
    candidate = Candidate(content=Content(role="model", parts=[*parts]), finish_reason=reason)
    response = GenerateContentResponse(
        candidates=[candidate], response_id=NAMES[0], model_version=NAMES[1], **fields
    )
    return response.model_dump_json(by_alias=True, exclude_none=True).encode()


def test_a_reply_of_googles_own_types_is_read_whole() -> None:
    signature = base64.urlsafe_b64encode(b"signed").decode()
    call = types.FunctionCall(id="fc_1", name="add", args={"a": 17, "b": [1.5, None]})
    counted = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=100,
        cached_content_token_count=64,
        tool_use_prompt_token_count=5,
        candidates_token_count=20,
        thoughts_token_count=12,
        total_token_count=137,
    )
    reading = chunks()
    assembly = Assembly()

    for payload in (
        made(Part(text="Hm.", thought=True)),
        made(Part(text="Let me "), Part(text="see.")),
        made(Part(function_call=call, thought_signature=b"signed")),
        made(reason=types.FinishReason.STOP, usage_metadata=counted),
    ):
        for delta in reading.decode(payload):
            assembly.feed(delta)
    assembly.feed(reading.finish())

    reply = assembly.reply()
    assert (reply.reasoning, reply.text) == ("Hm.", "Let me see.")
    assert reply.calls == (RequestedCall("fc_1", "add", '{"a":17,"b":[1.5,null]}'),)
    assert reply.sealed == (sealed_call(0, signature),)
    assert reply.usage == Usage(105, 32, 64, 0, 12)
    assert (reply.finish_reason, reply.response_id, reply.model) == ("tool_calls", *NAMES)


@pytest.mark.parametrize("chunk", [*CALL, *text_chunks(2)])
def test_what_our_own_stub_says_is_of_googles_own_types(chunk: Chunk) -> None:
    response = GenerateContentResponse.model_validate(chunk)

    assert response.model_dump(by_alias=True, exclude_none=True, mode="json") == chunk


@pytest.mark.parametrize("reason", [*types.FinishReason])
def test_every_reason_of_googles_own_is_an_end_or_an_error(reason: types.FinishReason) -> None:
    reading = chunks()
    told = ""
    try:
        reading.decode(made(Part(text="Hi"), reason=reason))
    except ProviderError as error:
        told = str(error)

    assert reading.finished or reason.name in told or reason.name == "FINISH_REASON_UNSPECIFIED"


# --- What is said ------------------------------------------------------------------------------


def test_text_comes_as_text() -> None:
    assert decoded(answers({"text": "Hi"})) == [TextDelta("Hi")]


def test_thoughts_come_as_reasoning() -> None:
    assert decoded(answers({"text": "Hm", "thought": True})) == [ReasoningDelta("Hm")]


def test_each_call_comes_whole_and_is_counted() -> None:
    deltas = decoded(
        answers(called("add", {"a": 1}, "fc_1"), called("add", {"a": 2}, "fc_1")),
        answers(called("now")),
    )

    assert deltas == [
        CallDelta(0, "fc_1", "add", '{"a":1}'),
        CallDelta(1, "fc_1", "add", '{"a":2}'),
        CallDelta(2, "", "now", ""),
    ]


def test_integers_beyond_64_bits_stay_what_they_are() -> None:
    call = b'{"name":"add","args":{"a":123456789012345678901}}'

    deltas = chunks().decode(b'{"candidates":[{"content":{"parts":[{"functionCall":%s}]}}]}' % call)

    assert deltas == [CallDelta(0, "", "add", '{"a":"123456789012345678901"}')]


@pytest.mark.parametrize(
    ("part", "delta", "sealed"),
    [
        ({"text": "Hi", "thoughtSignature": "A"}, TextDelta("Hi"), sealed_text(3, 5, "A")),
        ({"text": "", "thoughtSignature": "A"}, None, sealed_text(3, 3, "A")),
        ({"thoughtSignature": "A"}, None, sealed_text(3, 3, "A")),
        (
            {"text": "Hm", "thought": True, "thoughtSignature": "A"},
            ReasoningDelta("Hm"),
            sealed_thought("Hm", "A"),
        ),
        (called("add", signature="A"), CallDelta(1, "", "add"), sealed_call(1, "A")),
    ],
)
def test_a_signature_is_sealed_with_the_part_that_it_is_of(
    part: Chunk, delta: Delta | None, sealed: Sealed
) -> None:
    said = decoded(answers({"text": "One"}, called("add")), answers(part))[2:]

    assert said == [*([delta] if delta else []), SealedDelta(sealed)]


def test_more_signatures_than_any_reply_has_are_refused() -> None:
    long = answers({"text": "", "thoughtSignature": "A" * (SEALED_CHARS_MAX // 4)})

    assert "signed with more than" in str(refused(*[long] * 5))


def test_the_first_candidate_to_speak_is_the_reply() -> None:
    other = {"index": 1, "content": {"parts": [{"text": "other"}]}, "finishReason": "STOP"}

    assert decoded(answers({"text": "mine"}), {"candidates": [other]}) == [TextDelta("mine")]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"candidates": []},
        {"candidates": None},
        {"candidates": "none"},
        {"candidates": [None]},
        {"candidates": [{}]},
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {"role": "model"}}]},
        {"candidates": [{"content": {"parts": None}}]},
        answers(),
        answers({"text": 7}),
        answers({"text": None}),
        answers({"functionCall": None}),
        answers({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
        answers({"executableCode": {"language": "PYTHON", "code": "1"}}),
        answers({"somethingNew": {"text": "x"}}),
        answers({"text": "", "thoughtSignature": 7}),
        answers(reason="FINISH_REASON_UNSPECIFIED"),
        {"promptFeedback": {"safetyRatings": []}},
        {"promptFeedback": None},
        {"usageMetadata": {"trafficType": "ON_DEMAND"}},
        {"usageMetadata": "much"},
        {"error": None},
    ],
)
def test_chunks_that_say_nothing_are_nothing(event: Chunk) -> None:
    assert decoded(event) == []


# --- What it took ------------------------------------------------------------------------------


def test_what_the_reply_took_is_said_once_when_it_has_stopped() -> None:
    deltas = decoded(
        answers({"text": "a"}, usageMetadata=usage(9, 1)),
        answers({"text": "b"}, usageMetadata={"trafficType": "ON_DEMAND"}),
        answers(reason="STOP", usageMetadata=usage(9, 2, 3)),
    )

    assert deltas == [TextDelta("a"), TextDelta("b"), Spent(Usage(9, 5, reasoning_tokens=3))]


def test_a_count_that_came_before_the_stop_counts() -> None:
    deltas = decoded(answers({"text": "a"}, usageMetadata=usage(9, 1)), answers(reason="STOP"))

    assert deltas == [TextDelta("a"), Spent(Usage(9, 1))]


def test_a_count_that_comes_after_the_stop_is_the_last_one() -> None:
    deltas = decoded(
        answers({"text": "a"}, reason="STOP", usageMetadata=usage(9, 1)),
        {"usageMetadata": usage(9, 2)},
    )

    assert deltas[1:] == [Spent(Usage(9, 1)), Spent(Usage(9, 2))]


def test_usage_in_odd_types_tells_nothing() -> None:
    odd = {
        "promptTokenCount": "7",
        "candidatesTokenCount": -3,
        "thoughtsTokenCount": True,
        "cachedContentTokenCount": 1e300,
    }

    assert decoded(answers(reason="STOP", usageMetadata=odd)) == []


# --- How it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("OTHER", "stop"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_reasons_to_stop_are_translated(said: str, reason: str) -> None:
    assert finished(answers({"text": "Hi"}, reason=said)).reason == reason


def test_who_asks_for_calls_does_not_merely_stop() -> None:
    asking = answers(called("add"))

    assert finished(asking, answers(reason="STOP")).reason == "tool_calls"
    assert finished(asking, answers(reason="MAX_TOKENS")).reason == "length"


def test_the_last_reason_is_the_one() -> None:
    """Models of old say STOP with every chunk."""
    said = answers({"text": "a"}, reason="STOP")

    assert finished(said, said, answers(reason="MAX_TOKENS")).reason == "length"


def test_a_prompt_that_is_blocked_gets_no_answer_and_is_paid() -> None:
    blocked = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": usage(9),
        "modelVersion": "gemini-3-stub",
    }

    assert decoded(blocked) == [Spent(Usage(9))]
    assert finished(blocked) == Finished("content_filter", "", "gemini-3-stub")


def test_the_end_names_the_response_and_the_model() -> None:
    assert finished(answers({"text": "Hi"}, reason="STOP")) == Finished("stop", *NAMES)


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"]
)
def test_a_reply_that_came_to_nothing_is_worth_a_retry(reason: str) -> None:
    spoilt = answers(reason=reason)
    spoilt["candidates"][0]["finishMessage"] = "Malformed function call: add(a=1"

    error = refused(spoilt)

    assert (error.code, error.retryable) == ("provider_error", True)
    assert f"{reason}: Malformed function call: add(a=1" in str(error)
    assert error.at_work, "its vendor bills what nobody can read"


def test_nothing_said_for_a_reason_that_says_nothing_is_worth_a_retry() -> None:
    error = refused(answers(reason="OTHER"))

    assert "sent nothing, and stopped for OTHER" in str(error)
    assert (error.retryable, error.at_work) == (True, True)


def test_a_conversation_without_its_signatures_is_not_worth_one() -> None:
    error = refused(answers(reason="MISSING_THOUGHT_SIGNATURE"))

    assert (error.code, error.retryable) == ("provider_bad_request", False)


def test_where_a_reply_goes_on_from_is_sealed() -> None:
    more = answers({"text": "Hi"}, reason="CONTINUATION")
    more["candidates"][0]["continuationToken"] = "AAAA"

    assert decoded(more) == [TextDelta("Hi"), SealedDelta(sealed_continuation("AAAA"))]
    assert finished(more).reason == "length"


# --- Hostile -----------------------------------------------------------------------------------


def test_a_character_cut_in_two_is_replaced_and_not_fatal() -> None:
    deltas = chunks().decode(rb'{"candidates":[{"content":{"parts":[{"text":"ha\ud83d"}]}}]}')

    assert deltas == [TextDelta("ha\N{REPLACEMENT CHARACTER}")]


@pytest.mark.parametrize(
    "payload",
    [
        b"{oops",
        b"[1,2]",
        b"7",
        b'{"a":NaN}',
        b"[" * 5_000,
        b'{"functionCall":',
        b'["functionCall"]',
        b'{"functionCall":' * 5_000,
    ],
)
def test_an_event_that_is_no_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProviderError, match="gemini sent an event that is no JSON") as caught:
        chunks().decode(payload)

    assert caught.value.code == "provider_error"


def test_arguments_nested_beyond_all_measure_are_an_error() -> None:
    payload = b'{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"a":%s}}}]}}]}'

    with pytest.raises(ProviderError, match="arguments nested too deep"):
        chunks().decode(payload % (b"[" * 300 + b"]" * 300))


def test_an_error_inside_of_a_chunk_is_raised() -> None:
    error = refused(answers({"text": "Hi"}), refusal(503, "UNAVAILABLE", "The model is overloaded"))

    assert (error.code, error.retryable) == ("provider_overloaded", True)
    assert "gemini answered 503: The model is overloaded" in str(error)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**40) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def objects(*keys: str, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={**dict.fromkeys(keys, ANYTHING), **known})


REASONS = st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "OTHER", "MALFORMED_FUNCTION_CALL"])
PARTS = objects(
    "text",
    "thought",
    "thoughtSignature",
    functionCall=objects("id", "name", "args") | ANYTHING,
    inlineData=ANYTHING,
)
CANDIDATES = objects(
    "index",
    "finishMessage",
    "continuationToken",
    content=objects("role", parts=st.lists(PARTS | ANYTHING, max_size=3)) | ANYTHING,
    finishReason=REASONS | ANYTHING,
)
COUNTS = objects("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
EVENTS = objects(
    "responseId",
    "modelVersion",
    candidates=st.lists(CANDIDATES, max_size=2) | ANYTHING,
    promptFeedback=objects("blockReason") | ANYTHING,
    usageMetadata=COUNTS | ANYTHING,
    error=st.none() | objects("message", "code", "status", "details") | ANYTHING,
)


@given(st.lists(EVENTS | ANYTHING, max_size=5))
def test_whatever_a_vendor_sends_is_deltas_or_a_provider_error(events: list[Any]) -> None:
    assembly = Assembly()
    reading = chunks()

    try:
        for event in events:
            for delta in reading.decode(orjson.dumps(event)):
                assembly.feed(delta)
    except ProviderError:
        return

    if reading.finished:
        assembly.feed(reading.finish())
        reply = assembly.reply()
        assert reply.finish_reason in {"stop", "tool_calls", "length", "content_filter"}
        assert orjson.dumps([dict(sealed.item) for sealed in reply.sealed])
