"""Calls that were cancelled though nobody who may asked for it."""

from milepost.core.effects import CallModel, CallTool, CompressResult
from milepost.core.events import MessageAborted, ToolCallFailed, ToolResultCompressing
from milepost.core.messages import ToolCall
from milepost.core.usage import UNKNOWN, Usage
from milepost.runtime.cutoff import cut_off

CALL = ToolCall("call_1_0", "look_up", {})


def test_a_message_may_be_tried_again() -> None:
    event = cut_off(CallModel("msg_1", ()), UNKNOWN)

    assert isinstance(event, MessageAborted)
    assert (event.message_id, event.error and event.error.retryable) == ("msg_1", True)
    assert event.usage.unknown_calls == 1


def test_a_tool_has_failed() -> None:
    event = cut_off(CallTool(CALL, {}, "once", 1), Usage())

    assert isinstance(event, ToolCallFailed)
    assert (event.call_id, event.error.code) == ("call_1_0", "tool_failed")


def test_a_result_that_was_to_be_made_shorter_stays_whole() -> None:
    opening = ToolResultCompressing("call_1_0", "openai/small", 4)

    event = cut_off(CompressResult(CALL, "long", opening), Usage())

    assert (event.content, event.chars, event.fallback) == (  # type: ignore[union-attr]
        "long",
        4,
        "it was cancelled from within",
    )
