"""The follower believes nothing: what is lost, doubled or changed in a stream is an error."""

from typing import Any

import pytest

from tests.torture.follower import Seen, UnsoundError


def durable(seen: Seen, seq: int, kind: str, **said: Any) -> None:
    """Let the client read an event of the log."""
    seen.take(str(seq), kind, {"seq": seq, "data": said})


def delta(seen: Seen, offset: int, text: str) -> None:
    """Let the client read a piece of text."""
    data = {"message_id": "m1", "offset": offset, "text": text}
    seen.take(f"1~m1:{offset + len(text)}", "message.delta", {"data": data})


def test_text_that_is_said_again_after_a_resume_counts_once() -> None:
    seen = Seen()
    durable(seen, 1, "message.started", message_id="m1")
    delta(seen, 0, "größ")
    delta(seen, 0, "größer")

    durable(seen, 2, "message.completed", message_id="m1", content="größer")

    assert seen.completed == {"m1": "größer"}
    assert seen.position == "2"


def test_an_event_that_is_missing_or_comes_twice_is_unsound() -> None:
    for seq in (1, 3):
        seen = Seen()
        durable(seen, 1, "run.queued")
        with pytest.raises(UnsoundError, match="behind event 1"):
            durable(seen, seq, "run.started", worker="w")


def test_text_with_a_hole_or_with_other_words_is_unsound() -> None:
    for offset, text in ((5, "er"), (0, "grob")):
        seen = Seen()
        delta(seen, 0, "größ")
        with pytest.raises(UnsoundError):
            delta(seen, offset, text)


def test_a_completion_with_other_words_than_were_read_is_unsound() -> None:
    seen = Seen()
    durable(seen, 1, "message.started", message_id="m1")
    delta(seen, 0, "größ")

    with pytest.raises(UnsoundError, match="was read as"):
        durable(seen, 2, "message.completed", message_id="m1", content="größer")


def test_nothing_may_follow_the_end() -> None:
    seen = Seen()
    durable(seen, 1, "run.completed")

    with pytest.raises(UnsoundError, match=r"came behind run\.completed"):
        durable(seen, 2, "run.queued")
