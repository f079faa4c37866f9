"""The benchmark believes no stream that it has not checked."""

import pytest

from tests.benchmarks.streams import BadStreamError, check

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
STARTED = (b"run.started", b'{"data":{}}')
ASKED = (b"message.completed", b'{"data":{"message_id":"m1","content":""}}')
ADDED = (b"tool_call.completed", b'{"data":{"result":42}}')
SAID = (b"message.completed", b'{"data":{"message_id":"m2","content":"forty-two"}}')
ENDED = (b"run.completed", b'{"data":{}}')
TEXT = (b"message.delta", b'{"data":{"message_id":"m2","offset":0,"text":"forty-"}}')
REST = (b"message.delta", b'{"data":{"message_id":"m2","offset":6,"text":"two"}}')
GOOD = [STARTED, ASKED, ADDED, TEXT, REST, SAID, ENDED]

Event = tuple[bytes, bytes]


def response(events: list[Event], *, first_id: int = 1) -> bytes:
    """Return the events as a chunked response, a chunk each, numbered but for the deltas."""
    chunks, seq = [], first_id
    for kind, data in events:
        number = b"" if kind == b"message.delta" else b"id: %d\n" % seq
        seq += bool(number)
        frame = b"%bevent: %b\ndata: %b\n\n" % (number, kind, data)
        chunks.append(b"%x\r\n%b\r\n" % (len(frame), frame))
    return HEAD + b"".join(chunks) + b"0\r\n\r\n"


def test_a_right_stream_is_counted() -> None:
    assert check(response(GOOD)) == 5


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        pytest.param(GOOD[:-1], "the last event", id="no end"),
        pytest.param([*GOOD, ADDED], "the last event", id="something behind the end"),
        pytest.param([*GOOD, ENDED], "has others behind it", id="two ends"),
        pytest.param([STARTED, ASKED, TEXT, REST, SAID, ENDED], "a tool call", id="no tool call"),
        pytest.param([*GOOD[:3], REST, *GOOD[5:]], "the deltas say", id="a lost delta"),
        pytest.param(
            [STARTED, ASKED, (ADDED[0], b'{"data":{"result":41}}'), *GOOD[3:]],
            "result is 41",
            id="a wrong sum",
        ),
    ],
)
def test_a_wrong_stream_is_refused(events: list[Event], complaint: str) -> None:
    with pytest.raises(BadStreamError, match=complaint):
        check(response(events))


def test_a_gap_in_the_ids_is_refused() -> None:
    with pytest.raises(BadStreamError, match="event 1 has the id b'2'"):
        check(response(GOOD, first_id=2))


def test_a_stream_that_breaks_off_is_refused() -> None:
    frame = b"id: 1\nevent: run.st"

    with pytest.raises(BadStreamError, match="breaks off"):
        check(HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(frame), frame))


def test_an_error_is_no_stream() -> None:
    with pytest.raises(BadStreamError, match="queue_full"):
        check(b'HTTP/1.1 503 Service Unavailable\r\n\r\n{"code":"queue_full"}')
