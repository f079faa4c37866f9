"""Events of the Responses API, as its vendor sends them and as others do."""

from collections.abc import Iterable
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses.response_error import ResponseError

from milepost.core.errors import ProviderError
from milepost.core.messages import Sealed
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
from milepost.providers.assemble import Assembly
from milepost.providers.failures import Failures
from milepost.providers.responses_events import SEALED_BYTES_MAX, Events
from milepost.providers.responses_items import ITEMS_MAX
from tests.stubs.responses_server import Script, response, usage

SEAL = "responses:openai"
ADD = RequestedCall("call_a", "add", '{"a":1}')
LOOK = RequestedCall("call_b", "look", '{"b":2}')


def decoder() -> Events:
    return Events(Failures("openai", None), SEAL)


def decoded(events: Iterable[Any]) -> list[Delta]:
    reading = decoder()
    return [delta for event in events for delta in reading.decode(orjson.dumps(event))]


def heard(events: Iterable[Any]) -> Reply:
    """Return the reply that whole `events` add up to."""
    reading, assembly = decoder(), Assembly()
    for event in events:
        for delta in reading.decode(orjson.dumps(event)):
            assembly.feed(delta)
    assert reading.finished
    assert reading.done
    assembly.feed(reading.finish())
    return assembly.reply()


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def added(at: int | None, kind: str, **item: Any) -> dict[str, Any]:
    place = {} if at is None else {"output_index": at}
    return event("output_item.added", item={"type": kind, **item}, **place)


def ended(at: int | None, kind: str, **item: Any) -> dict[str, Any]:
    return {**added(at, kind, **item), "type": "response.output_item.done"}


def thought(at: int, item: dict[str, Any]) -> dict[str, Any]:
    return event("output_item.done", item=item, output_index=at)


def arguments(delta: str, **place: Any) -> dict[str, Any]:
    return event("function_call_arguments.delta", delta=delta, **place)


COMPLETED = event("completed", response={"status": "completed"})


# --- As documented ----------------------------------------------------------------------------


def test_text_comes_as_text() -> None:
    script = Script()
    script.message("Hel", "lo")

    assert decoded(script.events) == [TextDelta("Hel"), TextDelta("lo")]


def test_a_refusal_is_an_answer_too() -> None:
    script = Script()
    script.message("I ", "won't.", refusing=True)

    assert heard(script.end()).text == "I won't."


def test_a_call_says_its_name_first_and_its_arguments_in_pieces() -> None:
    script = Script()
    script.call("add", '{"a":', "1}", call_id="call_a")

    assert decoded(script.events) == [
        CallDelta(0, "call_a", "add"),
        CallDelta(0, arguments='{"a":'),
        CallDelta(0, arguments="1}"),
    ]


def test_calls_may_come_in_turns() -> None:
    script = Script()
    script.calls(("add", ['{"a":', "1}"]), ("look", ['{"b":', "2", "}"]))

    reply = heard(script.end())

    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("add", '{"a":1}'),
        ("look", '{"b":2}'),
    ]
    assert reply.finish_reason == "tool_calls"


def test_thoughts_are_told_apart_by_a_blank_line() -> None:
    script = Script()
    script.thought(("First ", "this."), ("Then that.",))
    script.thought(("And more.",))

    assert decoded(script.events) == [
        ReasoningDelta("First "),
        ReasoningDelta("this."),
        ReasoningDelta("\n\nThen that."),
        ReasoningDelta("\n\nAnd more."),
    ]


def test_thoughts_that_are_no_summary_are_read_as_well() -> None:
    """As servers of open models say them."""
    place = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    pieces = [event("reasoning_text.delta", delta=delta, **place) for delta in ("Hm", ".")]

    assert decoded(pieces) == [ReasoningDelta("Hm"), ReasoningDelta(".")]


def test_usage_is_read_with_its_details() -> None:
    script = Script()
    took = usage(100, 20, cached=64, written=8, reasoning=12)

    assert decoded(script.end(usage=took)) == [Spent(Usage(100, 20, 64, 8, 12))]


def test_usage_in_odd_types_tells_nothing() -> None:
    took = {"input_tokens": "7", "output_tokens": True, "input_tokens_details": None}

    assert decoded([event("completed", response={"usage": took})]) == []


def test_the_end_names_the_response_and_the_model() -> None:
    reading = decoder()

    for each in Script().end():
        reading.decode(orjson.dumps(each))

    assert reading.finish() == Finished("stop", "resp_stub", "stub-model")


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        ({"reason": "something_new"}, "length"),
        (None, "length"),
    ],
)
def test_a_reply_that_was_cut_says_why(details: Any, reason: str) -> None:
    script = Script()
    script.message("Hel")
    cut = event("incomplete", response={"status": "incomplete", "incomplete_details": details})

    reply = heard([*script.events, cut])

    assert (reply.text, reply.finish_reason) == ("Hel", reason)


@pytest.mark.parametrize(
    "unheard",
    [
        event("queued", response={}),
        event("content_part.added", part={}),
        event("output_text.annotation.added", annotation={}),
        event("web_search_call.searching", item_id="ws_1"),
        event("from_the_future"),
        {"type": None},
        {"type": ["a", "list"]},
        {},
        added(0, "web_search_call", id="ws_1"),
        ended(0, "web_search_call", id="ws_1"),
        event("output_item.added", item=None),
        event("output_item.done", item="none"),
        event("output_text.delta", delta=None),
        event("created", response=None),
        {"error": None},
    ],
)
def test_events_that_say_nothing_to_us_are_nothing(unheard: dict[str, Any]) -> None:
    assert decoded([unheard]) == []


def test_what_follows_the_end_is_not_read() -> None:
    reading = decoder()

    reading.decode(orjson.dumps(COMPLETED))

    assert reading.decode(b"whatever") == []


def test_an_end_mark_is_an_end_for_who_sends_one() -> None:
    reading = decoder()
    reading.decode(orjson.dumps(event("output_text.delta", delta="Hello")))

    reading.decode(b"[DONE]")

    assert reading.done
    assert reading.finish() == Finished("stop", assumed=True)


def test_the_end_mark_of_no_reply_at_all_is_a_stream_that_broke_off() -> None:
    reading = decoder()

    with pytest.raises(ProviderError) as error:
        reading.decode(b"[DONE]")

    assert (error.value.code, error.value.retryable) == ("provider_stream_cut", True)


# --- What goes back ---------------------------------------------------------------------------


def sealed(*marks: dict[str, Any]) -> list[Delta]:
    return [SealedDelta(Sealed(SEAL, mark)) for mark in marks]


def seals_of(events: Iterable[Any]) -> list[Delta]:
    return [delta for delta in decoded(events) if isinstance(delta, SealedDelta)]


def thought_item(n: int, encrypted: str = "gAAAA") -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": "Hm."}]
    told = {"type": "reasoning", "id": f"rs_{n}", "summary": summary}
    return {**told, "encrypted_content": encrypted}


def test_a_thought_is_kept_as_it_came() -> None:
    script = Script()
    script.thought(("Hm.",))
    script.call("add", "{}")

    assert seals_of(script.end()) == sealed(thought_item(0))


def test_thoughts_between_calls_are_kept_in_their_places() -> None:
    script = Script()
    script.thought(("Hm.",))
    script.call("add", "{}")
    script.thought(("Hm.",))
    script.call("add", "{}")

    assert seals_of(script.end()) == sealed(
        thought_item(0), {"type": "function_call"}, thought_item(2)
    )


def test_the_phase_of_a_text_is_kept_and_not_the_text() -> None:
    script = Script()
    script.message("Let me look.", phase="commentary")
    script.call("look", "{}")
    script.message("It is noon.", phase="final_answer")

    assert seals_of(script.end()) == sealed(
        {"type": "message", "chars": 12, "phase": "commentary"},
        {"type": "function_call"},
        {"type": "message", "chars": 11, "phase": "final_answer"},
    )


def test_a_reply_without_thoughts_needs_nothing_kept() -> None:
    script = Script()
    script.message("Let me look.")
    script.call("look", "{}")

    assert seals_of(script.end()) == []


@pytest.mark.parametrize("encrypted", [None, ""])
def test_a_thought_that_is_only_an_id_is_not_kept(encrypted: str | None) -> None:
    """Who keeps no conversation does not know it, and refuses the whole request."""
    item = {**thought_item(0), "encrypted_content": encrypted}

    assert seals_of([thought(0, item), COMPLETED]) == []


def test_a_thought_in_plain_words_is_kept() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    item = {"type": "reasoning", "id": "rs_0", "summary": [], "content": content}

    assert decoded([thought(0, item), COMPLETED]) == [ReasoningDelta("Hm."), *sealed(item)]


def test_thoughts_without_end_are_refused() -> None:
    long = "x" * (SEALED_BYTES_MAX // 2)

    with pytest.raises(ProviderError, match="more than 4000000 bytes of thoughts"):
        decoded(thought(n, thought_item(n, long)) for n in range(3))


def test_a_thought_that_no_database_takes_is_left_out() -> None:
    deep: Any = []
    for _ in range(70):
        deep = [deep]

    assert seals_of([thought(0, {**thought_item(0), "deep": deep}), COMPLETED]) == []


# --- As a whole -------------------------------------------------------------------------------

CALL_A = {"call_id": "call_a", "name": "add", "arguments": '{"a":1}'}
CALL_B = {"call_id": "call_b", "name": "look", "arguments": '{"b":2}'}
MESSAGE = {"content": [{"type": "output_text", "text": "Hello"}]}


def test_what_comes_only_as_a_whole_is_taken_as_a_whole() -> None:
    summary = [{"type": "summary_text", "text": "Hm."}, {"type": "summary_text", "text": "So."}]
    events = [
        ended(0, "reasoning", id="rs_1", summary=summary),
        ended(1, "message", id="msg_1", **MESSAGE),
        ended(2, "function_call", id="fc_1", **CALL_A),
        COMPLETED,
    ]

    reply = heard(events)

    assert (reply.reasoning, reply.text, reply.calls) == ("Hm.\n\nSo.", "Hello", (ADD,))


def test_a_reply_that_comes_all_at_its_end_is_taken_then() -> None:
    output = [{"type": "message", **MESSAGE}, {"type": "function_call", **CALL_A}, "noise"]

    reply = heard([event("completed", response={"output": output})])

    assert (reply.text, reply.calls) == ("Hello", (ADD,))


def test_what_came_in_pieces_is_not_said_again() -> None:
    script = Script()
    script.thought(("Hm.",))
    script.message("Hel", "lo")
    script.call("add", '{"a":', "1}", call_id="call_a")

    reply = heard(script.end())

    assert (reply.reasoning, reply.text, reply.calls) == ("Hm.", "Hello", (ADD,))


@pytest.mark.parametrize(
    "whole",
    [
        event("function_call_arguments.done", item_id="fc_1", arguments='{"a":1}'),
        ended(0, "function_call", id="fc_1", **CALL_A),
    ],
)
def test_a_piece_that_went_missing_is_made_up_for(whole: dict[str, Any]) -> None:
    begun = added(0, "function_call", id="fc_1", name="add", call_id="call_a")

    assert heard([begun, arguments('{"a"', item_id="fc_1"), whole, COMPLETED]).calls == (ADD,)


def test_a_call_that_is_written_anew_at_its_end_stays_what_it_was() -> None:
    begun = added(0, "function_call", id="fc_1", name="add", call_id="call_a")
    anew = ended(0, "function_call", id="fc_1", arguments='{ "a": 1 }')

    assert heard([begun, arguments('{"a":1}', item_id="fc_1"), anew, COMPLETED]).calls == (ADD,)


@pytest.mark.parametrize("whole", ['{"a":2}', "{oops"])
def test_a_call_in_two_versions_is_none(whole: str) -> None:
    begun = added(0, "function_call", id="fc_1", name="add", call_id="call_a")
    other = ended(0, "function_call", id="fc_1", arguments=whole)

    with pytest.raises(ProviderError, match="a call in two versions"):
        decoded([begun, arguments('{"a":1}', item_id="fc_1"), other])


def test_a_call_that_was_whole_takes_no_more() -> None:
    whole = ended(0, "function_call", id="fc_1", **CALL_A)

    with pytest.raises(ProviderError, match="more of a call that was whole"):
        decoded([whole, arguments("}", item_id="fc_1", output_index=0)])


def test_the_same_end_twice_is_one_end() -> None:
    whole = ended(0, "function_call", id="fc_1", **CALL_A)

    assert heard([whole, whole, COMPLETED]).calls == (ADD,)


@pytest.mark.parametrize("ending", [orjson.dumps(COMPLETED), b"[DONE]"])
def test_arguments_of_a_call_without_a_name_are_none(ending: bytes) -> None:
    reading = decoder()
    reading.decode(orjson.dumps(arguments('{"a":1}', item_id="fc_1", output_index=0)))

    with pytest.raises(ProviderError, match="arguments of a call without a name") as caught:
        reading.decode(ending)

    assert caught.value.retryable


# --- Who is who -------------------------------------------------------------------------------


def call_events(places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return two calls whose events are told apart by `places` alone, in turns."""
    ids = [place.get("item_id") for place in places]
    at = [place.get("output_index") for place in places]
    told = [CALL_A, CALL_B]
    begun = [
        added(
            at[n],
            "function_call",
            **({"id": ids[n]} if ids[n] else {}),
            **{**told[n], "arguments": ""},
        )
        for n in (0, 1)
    ]
    pieces = [
        arguments(piece, **places[n])
        for turn in ((0, '{"a"'), (1, '{"b"'), (0, ":1}"), (1, ":2}"))
        for n, piece in [turn]
    ]
    return [*begun, *pieces]


@pytest.mark.parametrize(
    "places",
    [
        [{"item_id": "fc_1", "output_index": 0}, {"item_id": "fc_2", "output_index": 1}],
        [{"item_id": "fc_1"}, {"item_id": "fc_2"}],
        [{"output_index": 0}, {"output_index": 1}],
        [{"item_id": "same", "output_index": 0}, {"item_id": "same", "output_index": 1}],
        [{"item_id": "fc_1", "output_index": 0}, {"item_id": "fc_2", "output_index": 0}],
        [{"item_id": "fc_1", "output_index": 7}, {"item_id": "fc_2", "output_index": 3}],
        [{"item_id": "fc_1", "output_index": "0"}, {"item_id": "fc_2", "output_index": -1}],
    ],
    ids=["both", "ids", "indices", "one id", "one index", "wrong indices", "odd indices"],
)
def test_calls_are_told_apart_by_what_there_is_of_ids_and_indices(
    places: list[dict[str, Any]],
) -> None:
    assert heard([*call_events(places), COMPLETED]).calls == (ADD, LOOK)


def test_ids_that_change_with_every_event_are_not_believed() -> None:
    events = [
        added(0, "function_call", id="x1", **{**CALL_A, "arguments": ""}),
        arguments('{"a"', item_id="x2", output_index=0),
        arguments(":1}", item_id="x3", output_index=0),
        ended(0, "function_call", id="x4", **CALL_A),
        COMPLETED,
    ]

    assert heard(events).calls == (ADD,)


def test_calls_with_neither_ids_nor_indices_come_one_after_another() -> None:
    events = [
        added(None, "function_call", **{**CALL_A, "arguments": ""}),
        arguments('{"a":1}'),
        ended(None, "function_call", **CALL_A),
        ended(None, "function_call", **CALL_B),
        COMPLETED,
    ]

    assert heard(events).calls == (ADD, LOOK)


def test_an_index_that_points_to_something_else_is_not_believed() -> None:
    events = [
        added(0, "message", id="msg_1"),
        added(1, "function_call", id="fc_1", **{**CALL_A, "arguments": ""}),
        arguments('{"a":1}', output_index=0),
        COMPLETED,
    ]

    assert heard(events).calls == (ADD,)


def test_an_id_used_again_in_another_place_is_another_call() -> None:
    events = [
        ended(0, "function_call", id="fc_1", **CALL_A),
        ended(1, "function_call", id="fc_1", **CALL_B),
        COMPLETED,
    ]

    assert heard(events).calls == (ADD, LOOK)


def test_a_call_announced_twice_is_one_call() -> None:
    begun = added(0, "function_call", id="fc_1", **{**CALL_A, "arguments": ""})

    events = [begun, begun, arguments('{"a":1}', item_id="fc_1", output_index=0), COMPLETED]

    assert heard(events).calls == (ADD,)


EARLY = [
    added(0, "function_call", id="fc_1", **{**CALL_A, "arguments": ""}),
    arguments('{"a":1}', item_id="fc_1", output_index=0),
    event("function_call_arguments.done", arguments='{"a":1}', item_id="fc_1", output_index=0),
]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_call_may_be_announced_when_it_has_begun(order: tuple[int, ...]) -> None:
    reply = heard([*(EARLY[n] for n in order), ended(0, "function_call", id="fc_1"), COMPLETED])

    assert reply.calls == (ADD,)


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (2, 1, 0)])
def test_a_piece_of_a_call_cannot_come_after_the_whole(order: tuple[int, ...]) -> None:
    with pytest.raises(ProviderError, match="more of a call that was whole"):
        decoded(EARLY[n] for n in order)


def test_a_call_without_an_id_of_its_own_has_that_of_its_item() -> None:
    events = [ended(0, "function_call", id="fc_1", name="add", arguments="{}"), COMPLETED]

    assert heard(events).calls == (RequestedCall("fc_1", "add", "{}"),)


def test_items_without_end_are_refused() -> None:
    with pytest.raises(ProviderError, match="a reply of more than 1024 items"):
        decoded(added(n, "message", id=f"msg_{n}") for n in range(ITEMS_MAX + 1))


# --- Errors -----------------------------------------------------------------------------------

OVERLOAD = {"code": "server_error", "message": "too busy"}


@pytest.mark.parametrize(
    "failing",
    [
        {"type": "error", **OVERLOAD, "param": None, "sequence_number": 3},
        {"type": "error", "error": OVERLOAD},
        {"error": OVERLOAD},
        event("failed", response=response("failed", error=OVERLOAD)),
        event("completed", response={"status": "failed", "error": OVERLOAD}),
        event("failed", response={"status": "completed", "error": OVERLOAD}),
    ],
    ids=["flat", "nested", "bare", "a reply", "a complete reply", "a reply that says otherwise"],
)
def test_an_error_is_raised_wherever_it_stands(failing: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match="openai answered 500: too busy") as caught:
        decoded([failing])

    assert (caught.value.code, caught.value.retryable) == ("provider_overloaded", True)


def test_every_failure_that_the_vendor_names_is_the_requests_or_passes() -> None:
    codes = get_args(ResponseError.model_fields["code"].annotation)
    retryable = set()

    for code in codes:
        with pytest.raises(ProviderError) as caught:
            decoded([event("failed", response={"error": {"code": code, "message": "no"}})])
        if caught.value.retryable:
            retryable.add(code)

    assert retryable == {"server_error", "rate_limit_exceeded", "vector_store_timeout"}


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_reply_that_failed_without_a_word_failed_all_the_same(status: str) -> None:
    with pytest.raises(ProviderError, match=f"the reply was {status}") as caught:
        decoded([event(status, response={})])

    assert caught.value.retryable


@pytest.mark.parametrize("payload", [b"{oops", b"[1,2]", b"7", b'{"a":NaN}', b"[" * 5_000])
def test_an_event_that_is_no_object_is_an_error(payload: bytes) -> None:
    with pytest.raises(ProviderError, match="openai sent an event that is no JSON"):
        decoder().decode(payload)


# --- Anything ---------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**40) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SOME_IDS = st.sampled_from(["a", "b", ""])
INDICES = st.sampled_from([0, 1, 2, -1])
PIECES = st.sampled_from(['{"a"', ":1}", "{}", "x", ""])


def objects(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        key: said | ANYTHING for key, said in keys.items()
    }
    return st.fixed_dictionaries({}, optional=optional)


PARTS = objects(type=st.just("output_text"), text=PIECES, refusal=PIECES)
ITEMS = objects(
    type=st.sampled_from(["message", "function_call", "reasoning", "program"]),
    id=SOME_IDS,
    call_id=SOME_IDS,
    name=st.sampled_from(["add", "look"]),
    arguments=PIECES,
    content=st.lists(PARTS, max_size=2),
    summary=st.lists(PARTS, max_size=2),
    encrypted_content=st.text(max_size=3),
    phase=st.just("commentary"),
)
RESPONSES = objects(
    id=SOME_IDS,
    status=st.sampled_from(["completed", "incomplete", "failed"]),
    output=st.lists(ITEMS, max_size=3),
    usage=objects(input_tokens=st.integers(), output_tokens_details=objects()),
    incomplete_details=objects(reason=st.just("content_filter")),
    error=objects(code=st.just("server_error"), message=st.text()),
)
KINDS = [kind for kind in Events._READERS if kind != "error"]
EVENTS = objects(
    type=st.sampled_from(KINDS),
    item_id=SOME_IDS,
    output_index=INDICES,
    summary_index=INDICES,
    delta=PIECES,
    arguments=PIECES,
    item=ITEMS,
    response=RESPONSES,
)


@given(st.lists(EVENTS | ANYTHING, max_size=8), st.booleans())
def test_whatever_a_server_sends_is_deltas_or_a_provider_error(
    events: list[Any], ends: bool
) -> None:
    reading, assembly = decoder(), Assembly()

    try:
        for each in [*events, COMPLETED] if ends else events:
            for delta in reading.decode(orjson.dumps(each)):
                assembly.feed(delta)
    except ProviderError:
        return

    if reading.finished:
        assembly.feed(reading.finish())
        reply = assembly.reply()
        assert all(call.name for call in reply.calls)
        assert reply.finish_reason in {"stop", "tool_calls", "length", "content_filter"}
        assert {kept.wire for kept in reply.sealed} <= {SEAL}
        assert sum(mark.item["type"] == "function_call" for mark in reply.sealed) <= len(
            reply.calls
        )
