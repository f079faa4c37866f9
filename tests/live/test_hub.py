"""The hub: cursors over one ring, texts while they are written, and bells."""

from collections.abc import Sequence

import pytest

from milepost.live.frames import Frame
from milepost.live.hub import (
    BATCHES_BELL,
    OUTBOX_BELL,
    QUEUE_BELL,
    RING_BYTES_MAX,
    RING_MAX,
    Hub,
    LiveText,
    RunTail,
    inbox_bell,
    ring_for,
    session_bell,
    texts_closed_by,
)


def frames(*seqs: int, kind: str = "step.started", data: bytes = b"{}") -> list[Frame]:
    return [Frame("run_1", seq, kind, 0, data) for seq in seqs]


def closing(seq: int, kind: str, data: bytes = b'{"message_id":"msg_1"}') -> Frame:
    return Frame("run_1", seq, kind, 0, data)


def text(written: str = "", kind: str = "message.delta", after_seq: int = 1) -> LiveText:
    return LiveText(kind, "msg_1", after_seq, written)  # type: ignore[arg-type]  # a literal


def behind(tail: RunTail, cursor: int) -> list[int] | None:
    found = tail.behind(cursor)
    return None if found is None else [frame.seq for frame in found]


@pytest.fixture
def hub() -> Hub:
    return Hub()


# --- The ring ---


def test_only_the_log_can_tell_what_nobody_looked_at() -> None:
    assert RunTail("run_1").behind(0) is None


def test_a_cursor_gets_what_lies_behind_it() -> None:
    tail = RunTail("run_1")
    tail.add(frames(1, 2, 3))

    assert behind(tail, 0) == [1, 2, 3]
    assert behind(tail, 2) == [3]
    assert behind(tail, 3) == []
    assert behind(tail, 9) == []


def test_a_cursor_before_the_ring_is_sent_to_the_log() -> None:
    tail = RunTail("run_1")
    tail.add(frames(*range(1, RING_MAX + 3)))

    assert len(tail.ring) == RING_MAX
    assert behind(tail, 1) is None
    assert behind(tail, 2) == list(range(3, RING_MAX + 3))


def test_a_ring_of_large_events_is_bounded_in_bytes_and_keeps_the_last() -> None:
    tail = RunTail("run_1")
    large = b'"' + b"x" * (RING_BYTES_MAX // 3) + b'"'
    for seq in range(1, 10):
        tail.add(frames(seq, data=large))
        assert tail.ring_bytes == sum(len(frame.body) for frame in tail.ring) <= RING_BYTES_MAX

    assert behind(tail, 6) is None
    assert behind(tail, 7) == [8, 9]

    tail.add(frames(10, data=b'"' + b"x" * RING_BYTES_MAX + b'"'))
    assert behind(tail, 8) is None
    assert behind(tail, 9) == [10]


def test_a_ring_that_lacks_what_is_known_sends_to_the_log() -> None:
    tail = RunTail("run_1")
    tail.add(frames(1, 2))
    tail.know(3)

    assert behind(tail, 1) is None


def test_an_event_that_comes_twice_is_taken_once() -> None:
    tail = RunTail("run_1")
    tail.add(frames(1, 2))
    tail.add(frames(2, 3))

    assert behind(tail, 0) == [1, 2, 3]


def test_a_gap_empties_the_ring() -> None:
    tail = RunTail("run_1")
    tail.add(frames(1, 2))
    tail.add(frames(5))

    assert behind(tail, 2) is None
    assert behind(tail, 4) == [5]


def test_what_is_known_never_shrinks() -> None:
    tail = RunTail("run_1")
    tail.know(5)
    tail.know(3)

    assert tail.known == 5


# --- Holders and listeners ---


def test_a_run_is_kept_as_long_as_somebody_holds_it(hub: Hub) -> None:
    with hub.hold("run_1") as first, hub.hold("run_1") as second:
        assert first is second
    with hub.hold("run_1") as later:
        assert later is not first


def test_who_lets_go_of_a_run_takes_it_from_nobody_else(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken):
        with hub.hold("run_1"):
            pass
        hub.publish("run_1", frames(1))

        assert woken.is_set()
        assert behind(tail, 0) == [1]


def test_a_listener_is_woken_by_what_is_published(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken), hub.listen("run_2") as (_, other):
        hub.publish("run_1", frames(1))

        assert woken.is_set()
        assert not other.is_set()
        assert behind(tail, 0) == [1]


def test_a_log_that_is_doubted_is_looked_at_again(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken):
        tail.know(3)
        hub.doubt("run_1")
        hub.doubt("run_2")

        assert woken.is_set()
        assert tail.behind(3) is None


def test_a_hint_wakes_only_where_it_is_news(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken):
        hub.hint("run_1", 3)
        assert woken.is_set()
        woken.clear()
        hub.hint("run_1", 3)
        hub.hint("run_2", 3)

        assert not woken.is_set()
        assert behind(tail, 0) is None


def test_the_listened_are_counted(hub: Hub) -> None:
    with hub.listen("run_1"), hub.listen("run_1"), hub.hold("run_2"):
        assert hub.listened == ["run_1"]
        assert hub.listeners == 2
    assert hub.listened == []
    assert hub.listeners == 0


def test_who_listens_no_more_is_not_counted_while_another_holds_the_run(hub: Hub) -> None:
    with hub.hold("run_1"):
        with hub.listen("run_1"):
            pass

        assert hub.listened == []
        assert hub.listeners == 0


# --- Texts ---


def test_a_text_grows_while_it_is_written(hub: Hub) -> None:
    written = text()
    with hub.listen("run_1") as (tail, woken):
        hub.write("run_1", written, "Hel")
        hub.write("run_1", written, "lo")

        assert woken.is_set()
        assert tail.texts[written.key].text == "Hello"


def test_a_text_that_nobody_listens_to_still_grows(hub: Hub) -> None:
    written = text()
    hub.write("run_1", written, "Hel")
    with hub.listen("run_1") as (tail, _):
        hub.write("run_1", written, "lo")

        assert tail.texts[written.key].text == "Hello"


@pytest.mark.parametrize("kind", ["message.completed", "message.aborted"])
def test_a_message_that_is_over_takes_its_texts_along(hub: Hub, kind: str) -> None:
    with hub.listen("run_1") as (tail, _):
        hub.write("run_1", text(), "Hello")
        hub.write("run_1", text(kind="reasoning.delta"), "Hm")
        hub.publish("run_1", [closing(2, kind)])

        assert tail.texts == {}


def test_the_end_of_one_text_is_not_that_of_another(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, _):
        hub.write("run_1", text(), "Hello")
        hub.publish("run_1", [closing(2, "message.completed", b'{"message_id":"msg_2"}')])

        assert len(tail.texts) == 1


@pytest.mark.parametrize(
    "kind", ["tool_call.completed", "tool_call.failed", "tool_call.interrupted"]
)
def test_a_call_that_is_over_ends_its_progress(kind: str) -> None:
    frame = closing(2, kind, b'{"call_id":"call_1_0"}')

    assert texts_closed_by(frame) == [("tool_call.progress", "call_1_0")]


def test_other_events_close_nothing() -> None:
    assert texts_closed_by(closing(2, "message.started")) == []


def test_an_overheard_text_replaces_a_shorter_one(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken):
        hub.overhear("run_1", text("Hel"))
        hub.overhear("run_1", text("Hello"))
        woken.clear()
        hub.overhear("run_1", text("He"))

        assert tail.texts[text().key].text == "Hello"
        assert not woken.is_set()


def test_overheard_pieces_are_put_where_they_belong(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, _):
        hub.overhear_piece("run_1", text(), 0, "Hel")
        hub.overhear_piece("run_1", text(), 0, "Hel")
        hub.overhear_piece("run_1", text(), 2, "llo")

        assert tail.texts[text().key].text == "Hello"


def test_an_overheard_piece_wakes_only_where_it_is_news(hub: Hub) -> None:
    with hub.listen("run_1") as (_, woken):
        hub.overhear_piece("run_1", text(), 0, "Hel")
        assert woken.is_set()
        woken.clear()
        hub.overhear_piece("run_1", text(), 0, "Hel")

        assert not woken.is_set()


def test_an_overheard_piece_that_leaves_a_gap_is_dropped(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken):
        assert hub.overhear_piece("run_1", text(), 0, "Hel")
        woken.clear()
        assert not hub.overhear_piece("run_1", text(), 5, "world")

        assert tail.texts[text().key].text == "Hel"
        assert not woken.is_set()


def test_a_later_attempt_takes_the_place_of_an_earlier_one(hub: Hub) -> None:
    with hub.listen("run_1") as (tail, woken):
        hub.overhear_piece("run_1", text(after_seq=1), 0, "a worker that died")
        assert hub.overhear_piece("run_1", text(after_seq=4), 0, "again")
        assert tail.texts[text().key] == text("again", after_seq=4)

        woken.clear()
        hub.overhear("run_1", text("anew", after_seq=8))
        assert tail.texts[text().key] == text("anew", after_seq=8)
        assert woken.is_set()


def test_an_earlier_attempt_does_not_disturb_a_later_one(hub: Hub) -> None:
    """A worker that stood still does not know yet that another has taken its run."""
    attempt, zombie = text(after_seq=4), text(after_seq=1)
    with hub.listen("run_1") as (tail, woken):
        hub.write("run_1", attempt, "again")
        woken.clear()

        assert hub.overhear_piece("run_1", text(after_seq=1), 2, "no longer wanted")
        assert hub.overhear_piece("run_1", text(after_seq=1), 99, "no longer wanted")
        hub.overhear("run_1", text("no longer wanted", after_seq=1))
        hub.write("run_1", zombie, "no longer wanted")

        assert tail.texts == {attempt.key: attempt}
        assert attempt.text == "again"
        assert not woken.is_set()


def test_what_nobody_listens_to_is_not_overheard(hub: Hub) -> None:
    hub.overhear("run_1", text("Hello"))
    hub.overhear_piece("run_1", text(), 0, "Hello")

    with hub.listen("run_1") as (tail, _):
        assert tail.texts == {}


# --- Bells ---


def test_a_bell_wakes_all_who_wait_for_it(hub: Hub) -> None:
    with hub.bell("queue") as first, hub.bell("queue") as second, hub.bell("other") as other:
        hub.ring("queue")

        assert first.is_set()
        assert second.is_set()
        assert not other.is_set()


@pytest.mark.parametrize("kind", ["run.completed", "run.failed", "run.cancelled", "run.waiting"])
def test_a_run_that_comes_to_rest_here_rings_for_the_batches_and_webhooks(
    hub: Hub, kind: str
) -> None:
    with hub.bell(BATCHES_BELL) as batches, hub.bell(OUTBOX_BELL) as outbox:
        hub.publish("run_1", frames(1, kind="step.completed"))
        assert not batches.is_set()
        assert not outbox.is_set()

        hub.publish("run_1", [*frames(2), *frames(3, kind=kind)])
        assert batches.is_set()
        assert outbox.is_set()


def test_what_comes_in_for_a_run_wakes_who_has_it_and_who_may_take_it(hub: Hub) -> None:
    with hub.bell(inbox_bell("run_1")) as has_it, hub.bell(QUEUE_BELL) as may_take_it:
        ring_for(hub, "run_1")

        assert has_it.is_set()
        assert may_take_it.is_set()


def test_the_sessions_are_those_whose_bells_somebody_waits_for(hub: Hub) -> None:
    with hub.bell(session_bell("ses_1")), hub.bell(inbox_bell("run_1")):
        with hub.bell(session_bell("ses_1")):
            pass
        assert hub.sessions == ["ses_1"]

    assert hub.sessions == []


def test_a_bell_that_nobody_waits_for_may_be_rung(hub: Hub) -> None:
    with hub.bell(inbox_bell("run_1")):
        pass

    hub.ring(inbox_bell("run_1"))

    with hub.bell(inbox_bell("run_1")) as later:
        assert not later.is_set()


# --- The way to other processes ---


class Wire:
    """A link that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def published(self, run_id: str, seq: int) -> None:
        self.told.append(("published", run_id, seq))

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:
        self.told.append(("wrote", run_id, len(text.text), piece))

    def closed(self, run_id: str, text: LiveText) -> None:
        self.told.append(("closed", run_id, text.id))

    def rang(self, bell: str) -> None:
        self.told.append(("rang", bell))

    async def follow(self, run_id: str) -> None:
        self.told.append(("follow", run_id))

    def leave(self, run_id: str) -> None:
        self.told.append(("leave", run_id))

    async def erase(self, run_ids: Sequence[str]) -> None:
        self.told.append(("erase", *run_ids))


async def test_others_are_told_of_all_that_happens_here(hub: Hub) -> None:
    hub.link = wire = Wire()
    written = text()

    hub.publish("run_1", frames(1, 2))
    hub.write("run_1", written, "Hello")
    hub.close_text("run_1", written)
    hub.ring("queue")
    hub.chime("queue")
    hub.hint("run_1", 3)

    assert wire.told == [
        ("published", "run_1", 2),
        ("wrote", "run_1", 5, "Hello"),
        ("closed", "run_1", "msg_1"),
        ("rang", "queue"),
    ]


async def test_a_run_is_followed_once_however_many_listen(hub: Hub) -> None:
    hub.link = wire = Wire()

    await hub.follow("run_1")
    assert wire.told == [("follow", "run_1")]
    await hub.follow("run_1")
    hub.leave("run_1")
    assert wire.told == [("follow", "run_1")]
    hub.leave("run_1")

    assert wire.told == [("follow", "run_1"), ("leave", "run_1")]
    await hub.follow("run_1")
    assert wire.told[2:] == [("follow", "run_1")]


async def test_what_is_gone_is_erased_elsewhere_too_if_there_is_anything(hub: Hub) -> None:
    await hub.erase(["run_1"])
    hub.link = wire = Wire()

    await hub.erase([])
    await hub.erase(["run_1", "run_2"])

    assert wire.told == [("erase", "run_1", "run_2")]
