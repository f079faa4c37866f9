"""The checks find what they look for: a sound history passes, and each way to break it is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.torture.checks import violations
from tests.torture.errands import errand
from tests.torture.follower import Seen
from tests.torture.history import Entry, History, Question, Run
from tests.torture.ledger import Effect
from tests.torture.load import Followed

RUN, CALL = "run_1", "call_1_0"
ERRAND = errand(1, 1, block_s=0.0)


class Past:
    """A run with a gated call that crashed once, and all that was seen and done meanwhile."""

    def __init__(self) -> None:
        said: list[tuple[int, str, dict[str, Any]]] = [
            (0, "run.queued", {}),
            (1, "run.started", {"attempt": 1, "worker": "w-1-wrk_1"}),
            (1, "message.started", {"message_id": "m1"}),
            (1, "message.completed", {"message_id": "m1", "content": ""}),
            (1, "approval.requested", {"approval_id": "a1", "call_id": CALL, "kind": "call"}),
            (2, "run.resumed", {"attempt": 2, "worker": "w-2-wrk_2", "why": "approval"}),
            (2, "approval.decided", {"approval_id": "a1", "decision": "approve"}),
            (2, "tool_call.started", {"call_id": CALL, "attempt": 1}),
            (2, "tool_call.completed", {"call_id": CALL}),
            (2, "message.started", {"message_id": "m2"}),
            (2, "message.completed", {"message_id": "m2", "content": "done"}),
            (2, "run.completed", {}),
        ]
        self.run = Run(RUN, "ses_1", "completed", 1, ERRAND.key)
        self.run.log = [
            Entry(seq, epoch, kind, seq, data) for seq, (epoch, kind, data) in enumerate(said, 1)
        ]
        self.runs = {RUN: self.run}
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
        history = History(self.runs, [self.question])
        return list(violations(history, self.effects, {RUN: Followed(ERRAND, RUN, self.seen)}))


def test_what_is_sound_passes() -> None:
    assert Past().found() == []


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
    past.runs["run_2"] = Run("run_2", "ses_2", "completed", 1, ERRAND.key, past.run.log)


def overlap_in_a_session(past: Past) -> None:
    past.runs["run_2"] = Run("run_2", "ses_1", "completed", 2, "another key", list(past.run.log))
    loaded = Entry(len(past.run.log) + 1, 2, "session.loaded", 0, {"turns": 0, "messages": 0})
    past.runs["run_2"].log.append(loaded)


def miss_an_event_as_a_client(past: Past) -> None:
    past.seen.seq -= 1


def read_other_words_as_a_client(past: Past) -> None:
    past.seen.completed["m2"] = "d0ne"


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
        (miss_an_event_as_a_client, "its client read 11 events, and there are 12"),
        (read_other_words_as_a_client, "its client's texts are not those of its log"),
    ],
)
def test_what_is_broken_is_named(breaking: Callable[[Past], None], named: str) -> None:
    past = Past()

    breaking(past)

    assert any(named in said for said in past.found()), past.found()
