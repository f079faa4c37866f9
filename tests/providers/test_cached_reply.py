"""A reply as a cache keeps it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.messages import Sealed
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Finished,
    ReasoningDelta,
    Reply,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.cached_reply import BYTES_MAX, CachedReply, decode, encode, replay

CALLS = (RequestedCall("vendor_1", "add", '{"a":1}'), RequestedCall("vendor_1", "now", "{}"))
ANSWER = Reply("Hello", "Hm", (), "stop", Usage(9, 2), "resp_1", "stub")
ASKING = Reply("", "", CALLS, "tool_calls", Usage(9, 2), "resp_1", "stub")


def kept(reply: Reply) -> CachedReply | None:
    value = encode(CachedReply(reply, 1_000))
    return None if value is None else decode(value)


def fields(reply: Reply) -> dict[str, Any]:
    value = encode(CachedReply(reply, 1_000))
    assert value is not None
    parsed: dict[str, Any] = orjson.loads(value)
    return parsed


def test_an_answer_comes_back_as_it_was() -> None:
    taken = replace(ANSWER, usage=Usage(9, 2, 4, 3, 1))

    several = replace(taken, requests=(Usage(5, 1, 4), Usage(4, 1, 0, 3, 1)))

    assert kept(ANSWER) == CachedReply(ANSWER, 1_000)
    assert kept(taken) == CachedReply(taken, 1_000)
    assert kept(several) == CachedReply(several, 1_000)


def test_calls_come_back_without_the_vendors_ids() -> None:
    nameless = tuple(replace(call, provider_id="") for call in CALLS)

    assert kept(ASKING) == CachedReply(replace(ASKING, calls=nameless), 1_000)


@pytest.mark.parametrize(
    "reply",
    [
        replace(ANSWER, finish_reason="length"),
        replace(ANSWER, finish_reason="content_filter"),
        replace(ANSWER, assumed=True),
        replace(ANSWER, text=""),
        replace(ANSWER, text="x" * BYTES_MAX),
        replace(ANSWER, text="half a sign: \ud800"),
        replace(ANSWER, sealed=(Sealed("mine", {"number": 2**64}),)),
        replace(ASKING, calls=()),
        replace(ASKING, calls=(RequestedCall("", "add", '{"a":'),)),
        replace(ASKING, calls=(RequestedCall("", "add", "[1]"),)),
        replace(ASKING, calls=(RequestedCall("", "", "{}"),)),
    ],
    ids=[
        "cut",
        "filtered",
        "assumed",
        "empty",
        "huge",
        "no Unicode",
        "no JSON",
        "no calls",
        "malformed",
        "no object",
        "nameless",
    ],
)
def test_what_is_not_a_complete_success_is_not_kept(reply: Reply) -> None:
    assert encode(CachedReply(reply, 1_000)) is None


TOKENS = fields(ANSWER)["tokens"]


@pytest.mark.parametrize(
    "change",
    [
        {"v": 1},
        {"v": "1"},
        {"made_ms": "1"},
        {"made_ms": -1},
        {"text": None},
        {"text": 7},
        {"sealed": None},
        {"sealed": [7]},
        {"sealed": [{"wire": "a", "item": 7}]},
        {"sealed": [{"wire": "a", "item": {}, "more": 1}]},
        {"sealed": [{"wire": "a", "item": {"nested": orjson.loads("[" * 99 + "]" * 99)}}]},
        {"calls": {}},
        {"calls": [7]},
        {"calls": [{"name": "add"}]},
        {"calls": [{"name": "add", "arguments": {}}]},
        {"calls": [{"name": "add", "arguments": "{}", "more": 1}]},
        {"calls": [{"name": "add", "arguments": "{}"}] * 129},
        {"finish_reason": "length"},
        {"finish_reason": "tool_calls"},
        {"tokens": {}},
        {"tokens": TOKENS | {"input_tokens": 2**60}},
        {"tokens": TOKENS | {"output_tokens": 1.5}},
        {"tokens": TOKENS | {"reasoning_tokens": True}},
        {"tokens": TOKENS | {"model_calls": 1}},
        {"requests": TOKENS},
        {"requests": [7]},
        {"requests": [TOKENS, TOKENS | {"input_tokens": -1}]},
        {"more": 1},
    ],
)
def test_a_value_that_we_did_not_write_is_a_miss(change: dict[str, object]) -> None:
    assert decode(orjson.dumps(fields(ANSWER) | change)) is None


@pytest.mark.parametrize("name", list(fields(ANSWER)))
def test_a_value_that_lacks_a_part_is_a_miss(name: str) -> None:
    damaged = {key: value for key, value in fields(ANSWER).items() if key != name}

    assert decode(orjson.dumps(damaged)) is None


@given(st.binary(max_size=50) | st.text(max_size=50).map(str.encode))
def test_no_bytes_are_too_strange_to_be_a_miss(value: bytes) -> None:
    assert decode(value) is None


def test_a_replay_streams_the_reply_and_saves_its_tokens() -> None:
    assert list(replay(CachedReply(ANSWER, 1_000), now_ms=3_500)) == [
        CacheHit(2.5),
        ReasoningDelta("Hm"),
        TextDelta("Hello"),
        Finished("stop", "resp_1", "stub"),
        Spent(Usage(saved_input_tokens=9, saved_output_tokens=2)),
    ]


def test_a_replay_streams_whole_calls() -> None:
    cached = kept(ASKING)
    assert cached is not None

    assert list(replay(cached, now_ms=0)) == [
        CacheHit(0),
        CallDelta(0, name="add", arguments='{"a":1}'),
        CallDelta(1, name="now", arguments="{}"),
        Finished("tool_calls", "resp_1", "stub"),
        Spent(Usage(saved_input_tokens=9, saved_output_tokens=2)),
    ]


def test_what_a_vendor_sealed_comes_back_with_the_calls() -> None:
    sealed = (Sealed("anthropic", {"type": "thinking", "signature": "abc"}),)
    value = encode(CachedReply(replace(ANSWER, sealed=sealed), 1_000))
    assert value is not None

    cached = decode(value)

    assert cached is not None
    assert cached.reply.sealed == sealed
    assert SealedDelta(sealed[0]) in list(replay(cached, 2_000))
