"""A position takes everything once, whatever a server sends again."""

import orjson
from httpx2 import ServerSentEvent
from hypothesis import given
from hypothesis import strategies as st

from milepost.client.position import Position


def frame(kind: str, data: dict[str, object], *, seq: int | None = None) -> ServerSentEvent:
    said = {"type": kind, "run_id": "run_1", "data": data, **({} if seq is None else {"seq": seq})}
    return ServerSentEvent(kind, orjson.dumps(said).decode(), str(seq or ""))


def delta(
    offset: int, text: str, *, kind: str = "message.delta", of: str = "msg_1"
) -> ServerSentEvent:
    name = "call_id" if kind == "tool_call.progress" else "message_id"
    return frame(kind, {name: of, "offset": offset, "text": text})


@given(st.text(min_size=1), st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9))))
def test_pieces_that_overlap_in_any_way_add_up_to_the_text(
    text: str, pieces: list[tuple[int, int]]
) -> None:
    position, known, read = Position(), 0, ""

    for back, forward in (*pieces, (3, len(text))):
        start, end = max(0, known - back), max(0, known + forward)
        event = position.take(delta(start, text[start:end]))
        read += event.data["text"] if event else ""
        known = min(len(text), max(known, end))

    assert read == text


def test_an_event_that_was_seen_is_not_taken_again() -> None:
    position = Position()
    position.take(frame("step.started", {"index": 1}, seq=3))

    assert position.take(frame("step.started", {"index": 1}, seq=3)) is None
    assert position.take(frame("step.completed", {}, seq=4)) is not None


def test_who_begins_inside_a_message_is_given_the_rest_of_it() -> None:
    position = Position("41~msg_1:4")

    event = position.take(delta(0, "abcdefg"))

    assert event is not None
    assert event.data == {"message_id": "msg_1", "offset": 4, "text": "efg"}


def test_texts_of_different_kinds_and_owners_are_kept_apart() -> None:
    position = Position()
    position.take(delta(0, "abc"))

    others = [
        position.take(delta(0, "abc", kind="reasoning.delta")),
        position.take(delta(0, "abc", of="msg_2")),
        position.take(delta(0, "abc", kind="tool_call.progress", of="msg_1")),
    ]

    assert [event.data["text"] for event in others if event] == ["abc"] * 3


def test_the_id_of_an_event_without_one_is_that_of_the_last_that_had_one() -> None:
    position = Position("7")

    event = position.take(delta(0, "thinking", kind="reasoning.delta"))

    assert event is not None
    assert event.id == "7"


def test_a_finished_text_is_forgotten() -> None:
    position = Position()
    position.take(delta(0, "abc"))
    position.take(frame("message.completed", {"message_id": "msg_1", "content": "abc"}, seq=5))

    assert position._known == {}
