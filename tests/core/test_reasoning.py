"""What a model said of its reasons: which words count, and where they were said."""

from milepost.core.events import (
    Event,
    MessageAborted,
    MessageCompleted,
    ReasoningCompleted,
    RunQueued,
    StepStarted,
)
from milepost.core.model import FinishReason
from milepost.core.reasoning import Thought, thoughts
from milepost.core.usage import Usage


def said(message_id: str, text: str, reason: FinishReason = "tool_calls") -> MessageCompleted:
    return MessageCompleted(message_id, text, reason, Usage())


def test_text_beside_tool_calls_is_the_reasoning_of_its_step() -> None:
    log: list[Event] = [
        StepStarted(1), said("msg_1", "First I look."), StepStarted(2),
        said("msg_2", "Then I add."), StepStarted(3), said("msg_3", "42", "stop"),
    ]  # fmt: skip

    assert thoughts(log) == (
        Thought(1, "msg_1", "First I look."),
        Thought(2, "msg_2", "Then I add."),
    )


def test_what_a_vendor_shows_of_its_model_s_thinking_stands_beside_the_text() -> None:
    log: list[Event] = [
        StepStarted(1), said("msg_1", "I look."), ReasoningCompleted("msg_1", "Hm."),
        StepStarted(2), said("msg_2", "42", "stop"), ReasoningCompleted("msg_2", "Easy."),
    ]  # fmt: skip

    first, second = thoughts(log)

    assert first == Thought(1, "msg_1", "I look.", "Hm.")
    assert second == Thought(2, "msg_2", "", "Easy.")
    assert (first.reasoning, second.reasoning) == ("I look.", "Easy.")


def test_an_answer_is_no_reasoning_and_neither_is_silence() -> None:
    log: list[Event] = [
        RunQueued("clerk", "agt_1", 1, "ses_1", ()), StepStarted(1), said("msg_1", ""),
        said("msg_2", "42", "stop"),
    ]  # fmt: skip

    assert thoughts(log) == ()


def test_a_message_that_was_aborted_said_nothing() -> None:
    log: list[Event] = [StepStarted(1), MessageAborted("msg_1", "busy"), said("msg_2", "Again.")]

    assert thoughts(log) == (Thought(1, "msg_2", "Again."),)
