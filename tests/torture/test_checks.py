"""The checks find what they look for: a sound history passes, and each way to break it is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from milepost.core.usage import Usage
from tests.torture.checks import untimely, untold, violations
from tests.torture.errands import errand
from tests.torture.follower import Seen
from tests.torture.history import Batch, Entry, History, Question, Run, SpanRow
from tests.torture.ledger import Effect
from tests.torture.load import Followed

RUN, CALL = "run_1", "call_1_0"
ERRAND = errand(1, 1, block_s=0.0)
QUEUED = {
    "agent": "tortured", "agent_id": "agt_1", "agent_version": 1,
    "session_id": "ses_1", "input": [],
}  # fmt: skip
CALLED = {
    "call_id": CALL, "name": "refund", "arguments": {}, "kind": "server",
    "idempotency_key": "key_1", "message_id": "m1",
}  # fmt: skip
FAILURE = {"code": "x", "message": ""}
BATCH_COUNTS = {"completed": 1, "failed": 0, "running": 0}
REPLIED = {"finish_reason": "stop", "usage": {"input_tokens": 10, "output_tokens": 5}}


class Past:
    """A run with a gated call that crashed once, and all that was seen and done meanwhile."""

    def __init__(self) -> None:
        answered = {"approval_id": "a1", "call_id": CALL}
        asked = {
            **answered, "kind": "call", "tool": "refund",
            "arguments": {}, "digest": "", "preview": "", "policy": "", "expires_at_ms": 9,
        }  # fmt: skip
        said: list[tuple[int, str, dict[str, Any]]] = [
            (0, "run.queued", QUEUED),
            (1, "run.started", {"attempt": 1, "worker": "w-1-wrk_1"}),
            (1, "message.started", {"message_id": "m1", "model": "m"}),
            (1, "message.completed", {"message_id": "m1", "content": "", **REPLIED}),
            (1, "tool_call.requested", CALLED),
            (1, "approval.requested", asked),
            (2, "run.resumed", {"attempt": 2, "worker": "w-2-wrk_2", "why": "approval"}),
            (2, "approval.decided", {**answered, "decision": "approve", "by": "ann"}),
            (2, "tool_call.started", {"call_id": CALL, "attempt": 1, "effect": "once"}),
            (2, "tool_call.completed", {"call_id": CALL, "result": "ok", "duration_ms": 1}),
            (2, "message.started", {"message_id": "m2", "model": "m"}),
            (2, "message.completed", {"message_id": "m2", "content": "done", **REPLIED}),
            (2, "run.completed", {"output": {"text": "done"}, "usage": {}}),
        ]
        self.run = Run(RUN, "ses_1", "completed", 1, ERRAND.key)
        self.run.log = [
            Entry(seq, epoch, kind, seq, data) for seq, (epoch, kind, data) in enumerate(said, 1)
        ]
        self.runs = {RUN: self.run}
        self.usage = {4: Usage(10, 5), 12: Usage(10, 5)}
        self.spans = [
            SpanRow(3, "chat", 3, 4, "ok"),
            SpanRow(2, "invoke_agent", 2, 6, "ok"),
            SpanRow(9, "execute_tool", 9, 10, "ok"),
            SpanRow(11, "chat", 11, 12, "ok"),
            SpanRow(7, "invoke_agent", 7, 13, "ok"),
        ]
        self.batches = [Batch("bat_1", "completed", 1, BATCH_COUNTS, [("completed", RUN)])]
        self.told = {(RUN, "run.completed")}
        self.question = Question("a1", RUN, CALL, "call", "approved")
        self.effects = [Effect("refund", "gated", RUN, CALL, "key_1", 1, 7)]
        texts = {"m1": "", "m2": "done"}
        self.seen = Seen(seq=len(said), terminal="run.completed", completed=texts)

    def change(self, kind: str, **said: Any) -> None:
        """Let an event have said something else."""
        place = next(at for at, entry in enumerate(self.run.log) if entry.type == kind)
        entry = self.run.log[place]
        self.run.log[place] = replace(entry, said={**entry.said, **said})

    def found(self) -> list[str]:
        """Return what the checks say."""
        usage, spans = {RUN: self.usage}, {RUN: self.spans}
        history = History(self.runs, [self.question], self.batches, usage, spans)
        followed = {RUN: Followed(ERRAND, RUN, self.seen)}
        return [*violations(history, self.effects, followed), *untold(history, self.told)]

    def have_a_child(self, told: str | None = "failed") -> None:
        """Let the run have called another one, which has failed, and have been `told` of it."""
        end = Entry(2, 1, "run.failed", 2, {"error": FAILURE, "usage": {}})
        queued = Entry(1, 0, "run.queued", 1, QUEUED)
        self.runs["run_2"] = Run("run_2", "ses_2", "failed", 1, ERRAND.key, RUN, [queued, end])
        self.told.add(("run_2", "run.failed"))
        if told is not None:
            ended = {"call_id": "call_2", "run_id": "run_2", "status": told, "usage": {}}
            self.run.log.insert(12, Entry(13, 2, "child_run.ended", 13, ended))
            self.run.log[13] = replace(self.run.log[13], seq=14)
            self.seen.seq = 14


def test_what_is_sound_passes() -> None:
    assert Past().found() == []


def test_a_child_that_its_parent_was_told_of_passes() -> None:
    past = Past()

    past.have_a_child()

    assert past.found() == []


def lose_an_event(past: Past) -> None:
    del past.run.log[5]


def append_behind_the_end(past: Past) -> None:
    past.run.log.append(Entry(len(past.run.log) + 1, 2, "message.started", 0, {"message_id": "m3"}))


def end_twice(past: Past) -> None:
    past.run.log.append(replace(past.run.log[-1], seq=len(past.run.log) + 1))


def let_a_zombie_append(past: Past) -> None:
    past.run.log[-2] = replace(past.run.log[-2], epoch=1)


def claim_under_an_old_epoch(past: Past) -> None:
    past.change("run.resumed", attempt=1)


def stop_on_the_way(past: Past) -> None:
    past.run.status = "running"
    past.run.log.pop()


def act_twice(past: Past) -> None:
    past.effects.append(past.effects[0])


def act_without_a_start(past: Past) -> None:
    past.effects[0] = replace(past.effects[0], attempt=2)


def act_without_a_yes(past: Past) -> None:
    past.change("approval.decided", decision="deny")


def report_what_was_not_done(past: Past) -> None:
    past.effects.clear()


def decide_twice(past: Past) -> None:
    decided = next(entry for entry in past.run.log if entry.type == "approval.decided")
    past.run.log[4:4] = [decided]


def make_two_runs_for_a_key(past: Past) -> None:
    past.runs["run_2"] = Run("run_2", "ses_2", "completed", 1, ERRAND.key, log=past.run.log)


def overlap_in_a_session(past: Past) -> None:
    past.runs["run_2"] = Run(
        "run_2", "ses_1", "completed", 2, "another key", log=list(past.run.log)
    )
    loaded = Entry(len(past.run.log) + 1, 2, "session.loaded", 0, {"turns": 0, "messages": 0})
    past.runs["run_2"].log.append(loaded)


def miss_an_event_as_a_client(past: Past) -> None:
    past.seen.seq -= 1


def read_other_words_as_a_client(past: Past) -> None:
    past.seen.completed["m2"] = "d0ne"


def bill_twice(past: Past) -> None:
    past.usage[5] = Usage(10, 5)


def bill_too_little(past: Past) -> None:
    del past.usage[12]


def leave_a_span_open(past: Past) -> None:
    past.spans.pop()


def end_a_span_at_another_time(past: Past) -> None:
    past.spans[0] = replace(past.spans[0], end_ms=5)


def tell_no_webhook(past: Past) -> None:
    past.told.clear()


def tell_a_parent_nothing(past: Past) -> None:
    past.have_a_child(told=None)


def tell_a_parent_something_else(past: Past) -> None:
    past.have_a_child(told="completed")


def lose_a_parent(past: Past) -> None:
    past.have_a_child()
    past.runs["run_2"].parent = "run_3"


def leave_a_batch_open(past: Past) -> None:
    past.batches[0] = replace(past.batches[0], status="running")


def count_an_item_twice(past: Past) -> None:
    past.batches[0] = replace(past.batches[0], counts={"completed": 2})


def lose_an_item(past: Past) -> None:
    past.batches[0] = replace(past.batches[0], total=2)


def make_an_item_of_a_run_again(past: Past) -> None:
    past.batches[0].items.append(("completed", RUN))


def end_an_item_in_another_way(past: Past) -> None:
    past.batches[0].items[0] = ("failed", RUN)


def make_no_run_of_an_item(past: Past) -> None:
    past.batches[0].items[0] = ("completed", None)


@pytest.mark.parametrize(
    ("breaking", "named"),
    [
        (lose_an_event, "its log has a gap"),
        (append_behind_the_end, "message.started follows run.completed"),
        (end_twice, "2 events end it"),
        (let_a_zombie_append, "its epochs go back"),
        (claim_under_an_old_epoch, "its claims are [1, 1]"),
        (stop_on_the_way, "stuck: running"),
        (act_twice, "refund was done 2 times"),
        (act_without_a_start, "attempt 2 is not in its log"),
        (act_without_a_yes, "nobody had approved it"),
        (report_what_was_not_done, "is completed, and was never done"),
        (decide_twice, "a1 was decided 2 times"),
        (make_two_runs_for_a_key, "made ['run_1', 'run_2']"),
        (overlap_in_a_session, "it began before run_1 of its session had ended"),
        (bill_twice, "its rows of usage are"),
        (bill_too_little, "its rows of usage are"),
        (leave_a_span_open, "its log tells of spans that there are none of"),
        (end_a_span_at_another_time, "there are spans that its log does not tell of"),
        (tell_no_webhook, "no webhook was told that it is completed"),
        (tell_a_parent_nothing, "it is failed, and its parent was told []"),
        (tell_a_parent_something_else, "it is failed, and its parent was told ['completed']"),
        (lose_a_parent, "its parent run_3 is gone"),
        (leave_a_batch_open, "bat_1: it is running"),
        (count_an_item_twice, "it counts {'completed': 2}"),
        (lose_an_item, "it has 1 items of 2"),
        (make_an_item_of_a_run_again, "run_1 is 2 items"),
        (end_an_item_in_another_way, "an item is failed, and run_1 is completed"),
        (make_no_run_of_an_item, "an item is completed, and None is gone"),
        (miss_an_event_as_a_client, "its client read 12 events, and there are 13"),
        (read_other_words_as_a_client, "its client's texts are not those of its log"),
    ],
)
def test_what_is_broken_is_named(breaking: Callable[[Past], None], named: str) -> None:
    past = Past()

    breaking(past)

    assert any(named in said for said in past.found()), past.found()


TIME = ("sch_1", "2099-01-01T00:00:00.000Z")


def timely(*runs: Run) -> History:
    return History({run.id: run for run in runs}, [])


def a_run_at(time: tuple[str, str], run_id: str = RUN, parent: str | None = None) -> Run:
    return Run(run_id, "ses_1", "completed", 1, None, parent, time=time)


def test_a_time_that_came_once_is_as_it_should_be() -> None:
    child = a_run_at(TIME, "run_2", parent=RUN)

    assert list(untimely(timely(a_run_at(TIME), child), {TIME}, ())) == []
    assert list(untimely(timely(a_run_at(TIME)), (), {TIME})) == []
    assert list(untimely(timely(), (), {TIME})) == []


def test_a_time_that_came_twice_is_found() -> None:
    twice = timely(a_run_at(TIME), a_run_at(TIME, "run_2"))

    assert list(untimely(twice, {TIME}, ())) == [f"{TIME} came 2 times"]
    assert list(untimely(twice, (), {TIME})) == [f"{TIME} came 2 times"]


def test_a_time_that_never_came_is_found() -> None:
    assert list(untimely(timely(), {TIME}, ())) == [f"{TIME} never came"]


def test_a_time_that_nobody_set_is_found() -> None:
    assert list(untimely(timely(a_run_at(TIME)), (), ())) == [f"{TIME} came, and nobody had set it"]
