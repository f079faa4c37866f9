"""Chunks of a streamed completion, from vendors that don't agree on much."""

from typing import Any

import orjson
import pytest
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
from milepost.providers.failures import STREAM_CUT, Failures
from milepost.providers.openai_chunks import Chunks


def decoded(*events: dict[str, Any]) -> list[Delta]:
    chunks = Chunks(Failures("openai", None))
    return [delta for event in events for delta in chunks.decode(orjson.dumps(event))]


def choice(delta: object, reason: object = None, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def finished(*events: dict[str, Any]) -> Finished:
    chunks = Chunks(Failures("openai", None))
    for event in events:
        chunks.decode(orjson.dumps(event))
    return chunks.finish()


def calls(*pieces: dict[str, Any]) -> tuple[RequestedCall, ...]:
    """Return the calls that `pieces` add up to, each piece in a chunk of its own."""
    assembly = Assembly()
    for delta in decoded(*(choice({"tool_calls": [piece]}) for piece in pieces)):
        assembly.feed(delta)
    assembly.feed(Finished("tool_calls"))
    return assembly.reply().calls


def piece(
    arguments: object = "", *, index: object = None, call_id: str = "", name: str = ""
) -> dict[str, Any]:
    said = {"index": index, "id": call_id, "type": "function"}
    function = {"name": name, "arguments": arguments}
    return {
        **{key: value for key, value in said.items() if value is not None and value != ""},
        "function": {key: value for key, value in function.items() if value != ""},
    }


ADD = RequestedCall("id_a", "add", '{"a":1}')
MULTIPLY = RequestedCall("id_b", "multiply", '{"b":2}')


def test_text_comes_as_text() -> None:
    assert decoded(choice({"role": "assistant", "content": "Hi"})) == [TextDelta("Hi")]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_both_of_its_names(field: str) -> None:
    assert decoded(choice({field: "Hm", "content": None})) == [ReasoningDelta("Hm")]


def test_an_answer_in_parts_is_read_with_its_thoughts() -> None:
    """As Mistral's reasoning models say it."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, "noise"]}
    parts = [thought, {"type": "text", "text": "Hi"}, {"type": "reference"}, "noise"]

    assert decoded(choice({"content": parts})) == [ReasoningDelta("Hm"), TextDelta("Hi")]


def sealed(*payloads: bytes) -> list[Delta]:
    """Return what is to be sent back of a reply, by a server that wants its reasoning back."""
    chunks = Chunks(Failures("openai", None), seals=True)
    deltas = [delta for payload in payloads for delta in chunks.decode(payload)]
    return [delta for delta in deltas if isinstance(delta, SealedDelta)]


THINKING = [
    orjson.dumps(choice({"reasoning_content": "17 and "})),
    orjson.dumps(choice({"reasoning_content": "25.\0"})),
]
ASKING = orjson.dumps(choice({"tool_calls": [{"index": 0, "function": {"name": "add"}}]}))


@pytest.mark.parametrize("ending", [orjson.dumps(choice({}, "tool_calls")), b"[DONE]"])
def test_reasoning_that_led_to_calls_is_kept_for_who_wants_it_back(ending: bytes) -> None:
    replacement = "\N{REPLACEMENT CHARACTER}"  # A database keeps no NUL.

    told = sealed(*THINKING, ASKING, ending, b"[DONE]")

    assert told == [SealedDelta(Sealed("openai", {"reasoning": f"17 and 25.{replacement}"}))]


def test_reasoning_that_led_to_an_answer_is_not_kept() -> None:
    assert sealed(*THINKING, orjson.dumps(choice({"content": "42"}, "stop")), b"[DONE]") == []


def test_a_refusal_is_an_answer_too() -> None:
    assert decoded(choice({"content": None, "refusal": "No."})) == [TextDelta("No.")]


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": "none"},
        {"choices": [None]},
        {"choices": [{}]},
        choice(None),
        choice("text"),
        choice({"content": None}),
        choice({"content": 7}),
        choice({"content": ["a", "list"]}),
        choice({"tool_calls": None}),
        choice({"tool_calls": [None, 7]}),
        {"usage": None},
        {"usage": "much"},
        {"error": None},
    ],
)
def test_chunks_that_say_nothing_are_nothing(event: dict[str, Any]) -> None:
    assert decoded(event) == []


def test_the_first_choice_to_speak_is_the_reply() -> None:
    events = [choice({"content": "mine"}, index=3), choice({"content": "other"}, index=0)]

    assert decoded(*events) == [TextDelta("mine")]


def test_usage_is_read_with_its_details() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }

    assert decoded({"choices": [], "usage": usage}) == [Spent(Usage(100, 20, 64, 8, 12))]


@pytest.mark.parametrize(
    ("completion", "total", "output"),
    [
        (20, {"total_tokens": 120}, 20),
        (20, {"total_tokens": 132}, 32),
        (9, {}, 21),
        (20, {}, 20),
    ],
)
def test_reasoning_that_is_counted_beside_the_answer_is_output_as_well(
    completion: int, total: dict[str, int], output: int
) -> None:
    details = {"reasoning_tokens": 12}
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": completion,
        "completion_tokens_details": details,
        **total,
    }

    assert decoded({"choices": [], "usage": usage}) == [
        Spent(Usage(100, output, reasoning_tokens=12))
    ]


def test_usage_in_odd_types_counts_as_none() -> None:
    usage = {
        "prompt_tokens": "7",
        "completion_tokens": -3,
        "prompt_tokens_details": None,
        "prompt_cache_hit_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 1e300},
    }

    assert decoded({"usage": usage}) == []


@pytest.mark.parametrize("tokens", [None, "7", -3, 0])
def test_a_server_that_counts_nothing_has_told_nothing(tokens: object) -> None:
    chunks = Chunks(Failures("openai", None))

    assert chunks.decode(orjson.dumps({"usage": {"prompt_tokens": tokens}})) == []
    assert not chunks.spent


def test_a_truth_value_is_no_count() -> None:
    """Python takes it for a number, and no database column of numbers does."""
    usage = {"prompt_tokens": True, "completion_tokens": 2}

    assert decoded({"usage": usage}) == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("stop", "stop"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("length", "length"),
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("content_filter", "content_filter"),
        ("sensitive", "content_filter"),
        ("eos_token", "stop"),
        (7, "stop"),
    ],
)
def test_reasons_to_stop_are_translated(said: object, reason: str) -> None:
    assert finished(choice({}, said)).reason == reason


@pytest.mark.parametrize(
    "said", ["error", "insufficient_system_resource", "network_error", "abort"]
)
def test_who_gives_up_in_the_middle_has_not_merely_stopped(said: str) -> None:
    chunks = Chunks(Failures("openai", None))
    chunks.decode(orjson.dumps(choice({"content": "The answer is"})))

    with pytest.raises(ProviderError) as error:
        chunks.decode(orjson.dumps(choice({}, said)))

    assert (error.value.code, error.value.retryable) == ("provider_stream_cut", True)


def test_who_asks_for_calls_does_not_merely_stop() -> None:
    asking = choice({"tool_calls": [piece("{}", index=0, call_id="id_a", name="add")]})

    assert finished(asking, choice({}, "stop")).reason == "tool_calls"
    assert finished(asking, choice({}, "length")).reason == "length"


def test_the_end_mark_is_an_end_without_a_reason() -> None:
    chunks = Chunks(Failures("openai", None))
    chunks.decode(orjson.dumps(choice({"content": "Hello"})))

    chunks.decode(b"[DONE]")

    assert chunks.done
    assert chunks.finish() == Finished("stop", assumed=True)
    assert chunks.decode(b"what follows is not read") == []


def test_the_end_mark_of_no_reply_at_all_is_a_stream_that_broke_off() -> None:
    chunks = Chunks(Failures("openai", None))
    chunks.decode(orjson.dumps({"id": "chatcmpl-1", "choices": []}))

    with pytest.raises(ProviderError) as error:
        chunks.decode(b"[DONE]")

    assert (error.value.code, error.value.retryable) == (STREAM_CUT, True)


def test_the_end_names_the_response_and_the_model() -> None:
    named = {"id": "chatcmpl-1", "model": "gpt-5-mini-2026", **choice({}, "stop")}

    assert finished(named) == Finished("stop", "chatcmpl-1", "gpt-5-mini-2026")


def test_a_call_in_pieces_says_its_id_and_name_once() -> None:
    deltas = decoded(
        choice({"tool_calls": [piece(index=0, call_id="id_a", name="add")]}),
        choice({"tool_calls": [piece('{"a":', index=0, call_id="id_a", name="add")]}),
        choice({"tool_calls": [piece("1}", index=0)]}),
    )

    assert deltas == [
        CallDelta(0, "id_a", "add"),
        CallDelta(0, arguments='{"a":'),
        CallDelta(0, arguments="1}"),
    ]


def test_calls_may_be_interleaved() -> None:
    assert calls(
        piece(index=0, call_id="id_a", name="add"),
        piece(index=1, call_id="id_b", name="multiply"),
        piece('{"a":', index=0),
        piece('{"b":2}', index=1),
        piece("1}", index=0),
    ) == (ADD, MULTIPLY)


def test_calls_that_all_have_index_0_are_told_apart_by_id_and_name() -> None:
    assert calls(
        piece('{"a":1}', index=0, call_id="id_a", name="add"),
        piece('{"b":2}', index=0, call_id="id_b", name="multiply"),
    ) == (ADD, MULTIPLY)


def test_calls_without_index_are_told_apart_by_their_names() -> None:
    assert calls(
        piece('{"a":', call_id="id_a", name="add"),
        piece("1}"),
        piece('{"b":2}', call_id="id_b", name="multiply"),
    ) == (ADD, MULTIPLY)


def test_calls_with_neither_index_nor_id_come_whole() -> None:
    assert calls(piece('{"a":1}', name="add"), piece('{"a":2}', name="add")) == (
        RequestedCall("", "add", '{"a":1}'),
        RequestedCall("", "add", '{"a":2}'),
    )


def test_whole_calls_of_one_index_and_one_name_are_told_apart_by_their_ends() -> None:
    assert calls(piece('{"a":1}', index=0, name="add"), piece('{"a":2}', index=0, name="add")) == (
        RequestedCall("", "add", '{"a":1}'),
        RequestedCall("", "add", '{"a":2}'),
    )


def test_a_name_repeated_inside_of_an_object_begins_no_call() -> None:
    assert calls(
        piece('{"a":{"b":1}', index=0, name="add"), piece(',"c":{}}', index=0, name="add")
    ) == (RequestedCall("", "add", '{"a":{"b":1},"c":{}}'),)


def test_a_new_id_with_every_piece_is_still_one_call() -> None:
    assert calls(
        piece('{"a":', index=0, call_id="id_a", name="add"), piece("1}", index=0, call_id="id_z")
    ) == (ADD,)


def test_two_calls_may_share_an_id() -> None:
    same = [
        piece('{"a":1}', index=0, call_id="id_a", name="add"),
        piece('{"a":1}', index=1, call_id="id_a", name="add"),
    ]

    assert calls(*same) == (ADD, ADD)


@pytest.mark.parametrize("index", [None, 0])
def test_calls_that_take_turns_are_told_apart_by_their_ids_where_no_index_does(
    index: object,
) -> None:
    assert calls(
        piece(index=index, call_id="id_a", name="add"),
        piece(index=index, call_id="id_b", name="multiply"),
        piece('{"a":', index=index, call_id="id_a"),
        piece("1}", index=index),
        piece('{"b":2}', index=index, call_id="id_b"),
    ) == (ADD, MULTIPLY)


@pytest.mark.parametrize("index", [7_000_000_000, -1, "first", 1.5, [1]])
def test_a_wrong_index_is_as_good_as_any(index: object) -> None:
    assert calls(piece('{"a":1}', index=index, call_id="id_a", name="add")) == (ADD,)


def test_arguments_that_come_as_an_object_are_taken() -> None:
    assert calls(piece({"a": 1}, index=0, call_id="id_a", name="add")) == (ADD,)


def test_a_character_cut_in_two_is_replaced_and_not_fatal() -> None:
    chunks = Chunks(Failures("openai", None))

    deltas = chunks.decode(rb'{"choices":[{"index":0,"delta":{"content":"ha\ud83d"}}]}')

    assert deltas == [TextDelta("ha\N{REPLACEMENT CHARACTER}")]


@pytest.mark.parametrize("payload", [b"{oops", b"[1,2]", b"7", b'{"a":NaN}', b"[" * 5_000])
def test_an_event_that_is_no_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProviderError, match="openai sent an event that is no JSON") as caught:
        Chunks(Failures("openai", None)).decode(payload)

    assert caught.value.code == "provider_error"


def test_arguments_nested_beyond_all_measure_are_an_error() -> None:
    nested = '{"a":' * 500 + "1" + "}" * 500
    payload = orjson.dumps(choice({"tool_calls": [piece("HERE", name="add")]}))

    with pytest.raises(ProviderError, match="nested too deep"):
        Chunks(Failures("openai", None)).decode(payload.replace(b'"HERE"', nested.encode()))


def test_an_error_that_is_the_whole_chunk_is_raised() -> None:
    with pytest.raises(ProviderError, match="no such model"):
        decoded({"object": "error", "message": "no such model", "code": 404})


def test_an_error_inside_of_a_chunk_is_raised() -> None:
    with pytest.raises(ProviderError, match="openai answered 529: too busy"):
        decoded({"error": {"message": "too busy", "code": 529}})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**40) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def objects(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, ANYTHING))


FUNCTIONS = objects("name", "arguments")
PIECES = st.fixed_dictionaries(
    {}, optional={"index": ANYTHING, "id": ANYTHING, "function": FUNCTIONS | ANYTHING}
)
PARTS = objects("type", "text", "thinking") | st.fixed_dictionaries(
    {"type": st.just("thinking"), "thinking": st.lists(objects("text") | ANYTHING, max_size=2)}
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.lists(PARTS, max_size=2) | ANYTHING,
        "reasoning": ANYTHING,
        "tool_calls": st.lists(PIECES | ANYTHING, max_size=3) | ANYTHING,
    },
)
CHOICES = st.fixed_dictionaries(
    {}, optional={"index": ANYTHING, "delta": DELTAS | ANYTHING, "finish_reason": ANYTHING}
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": ANYTHING,
        "model": ANYTHING,
        "choices": st.lists(CHOICES, max_size=2) | ANYTHING,
        "usage": objects("prompt_tokens", "prompt_tokens_details") | ANYTHING,
        "error": st.none() | objects("message", "code", "type") | ANYTHING,
    },
)


@given(st.lists(EVENTS | ANYTHING, max_size=5), st.booleans())
def test_whatever_a_vendor_sends_is_deltas_or_a_provider_error(
    events: list[Any], seals: bool
) -> None:
    assembly = Assembly()
    chunks = Chunks(Failures("openai", None), seals=seals)

    try:
        for event in events:
            for delta in chunks.decode(orjson.dumps(event)):
                assembly.feed(delta)
    except ProviderError:
        return

    if chunks.finished:
        assembly.feed(chunks.finish())
        assert assembly.reply().finish_reason in {"stop", "tool_calls", "length", "content_filter"}
