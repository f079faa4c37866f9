"""Events of a streamed reply, beside what the official client makes of them."""

import json
from typing import Any

import orjson
import pytest
from anthropic.types import Message as OfficialMessage
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.core.messages import Message, Sealed, ToolCall
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ReasoningDelta,
    Reply,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.anthropic_events import BLOCKS_MAX, SEALED_BYTES_MAX, Events
from milepost.providers.anthropic_layout import THOUGHTS
from milepost.providers.anthropic_turns import turns_of
from milepost.providers.assemble import Assembly
from milepost.providers.failures import Failures
from tests.stubs.anthropic_events import (
    PING,
    STOP,
    USAGE,
    Event,
    begin,
    call,
    conclusion,
    delta,
    end,
    redacted,
    start,
    text,
    thinking,
    whole,
)
from tests.stubs.anthropic_official import accumulated


def decoded(*events: object) -> list[Delta]:
    reading = Events(Failures("anthropic", None))
    return [made for event in events for made in reading.decode(orjson.dumps(event))]


def assembled(*events: object) -> Reply:
    reading = Events(Failures("anthropic", None))
    assembly = Assembly()
    for event in events:
        for made in reading.decode(orjson.dumps(event)):
            assembly.feed(made)
    assembly.feed(reading.finish())
    return assembly.reply()


def refused(*events: object) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        decoded(*events)
    return caught.value


def kept(*blocks: dict[str, Any]) -> SealedDelta:
    return SealedDelta(Sealed("anthropic", {"blocks": [*blocks]}))


# --- What comes --------------------------------------------------------------------------------


def test_text_comes_as_text() -> None:
    assert decoded(*text(0, "Hel", "lo")) == [TextDelta("Hel"), TextDelta("lo")]


def test_calls_in_pieces_say_their_ids_and_names_once() -> None:
    assert decoded(*call(0, "toolu_1", "add", '{"a":', "1}"), *call(1, "toolu_2", "now")) == [
        CallDelta(0, "toolu_1", "add"),
        CallDelta(0, arguments='{"a":'),
        CallDelta(0, arguments="1}"),
        CallDelta(1, "toolu_2", "now"),
    ]


def test_calls_may_be_interleaved() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
    events = (
        begin(3, block),
        begin(5, {**block, "id": "toolu_2"}),
        delta(3, "input_json_delta", partial_json='{"a":'),
        delta(5, "input_json_delta", partial_json='{"b":'),
        delta(3, "input_json_delta", partial_json="1}"),
        delta(5, "input_json_delta", partial_json="2}"),
        conclusion("tool_use"),
    )

    assert assembled(*events).calls == (
        RequestedCall("toolu_1", "add", '{"a":1}'),
        RequestedCall("toolu_2", "add", '{"b":2}'),
    )


def test_thinking_is_shown_as_it_comes_and_kept_when_the_reply_is_whole() -> None:
    events = (
        start(),
        *thinking(0, "Hm", "m."),
        *redacted(1, "c2Vj"),
        *text(2, "Hi"),
        conclusion("end_turn"),
    )

    assert decoded(*events) == [
        ReasoningDelta("Hm"),
        ReasoningDelta("m."),
        TextDelta("Hi"),
        kept(
            {"type": "thinking", "thinking": "Hmm.", "signature": "c2lnbmVk"},
            {"type": "redacted_thinking", "data": "c2Vj"},
        ),
        Spent(Usage(50, 15)),
    ]


def test_hidden_thinking_is_kept_for_its_signature() -> None:
    assert decoded(start(), *thinking(0), conclusion(None), conclusion("end_turn"))[1] == kept(
        {"type": "thinking", "thinking": "", "signature": "c2lnbmVk"}
    )


def test_thinking_that_nobody_signed_is_kept_for_a_server_that_wants_it_back() -> None:
    block = {"type": "thinking", "thinking": "Hm."}

    assert decoded(begin(0, {"type": "thinking", "thinking": "Hm."}), end(0), STOP) == [
        ReasoningDelta("Hm."),
        kept(block),
    ]


def test_usage_of_the_beginning_and_of_the_end_are_put_together() -> None:
    began = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    ended = {
        "input_tokens": None,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 12},
    }

    deltas = decoded(start(began), conclusion("end_turn", ended), STOP)

    assert deltas == [Spent(Usage(130, 30, 100, 20, 12))]


def test_what_the_end_says_of_the_input_replaces_what_the_beginning_said() -> None:
    ended = {"input_tokens": 7, "cache_read_input_tokens": 0, "output_tokens": 2}

    assert decoded(
        start({"input_tokens": 5, "cache_read_input_tokens": 9}), conclusion("", ended)
    ) == [Spent(Usage(7, 2))]


def test_usage_in_odd_types_tells_nothing() -> None:
    odd = {"input_tokens": "7", "output_tokens": -3, "cache_read_input_tokens": True}

    assert decoded(conclusion("end_turn", odd)) == []


def test_a_server_that_counts_nothing_has_told_nothing() -> None:
    reading = Events(Failures("anthropic", None))
    for event in (start(), {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, STOP):
        reading.decode(orjson.dumps(event))

    assert not reading.spent


# --- How it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("fell_asleep", "stop"),
    ],
)
def test_reasons_to_stop_are_translated(said: str, reason: str) -> None:
    assert assembled(start(), conclusion(said), STOP).finish_reason == reason


def test_who_asks_for_calls_does_not_merely_stop() -> None:
    assert assembled(*call(0, "t", "now"), conclusion("end_turn")).finish_reason == "tool_calls"
    assert assembled(*call(0, "t", "now"), conclusion("max_tokens")).finish_reason == "length"


def test_the_first_reason_counts() -> None:
    assert assembled(conclusion("max_tokens"), conclusion("end_turn")).finish_reason == "length"


@pytest.mark.parametrize("mark", [orjson.dumps(STOP), b"[DONE]"])
def test_the_end_mark_is_an_end_without_a_reason(mark: bytes) -> None:
    reading = Events(Failures("anthropic", None))
    for event in text(0, "Hello"):
        reading.decode(orjson.dumps(event))

    reading.decode(mark)

    assert reading.done
    assert reading.finish() == Finished("stop", assumed=True)
    assert reading.decode(b"what follows is not read") == []


@pytest.mark.parametrize("mark", [orjson.dumps(STOP), b"[DONE]"])
def test_the_end_mark_of_no_reply_at_all_is_a_stream_that_broke_off(mark: bytes) -> None:
    reading = Events(Failures("anthropic", None))

    with pytest.raises(ProviderError) as error:
        reading.decode(mark)

    assert (error.value.code, error.value.retryable) == ("provider_stream_cut", True)


def test_the_end_names_the_response_and_the_model() -> None:
    reply = assembled(start(), conclusion("end_turn"), STOP)

    assert (reply.response_id, reply.model) == ("msg_stub", "claude-stub")


def test_a_refusal_explains_itself_where_nothing_else_was_said() -> None:
    why = {"stop_details": {"type": "refusal", "category": "bio", "explanation": "Not this."}}

    assert assembled(start(), conclusion("refusal", **why)).text == "Not this."
    assert assembled(*text(0, "I"), conclusion("refusal", **why)).text == "I"
    assert assembled(conclusion("refusal", stop_details=None)).text == ""


# --- Odd and hostile ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        {},
        PING,
        {"type": "content_block_paused", "index": 0},
        {"type": ["message_start"]},
        {"type": "message_start"},
        {"type": "message_start", "message": "hello"},
        begin(0, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": {}, "content_block": {"type": "text"}},
        delta(0, "citations_delta", citation="page 7"),
        delta(0, "poetry_delta", verse="Roses"),
        delta(0, "signature_delta", signature="c2ln"),
        delta(0, "input_json_delta", partial_json=""),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}},
        {"type": "content_block_delta"},
        end(7),
        {"type": "content_block_stop"},
        {"type": "message_delta", "delta": None, "usage": None},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {}},
        {"type": "ping", "error": None},
    ],
)
def test_events_that_say_nothing_to_us_are_nothing(event: Event) -> None:
    assert decoded(event) == []


def test_a_block_of_the_vendors_own_is_passed_over_with_its_pieces() -> None:
    search = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}

    assert decoded(begin(0, search), end(0), *text(1, "Hi")) == [TextDelta("Hi")]


@pytest.mark.parametrize("index", [0, 4, None, "0"])
def test_text_counts_whichever_block_it_is_said_to_belong_to(index: Any) -> None:
    events = (*thinking(0, "Hm."), delta(index, "text_delta", text="Hi"), conclusion("end_turn"))

    assert assembled(*events).text == "Hi"


def test_arguments_of_a_call_that_never_began_are_an_error() -> None:
    error = refused(*text(0, "Hi"), delta(1, "input_json_delta", partial_json="{"))

    assert (error.code, error.retryable) == ("provider_error", True)
    assert "arguments of a call that it never began" in str(error)


def test_arguments_after_the_end_of_their_call_are_an_error() -> None:
    late = delta(0, "input_json_delta", partial_json="{")

    assert "never began" in str(refused(*call(0, "t", "now", "{}"), late))


def test_an_index_used_again_is_another_block() -> None:
    block = {"type": "tool_use", "id": "same", "name": "now", "input": {"a": 1}}
    events = (begin(0, block), begin(0, block), conclusion("tool_use"))

    assert assembled(*events).calls == (RequestedCall("same", "now", '{"a":1}'),) * 2


def test_the_pieces_of_another_block_are_not_those_of_the_one_before() -> None:
    opened = call(0, "t", "now")[0]
    piece = delta(0, "input_json_delta", partial_json="{")

    assert "never began" in str(refused(opened, text(0)[0], piece))


def test_a_call_that_comes_whole_has_its_arguments() -> None:
    block = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}

    for ending in (end(0), conclusion("tool_use")):
        assert assembled(begin(0, block), ending, STOP).calls == (
            RequestedCall("t", "add", '{"a":1}'),
        )


def test_arguments_nested_beyond_all_measure_are_an_error() -> None:
    event = orjson.dumps(begin(0, {"type": "tool_use", "id": "t", "name": "add", "input": "HERE"}))
    nested = b'{"a":' * 500 + b"1" + b"}" * 500

    with pytest.raises(ProviderError, match="arguments nested too deep"):
        Events(Failures("anthropic", None)).decode(event.replace(b'"HERE"', nested))


def test_a_thought_behind_arguments_nested_beyond_all_measure_is_no_harm() -> None:
    nested = '{"a":' * 500 + "1" + "}" * 500
    piece = delta(1, "input_json_delta", partial_json=nested)

    reply = assembled(call(1, "t", "now")[0], piece, *thinking(2, "Hm."), conclusion("tool_use"))

    assert reply.calls[0].arguments == nested


def test_arguments_in_pieces_go_before_those_of_the_beginning() -> None:
    block = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}
    events = (begin(0, block), delta(0, "input_json_delta", partial_json='{"a":2}'), end(0), STOP)

    assert assembled(*events).calls == (RequestedCall("t", "add", '{"a":2}'),)


def test_blocks_that_never_end_are_there_when_the_reply_ends() -> None:
    events = (*thinking(0, "Hm.")[:-1], *text(1, "Hi")[:-1], conclusion("end_turn"), STOP)

    reply = assembled(*events)

    assert (reply.text, reply.reasoning) == ("Hi", "Hm.")
    assert len(reply.sealed) == 1


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "provider_overloaded", True),
        ({"type": "rate_limit_error", "message": "Too fast"}, "provider_rate_limited", True),
        ({"type": "api_error", "message": "Oh"}, "provider_overloaded", True),
        ({"type": "timeout_error", "message": "Late"}, "provider_overloaded", True),
        ({"type": "invalid_request_error", "message": "No"}, "provider_bad_request", False),
        ({"type": "authentication_error", "message": "No"}, "provider_auth", False),
        ({"type": "permission_error", "message": "No"}, "provider_auth", False),
        ({"type": "not_found_error", "message": "No"}, "provider_bad_request", False),
        ({"type": "request_too_large", "message": "No"}, "provider_bad_request", False),
        ({"type": "billing_error", "message": "Pay"}, "provider_error", False),
        (
            {
                "type": "rate_limit_error",
                "message": "Pay",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
            "provider_rate_limited",
            False,
        ),
        ({"type": "new_error", "message": "New"}, "provider_error", True),
        ("Oh", "provider_error", True),
        (None, "provider_error", True),
    ],
)
def test_an_error_inside_of_a_stream_says_whether_to_try_again(
    error: object, code: str, retryable: bool
) -> None:
    raised = refused(start(), {"type": "error", "error": error})

    assert (raised.code, raised.retryable) == (code, retryable)


def test_an_error_of_a_proxy_is_one_too() -> None:
    assert refused({"error": {"message": "No backend", "code": 502}}).status == 502


@pytest.mark.parametrize("payload", [b"\x00\xff{{{", b"[]", b'"hello"', b"7"])
def test_what_is_no_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProviderError, match="sent an event that is no JSON"):
        Events(Failures("anthropic", None)).decode(payload)


def test_a_reply_of_blocks_without_end_is_given_up() -> None:
    blocks = [begin(0, {"type": "text", "text": ""})] * (BLOCKS_MAX + 1)

    assert f"more than {BLOCKS_MAX} blocks" in str(refused(*blocks))


@pytest.mark.parametrize(
    "event",
    [
        begin(1, {"type": "redacted_thinking", "data": "x" * 100_000}),
        delta(0, "signature_delta", signature="x" * 100_000),
    ],
)
def test_what_is_to_be_kept_has_a_bound(event: Event) -> None:
    events = (thinking(0)[0], *[event] * (SEALED_BYTES_MAX // 100_000 + 1))

    assert f"more than {SEALED_BYTES_MAX} bytes to be kept" in str(refused(*events))


# --- The official client as an oracle ----------------------------------------------------------


def usage_by_price_list(message: OfficialMessage) -> Usage:
    """Return the usage as the price list reads it from a reply of this vendor's."""
    vendor = next(p for p in get_snapshot().providers if p.id == "anthropic")
    _, found = vendor.extract_usage(message.model_dump(mode="json", exclude_none=True))
    return Usage(
        int(found.input_tokens or 0),
        int(found.output_tokens or 0),
        int(found.cache_read_tokens or 0),
        int(found.cache_write_tokens or 0),
        int(found.output_reasoning_tokens or 0),
    )


def sent_back(reply: Reply) -> list[dict[str, Any]]:
    """Return the blocks in which `reply` goes back."""
    calls = tuple(
        ToolCall(f"call_1_{n}", made.name, json.loads(made.arguments), made.provider_id)
        for n, made in enumerate(reply.calls)
    )
    answer = Message("assistant", reply.text, calls, sealed=reply.sealed)
    return [b for turn in turns_of([answer]).turns if turn.role == "assistant" for b in turn.blocks]


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
PIECES = st.lists(WORDS, max_size=3)
COUNTS = st.integers(0, 1_000_000)
PROMPTS = st.integers(1, 1_000_000)
USAGES = st.fixed_dictionaries(
    {"input_tokens": PROMPTS, "output_tokens": COUNTS},
    optional={"cache_read_input_tokens": COUNTS, "cache_creation_input_tokens": COUNTS},
)
BLOCKS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), PIECES),
        st.tuples(st.just("thinking"), PIECES),
        st.tuples(st.just("redacted"), st.just(["c2Vj"])),
        st.tuples(st.just("call"), st.dictionaries(WORDS, st.integers(-9, 9), max_size=2)),
    ),
    max_size=6,
)


def cut(told: str, n: int) -> list[str]:
    return [told[at : at + n] for at in range(0, len(told), n)]


def events_of(blocks: list[Any], began: Event, ended: Event, reason: str) -> list[Event]:
    made: list[list[Event]] = []
    for index, (kind, said) in enumerate(blocks):
        match kind:
            case "text":
                made.append(text(index, *said))
            case "thinking":
                made.append(thinking(index, *said))
            case "redacted":
                made.append(redacted(index, *said))
            case _:
                made.append(call(index, f"toolu_{index}", "add", *cut(json.dumps(said), 3)))
    said_blocks = [event for block in made for event in block]
    return [start(began), PING, *said_blocks, PING, conclusion(reason, ended), STOP]


@given(BLOCKS, USAGES, USAGES, st.sampled_from(["end_turn", "max_tokens", "tool_use", "refusal"]))
def test_a_reply_is_what_the_official_client_makes_of_it(
    blocks: list[Any], began: Event, ended: Event, reason: str
) -> None:
    events = events_of(blocks, began, ended, reason)

    reply, official = assembled(*events), accumulated(events)

    said = [block.text for block in official.content if block.type == "text"]
    thought = [block.thinking for block in official.content if block.type == "thinking"]
    called = [(b.id, b.name, b.input) for b in official.content if b.type == "tool_use"]
    assert reply.text == "".join(said)
    assert reply.reasoning == "".join(thought)
    assert [(c.provider_id, c.name, json.loads(c.arguments)) for c in reply.calls] == called
    assert (reply.response_id, reply.model) == (official.id, official.model)
    assert reply.usage == usage_by_price_list(official)


def is_solid(block: Any) -> bool:
    """Say whether a block is no text that is blank, which the vendor refuses."""
    kind, said = block
    return kind != "text" or not said or bool("".join(said).strip())


@given(BLOCKS.map(lambda blocks: [block for block in blocks if is_solid(block)]))
def test_a_reply_goes_back_as_the_official_client_sends_it(blocks: list[Any]) -> None:
    """In the same order up to the last thought; behind it a reply's text comes before its calls.

    But for a thought that nothing came of, which the vendor refuses.
    """
    events = events_of(blocks, dict(USAGE), {"output_tokens": 1}, "end_turn")

    went = sent_back(assembled(*events))

    official = [block.to_dict() for block in accumulated(events).content]
    came = [block for block in official if block.get("text") != ""]
    thought = max((n for n, block in enumerate(came, 1) if block["type"] in THOUGHTS), default=0)
    while came and came[-1]["type"] in THOUGHTS:
        came.pop()
    rest = sorted(came[thought:], key=lambda block: block["type"] != "text")
    assert joined(went) == joined([*came[:thought], *rest])


def joined(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return `blocks` with texts that follow each other in one, as a message keeps them."""
    made: list[dict[str, Any]] = []
    for block in blocks:
        if made and block["type"] == made[-1]["type"] == "text":
            made[-1] = {**block, "text": made[-1]["text"] + block["text"]}
        else:
            made.append(block)
    return made


def test_the_official_client_reads_a_whole_reply_of_the_stubs() -> None:
    events = whole([thinking(0, "Hm."), text(1, "Hi"), call(2, "t", "now", "{}")], "tool_use")

    message = accumulated(events)

    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"


# --- Anything at all ---------------------------------------------------------------------------

SCRAPS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(-2, 3), WORDS, st.just({}), st.just([])
)
KINDS = st.sampled_from(
    ["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "new", "text_delta",
     "thinking_delta", "signature_delta", "input_json_delta", "citations_delta"]
)  # fmt: skip
FIELDS = st.dictionaries(
    st.sampled_from(
        ["text", "thinking", "signature", "data", "partial_json", "id", "name", "input",
         "stop_reason", "stop_details"]
    ),
    SCRAPS,
    max_size=3,
)  # fmt: skip
PARTS = st.builds(lambda kind, told: {**told, "type": kind}, KINDS, FIELDS)
ANY_EVENTS = st.builds(
    lambda kind, told: {"type": kind, **told},
    st.sampled_from(
        ["message_start", "content_block_start", "content_block_delta", "content_block_stop",
         "message_delta", "message_stop", "ping", "error", "new"]
    ),
    st.dictionaries(
        st.sampled_from(["index", "content_block", "delta", "message", "usage", "error"]),
        st.one_of(PARTS, PARTS, SCRAPS),
        max_size=4,
    ),
)  # fmt: skip
EVENTS = st.one_of(
    ANY_EVENTS,
    st.sampled_from(
        [event for kind in (text, thinking) for event in kind(1, "a", "b")]
        + call(0, "t", "add", "{", "}")
        + [start(), conclusion("tool_use"), STOP]
    ),
)


@given(st.lists(EVENTS, max_size=15))
def test_whatever_comes_is_a_reply_or_an_error(events: list[Event]) -> None:
    reading = Events(Failures("anthropic", None))
    deltas: list[Delta] = []
    try:
        for event in events:
            deltas += reading.decode(orjson.dumps(event))
    except ProviderError:
        pass  # What came before it must be well-formed all the same.

    began = [made.index for made in deltas if isinstance(made, CallDelta) and not made.arguments]
    assert began == list(range(len(began)))
    for made in deltas:
        match made:
            case TextDelta(said) | ReasoningDelta(said):
                assert said
                assert isinstance(said, str)
            case CallDelta():
                assert made.index < len(began)
            case SealedDelta(sealed):
                assert orjson.loads(orjson.dumps(dict(sealed.item))) == sealed.item
            case Spent(usage):
                assert usage.input_tokens >= usage.cache_read_tokens + usage.cache_write_tokens
            case _:
                pytest.fail(f"an event became {made}")
    if reading.finished:
        assert reading.finish().reason in {"stop", "tool_calls", "length", "content_filter"}
