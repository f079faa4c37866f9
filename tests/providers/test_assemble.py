"""The reply that deltas add up to."""

import pytest

from milepost.core.errors import ProviderError
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Delta,
    Finished,
    ReasoningDelta,
    Reply,
    RequestedCall,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers import assemble
from milepost.providers.assemble import CALLS_MAX, Assembly


def assembled(*deltas: Delta) -> Reply:
    assembly = Assembly()
    for delta in deltas:
        assembly.feed(delta)
    return assembly.reply()


def test_text_and_reasoning_are_joined_each_on_its_own() -> None:
    reply = assembled(
        ReasoningDelta("Let me "),
        TextDelta("Hel"),
        ReasoningDelta("see"),
        TextDelta("lo"),
        Finished("stop", "resp_1", "stub"),
    )

    assert (reply.text, reply.reasoning) == ("Hello", "Let me see")
    assert (reply.finish_reason, reply.response_id, reply.model) == ("stop", "resp_1", "stub")


def test_the_pieces_of_interleaved_calls_are_sorted_by_their_index() -> None:
    reply = assembled(
        CallDelta(1, "id_b", "multiply"),
        CallDelta(0, "id_a", "add"),
        CallDelta(1, arguments='{"a":'),
        CallDelta(0, arguments='{"a":1}'),
        CallDelta(1, arguments="2}"),
        Finished("tool_calls"),
    )

    assert reply.calls == (
        RequestedCall("id_a", "add", '{"a":1}'),
        RequestedCall("id_b", "multiply", '{"a":2}'),
    )


def test_a_call_without_any_arguments_has_an_empty_object() -> None:
    reply = assembled(CallDelta(0, "id_a", "current_time"), Finished("tool_calls"))

    assert reply.calls == (RequestedCall("id_a", "current_time", "{}"),)


def test_the_last_usage_said_counts() -> None:
    reply = assembled(Spent(Usage(input_tokens=5)), Finished("stop"), Spent(Usage(output_tokens=7)))

    assert reply.usage == Usage(output_tokens=7)


def test_a_reply_from_the_cache_says_so() -> None:
    assert assembled(CacheHit(1.5), TextDelta("hi"), Finished("stop")).cached
    assert not assembled(TextDelta("hi"), Finished("stop")).cached


def test_a_stream_that_ends_without_its_end_is_an_error_worth_a_retry() -> None:
    with pytest.raises(ProviderError, match="ended after 5 characters") as caught:
        assembled(TextDelta("Hello"))

    assert caught.value.code == "provider_stream_cut"
    assert caught.value.retryable


def test_a_reply_beyond_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "REPLY_CHARS_MAX", 10)

    with pytest.raises(ProviderError, match="longer than 10 characters"):
        assembled(TextDelta("12345"), ReasoningDelta("12345"), CallDelta(0, arguments="1"))


def test_more_calls_than_the_bound_are_refused() -> None:
    calls = [CallDelta(index, f"id_{index}", "add") for index in range(CALLS_MAX + 1)]

    with pytest.raises(ProviderError, match=f"more than {CALLS_MAX} tool calls"):
        assembled(*calls)
