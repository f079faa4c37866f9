"""What comes in for a run, and what it becomes."""

from typing import Any

import orjson

from milepost.core.events import (
    ApprovalDecided,
    ApprovalExpired,
    Event,
    RunCancelling,
    RunRetried,
)
from milepost.core.evolve import fold
from milepost.core.state import State
from milepost.runtime.letters import events_of
from milepost.store.records import InboxMessage
from tests.core.logs import asked, begun, denied, requesting

DECIDED = {"approval_id": "apr_0", "call_id": "call_1_0", "decision": "approve", "by": "ann",
           "comment": None, "arguments": None, "digest": None}  # fmt: skip
EXPIRED = {"approval_id": "apr_0", "call_id": "call_1_0"}
ASKED = fold(requesting(asked()))


def read(state: State, kind: str, **said: Any) -> list[Event]:
    return events_of([InboxMessage(1, kind, orjson.dumps(said).decode())], state)


def test_an_answer_to_an_open_question_is_a_decision() -> None:
    assert read(ASKED, "approval", **DECIDED) == [
        ApprovalDecided("apr_0", "call_1_0", "approve", "ann")
    ]


def test_an_edit_comes_with_its_digest() -> None:
    [decided] = read(
        ASKED, "approval", **{**DECIDED, "arguments": {"order": 8}, "digest": "sha256:8"}
    )

    assert isinstance(decided, ApprovalDecided)
    assert (decided.arguments, decided.digest) == ({"order": 8}, "sha256:8")


def test_nobody_s_answer_is_an_expiry() -> None:
    assert read(ASKED, "approval_expired", **EXPIRED) == [ApprovalExpired("apr_0", "call_1_0")]


def test_an_answer_to_a_question_that_is_settled_is_nothing() -> None:
    settled = fold(requesting(asked(), denied()))

    assert read(settled, "approval", **DECIDED) == []
    assert read(settled, "approval_expired", **EXPIRED) == []
    assert read(fold(begun()), "approval", **DECIDED) == []
    assert read(ASKED, "approval", **{**DECIDED, "approval_id": "apr_9"}) == []


def test_a_request_to_cancel_is_taken_once() -> None:
    cancelling = RunCancelling("ann", "typo")

    assert read(ASKED, "cancel", by="ann", reason="typo") == [cancelling]
    assert read(fold(requesting(cancelling)), "cancel", by="bob", reason=None) == []


def test_an_operator_sends_a_run_on() -> None:
    assert read(fold(begun()), "retry", by="ann") == [RunRetried("ann")]


def test_what_a_later_version_sends_is_nothing() -> None:
    assert read(ASKED, "nudge", text="faster") == []
