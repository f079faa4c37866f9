"""Frames: events as bytes."""

import orjson
import pytest

from milepost.live.frames import Frame, ephemeral, rfc3339


def a_frame(kind: str = "step.started", data: bytes = b'{"index":1}') -> Frame:
    return Frame("run_1", 42, kind, 1_700_000_000_123, data)


def test_an_event_s_body_is_what_clients_read() -> None:
    assert orjson.loads(a_frame().body) == {
        "type": "step.started",
        "seq": 42,
        "time": "2023-11-14T22:13:20.123Z",
        "run_id": "run_1",
        "data": {"index": 1},
    }


def test_an_event_is_sent_with_its_place_and_its_name() -> None:
    frame = a_frame()

    assert frame.sse == b"id: 42\nevent: step.started\ndata: " + frame.body + b"\n\n"
    assert frame.sse is frame.sse


def test_its_own_data_can_be_read_back() -> None:
    frame = a_frame("message.completed", '{"content":"Grüße\\n"}'.encode())

    assert frame.payload == {"content": "Grüße\n"}
    assert frame.sse.count(b"\n") == 4


@pytest.mark.parametrize(
    "kind", ["run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired"]
)
def test_nothing_comes_after_a_terminal_event(kind: str) -> None:
    assert a_frame(kind).terminal


@pytest.mark.parametrize("kind", ["run.waiting", "run.retrying", "step.completed"])
def test_other_events_are_followed_by_more(kind: str) -> None:
    assert not a_frame(kind).terminal


def test_what_is_not_in_the_log_has_no_place_in_it() -> None:
    delta = ephemeral("message.delta", "run_1", {"text": "a\nb"}, "42~msg_1:3")
    farewell = ephemeral("stream.reconnect", "run_1", {"after_ms": 500}, None)

    assert delta == (
        b"id: 42~msg_1:3\nevent: message.delta\n"
        b'data: {"type":"message.delta","run_id":"run_1","data":{"text":"a\\nb"}}\n\n'
    )
    assert farewell.startswith(b"event: stream.reconnect\ndata: ")


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
    ],
)
def test_times_are_utc_to_the_millisecond(time_ms: int, text: str) -> None:
    assert rfc3339(time_ms) == text
