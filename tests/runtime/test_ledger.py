"""The ledger of a run's calls: it says of each what the log says of it."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.codec import encode
from milepost.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalWithdrawn,
    Event,
    Failure,
    ForkedCall,
    RunCancelled,
    RunForked,
    RunResumed,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.messages import ToolCall
from milepost.core.open_call import CallStatus
from milepost.core.repetition import ToolEffect
from milepost.core.usage import Usage
from milepost.runtime.ledger import EVENTS, CallState, Ledger, LedgerCall
from milepost.runtime.settle import GIVEN_UP
from milepost.store.records import LogEntry
from milepost.store.tool_calls import LEDGER_TYPES
from tests.core.world import VARIANTS, World

TURNS_MAX = 120
PAY = ToolCallRequested("call_1_0", "pay", {"amount": 5}, "server", "key-1", "msg_1")
UNKNOWN = Failure("outcome_unknown", "nobody knows")
BEGUN = ToolCallStarted("call_1_0", 1, "once")
ASKED = ApprovalRequested("apr_1", "call_1_0", "pay", {"amount": 5}, "d", "pay(5)", "policy", 9)
ENDED = RunCancelled("ann", None, (), Usage())


def entries(*events: Event) -> list[LogEntry]:
    """Return a log in which every event takes ten milliseconds."""
    return [
        LogEntry(seq, event.type, 1_000 + 10 * seq, encode(event).decode())
        for seq, event in enumerate(events, start=1)
    ]


def call(*events: Event) -> LedgerCall:
    """Return what the ledger says of the call after these events."""
    ledger = Ledger("run_1")
    ledger.read(entries(PAY, *events))
    found = ledger.get("call_1_0")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "requested"),
        ([ASKED], "waiting"),
        ([ASKED, ApprovalDecided("apr_1", "call_1_0", "approve", "ann")], "requested"),
        ([BEGUN], "started"),
        ([BEGUN, ToolCallCompleted("call_1_0", "paid", 7)], "completed"),
        ([BEGUN, ToolCallFailed("call_1_0", Failure("tool_failed", "no"))], "failed"),
        ([ToolCallFailed("call_1_0", Failure("unknown_tool", "no"))], "failed"),
        ([ToolCallDenied("call_1_0", "policy", "no")], "denied"),
        ([BEGUN, RunResumed(2, "w2", "crash")], "interrupted"),
        ([BEGUN, RunResumed(2, "w2", "crash"), ToolCallInterrupted("call_1_0", "check")],
         "interrupted"),
        ([BEGUN, ToolCallInterrupted("call_1_0", "tell_model"),
          ToolCallFailed("call_1_0", UNKNOWN)], "unknown"),
        ([BEGUN, ToolCallFailed("call_1_0", GIVEN_UP)], "unknown"),
        ([BEGUN, ENDED], "unknown"),
        ([ASKED, ApprovalWithdrawn("apr_1", "call_1_0"), ENDED], "requested"),
        ([ASKED, ENDED], "denied"),
    ],
)  # fmt: skip
def test_a_call_is_as_far_as_its_events_have_come(events: list[Event], state: CallState) -> None:
    assert call(*events).state == state


@pytest.mark.parametrize(
    ("effect", "state"),
    [
        ("once", "unknown"),
        ("checkable", "unknown"),
        ("idempotent", "unknown"),
        ("read", "failed"),
        ("transactional", "failed"),
    ],
)
def test_only_what_outlasts_its_attempt_is_unknown_when_it_is_given_up(
    effect: ToolEffect, state: CallState
) -> None:
    given_up = call(ToolCallStarted("call_1_0", 1, effect), ToolCallFailed("call_1_0", GIVEN_UP))

    assert given_up.state == state


def test_every_attempt_has_its_times_and_what_it_came_to() -> None:
    twice = call(
        BEGUN,
        RunResumed(2, "w2", "crash"),
        ToolCallInterrupted("call_1_0", "repeat"),
        ToolCallStarted("call_1_0", 2, "idempotent", {"amount": 6}),
        ToolCallCompleted("call_1_0", {"paid": 6}, 7),
    )

    assert [(each.attempt, each.outcome) for each in twice.attempts] == [
        (1, "interrupted"),
        (2, "completed"),
    ]
    assert [(each.started_ms, each.ended_ms) for each in twice.attempts] == [
        (1_020, 1_030),
        (1_050, 1_060),
    ]
    assert twice.arguments == {"amount": 6}
    assert (twice.effect, twice.result, twice.duration_ms) == ("idempotent", {"paid": 6}, 7)


def test_a_client_goes_on_with_its_call_when_a_worker_dies() -> None:
    ledger = Ledger("run_1")
    asked = ToolCallRequested("call_1_0", "scan", {}, "client", "key-1", "msg_1")
    ledger.read(entries(asked, BEGUN, RunResumed(2, "w2", "crash")))

    assert [each.state for each in ledger.calls] == ["started"]


def test_a_fork_has_the_calls_of_its_open_step_with_keys_of_its_own() -> None:
    calls = (
        ForkedCall(ToolCall("call_1_0", "pay", {"amount": 5}), "unknown"),
        ForkedCall(ToolCall("call_1_1", "look", {}), "done", "blue"),
        ForkedCall(ToolCall("call_1_2", "mail", {}), "denied", "not today", "ann"),
    )
    forked = RunForked(run_id="run_0", at_seq=9, calls=calls, step=1, step_open=True)
    ledger = Ledger("run_1")
    ledger.read(entries(forked, ENDED))

    assert [each.state for each in ledger.calls] == ["unknown", "completed", "denied"]
    assert [each.result for each in ledger.calls] == [None, "blue", None]
    assert len({each.idempotency_key for each in ledger.calls}) == 3


@pytest.mark.parametrize(
    ("result", "shown", "is_cut"),
    [("x" * 11, "x" * 10, True), ({"a": "bc"}, {"a": "bc"}, False), ([1] * 9, "[1,1,1,1,1", True)],
)
def test_a_long_result_is_cut_and_says_so(result: object, shown: object, is_cut: bool) -> None:
    ledger = Ledger("run_1", result_chars=10)
    done = ToolCallCompleted("call_1_0", result, 7)  # type: ignore[arg-type]  # any JSON
    ledger.read(entries(PAY, BEGUN, done))

    assert [(each.result, each.result_is_cut) for each in ledger.calls] == [(shown, is_cut)]


def test_all_that_the_ledger_is_made_from_is_read() -> None:
    assert {each.type for each in EVENTS} == {*LEDGER_TYPES}


OPEN = {
    CallStatus.REQUESTED: "requested",
    CallStatus.SCREENING: "requested",
    CallStatus.COUNTING: "requested",
    CallStatus.APPROVED: "requested",
    CallStatus.ASKED: "waiting",
    CallStatus.STARTED: "started",
    CallStatus.AWAITED: "started",
    CallStatus.CHECKING: "interrupted",
    CallStatus.REPEATABLE: "interrupted",
}


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(VARIANTS))
def test_whatever_happens_the_ledger_says_what_the_log_says(chance: Random, rules: object) -> None:
    world = World(chance, rules)  # type: ignore[arg-type]  # one of the variants
    for turn in range(TURNS_MAX):
        world.kind = turn > TURNS_MAX // 2
        if not (moves := world.moves()):
            break
        world.happen(chance.choice(moves))
    log = entries(*world.log)
    cut = chance.randrange(len(log) + 1)
    ledger = Ledger("run_1")

    ledger.read(log[:cut])
    ledger.read(log[cut:])

    begun = Counter(event.call_id for event in world.log if isinstance(event, ToolCallStarted))
    assert {each.id: len(each.attempts) for each in ledger.calls if each.attempts} == begun
    asked = [event.call_id for event in world.log if isinstance(event, ToolCallRequested)]
    assert [each.id for each in ledger.calls] == asked
    if world.ended:
        assert all(each.state not in {"started", "waiting"} for each in ledger.calls)
        return
    for call_id, open_call in world.state.calls.items():
        if open_call.status in OPEN:
            found = ledger.get(call_id)
            assert found is not None
            assert found.state in {OPEN[open_call.status], "interrupted"}
