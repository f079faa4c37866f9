"""A conversation in one's own process: what of it a run is shown that guardrails look after."""

from milepost.core.agents import Memory, Window
from milepost.core.events import (
    InputMessage,
    MessageCompleted,
    MessageStarted,
    RunQueued,
    StepStarted,
)
from milepost.core.usage import Usage
from milepost.memory.conversation import Conversation


def queued(said: str) -> RunQueued:
    """Return how the log of a run begins that is asked this."""
    return RunQueued("clerk", "agt_1", 1, "ses_1", (InputMessage("user", said),))


def test_what_no_guardrail_has_seen_is_not_shown_for_being_pinned() -> None:
    talk = Conversation()
    talk.keep([queued("Unseen.")])
    for said in ("Seen.", "Last."):
        talk.keep(
            [
                queued(said),
                StepStarted(1),
                MessageStarted("msg_1", "test/model"),
                MessageCompleted("msg_1", "Yes.", "stop", Usage()),
            ]
        )
    talk.pin(0)
    talk.pin(1)
    narrow = Memory(window=Window(messages=2))

    seen, guarded = (
        talk.seen(narrow, "sum_1", begun_only=begun_only) for begun_only in (False, True)
    )

    assert [each.content for each in seen.earlier.pinned] == ["Unseen.", "Seen."]
    assert [each.content for each in guarded.earlier.pinned] == ["Seen."]
