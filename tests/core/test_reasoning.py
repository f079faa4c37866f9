"""What a model said of its reasons: which words count, and where they were said."""

from milepost.core.events import (
    Event,
    MessageAborted,
    MessageCompleted,
    ReasoningCompleted,
    RunQueued,
    StepStarted,
    ToolCallRequested,
)
from milepost.core.reasoning import Thought, thoughts
from milepost.core.usage import Usage


def said(message_id: str, text: str, *tools: str) -> list[Event]:
    """Return a message that asks for calls of these tools."""
    message = MessageCompleted(message_id, text, "tool_calls" if tools else "stop", Usage())
    calls = (
        ToolCallRequested(f"call_1_{index}", tool, {}, "server", "key", message_id)
        for index, tool in enumerate(tools)
    )
    return [message, *calls]


def test_text_beside_tool_calls_is_the_reasoning_of_its_step() -> None:
    log = [
        StepStarted(1), *said("msg_1", "First I look.", "find", "find"),
        StepStarted(2), *said("msg_2", "Then I add.", "add"), StepStarted(3), *said("msg_3", "42"),
    ]  # fmt: skip

    assert thoughts(log) == (
        Thought(1, "msg_1", "First I look.", tools=("find", "find")),
        Thought(2, "msg_2", "Then I add.", tools=("add",)),
    )


def test_what_a_vendor_shows_of_its_model_s_thinking_stands_beside_the_text() -> None:
    log = [
        StepStarted(1), *said("msg_1", "I look.", "find"), ReasoningCompleted("msg_1", "Hm."),
        StepStarted(2), *said("msg_2", "42"), ReasoningCompleted("msg_2", "Easy."),
    ]  # fmt: skip

    first, second = thoughts(log)

    assert first == Thought(1, "msg_1", "I look.", "Hm.", ("find",))
    assert second == Thought(2, "msg_2", "", "Easy.")
    assert (first.reasoning, second.reasoning) == ("Hm.\nI look.", "Easy.")


def test_an_answer_is_no_reasoning_and_neither_is_silence() -> None:
    queued = RunQueued("clerk", "agt_1", 1, "ses_1", ())
    log = [queued, StepStarted(1), *said("msg_1", "", "add"), *said("msg_2", "42")]

    assert thoughts(log) == ()


def test_a_message_that_was_aborted_said_nothing() -> None:
    lost = MessageAborted("msg_1", "busy")
    log = [StepStarted(1), lost, ReasoningCompleted("msg_1", "Hm."), *said("msg_2", "Again", "add")]

    assert thoughts(log) == (Thought(1, "msg_2", "Again", tools=("add",)),)
