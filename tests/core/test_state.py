"""What has been said in a run."""

import pytest

from milepost.core.events import Failure, StepCompleted, ToolCallCompleted, ToolCallFailed
from milepost.core.evolve import fold
from milepost.core.messages import Message
from milepost.core.state import transcript
from tests.core.logs import QUEUED, requesting, running

FAILED = ToolCallFailed("call_1_0", Failure("tool_failed", "refund failed: no such order"))


def test_a_transcript_leaves_no_call_without_a_result() -> None:
    state = fold(requesting(running(0), FAILED, calls=2))

    assert [turn.content for turn in transcript(state)[-2:]] == [
        "Error (tool_failed): refund failed: no such order",
        "Not run.",
    ]
    assert transcript(fold([QUEUED])) == (Message("user", "Refund order 7"),)


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_call_that_brought_nothing_is_not_told_to_be_one_that_was_not_run(
    nothing: str | None,
) -> None:
    done = ToolCallCompleted("call_1_0", nothing, 5)

    for state in (fold(requesting(done)), fold(requesting(done, StepCompleted(1)))):
        assert transcript(state)[-1] == Message("tool", "", call_id="call_1_0")
