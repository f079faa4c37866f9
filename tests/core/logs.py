"""Logs of runs, event by event, for tests of the fold and of the decision."""

from collections.abc import Callable

from milepost.core.agents import Limits
from milepost.core.canonical import call_digest
from milepost.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    Failure,
    InputMessage,
    MessageCompleted,
    MessageStarted,
    RunQueued,
    RunResumed,
    RunStarted,
    StepStarted,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.model import FinishReason
from milepost.core.policy import NOBODY_COUNTED
from milepost.core.repetition import ToolEffect
from milepost.core.rulings import Ask, Counts, Refuse, Reject, Rules, Ruling, Run
from milepost.core.usage import Usage

NOW_MS = 1_000_000
USED = Usage(input_tokens=10, output_tokens=5, model_calls=1)
REFUND: dict[str, Json] = {"order": 7}
REFUND_DIGEST = call_digest("refund", dict(REFUND))
QUEUED = RunQueued("clerk", "agt_1", 1, "ses_1", (InputMessage("user", "Refund order 7"),))
STARTED = RunStarted(1, "w1")
CRASHED = RunResumed(2, "w2", "crash")
BUSY = Failure("provider_unavailable", "the vendor is out of office", retryable=True)
LIMITED = Failure("provider_rate_limited", "slow down", retryable=True)
REFUSED = Failure("provider_refused", "no such model")


def ruled(ruling: Callable[[ToolCall], Ruling] | Ruling, limits: Limits | None = None) -> Rules:
    """Return rules that give every call the same ruling, or the one that a function gives it."""

    def judge(call: ToolCall, _: Counts = NOBODY_COUNTED, /) -> Ruling:
        return ruling(call) if callable(ruling) else ruling

    return Rules(judge, limits or Limits())


def allowing(effect: ToolEffect = "once") -> Rules:
    """Return rules that allow every call as it was asked for."""
    return ruled(lambda call: Run(call.arguments, effect))


def asking(effect: ToolEffect = "once") -> Rules:
    """Return rules that ask for every call as it was asked for."""
    return ruled(lambda call: Ask(call.arguments, effect, "policy: ask *"))


REFUSING = ruled(Refuse("policy", "policy: deny *"))
REJECTING = ruled(Reject(Failure("unknown_tool", "there is no such tool")))


def begun(*later: Event, queued: RunQueued = QUEUED) -> list[Event]:
    """Return the log of a run that was claimed, and then `later`."""
    return [queued, STARTED, *later]


def calling(*later: Event) -> list[Event]:
    """Return the log of a run whose model is being called, and then `later`."""
    return begun(StepStarted(1), MessageStarted("msg_1", "openai/gpt-5-mini"), *later)


def replied(
    text: str = "On it.", finish_reason: FinishReason = "stop", message_id: str = "msg_1"
) -> MessageCompleted:
    """Return a reply."""
    return MessageCompleted(message_id, text, finish_reason, USED)


def requested(index: int = 0, step: int = 1, name: str = "refund") -> ToolCallRequested:
    """Return the request for the step's `index`-th call."""
    call_id = f"call_{step}_{index}"
    return ToolCallRequested(call_id, name, dict(REFUND), "server", "key", f"msg_{step}")


def requesting(*later: Event, calls: int = 1) -> list[Event]:
    """Return the log of a run whose model has just asked for calls, and then `later`."""
    return calling(replied(), *map(requested, range(calls)), *later)


def asked(index: int = 0) -> ApprovalRequested:
    """Return the question about the `index`-th call."""
    return ApprovalRequested(
        approval_id=f"apr_{index}",
        call_id=f"call_1_{index}",
        tool="refund",
        arguments=dict(REFUND),
        digest=REFUND_DIGEST,
        preview="refund(order=7)",
        policy="policy: ask *",
        expires_at_ms=NOW_MS + 1,
    )


def approved(index: int = 0) -> ApprovalDecided:
    """Return a yes to the `index`-th call as it is."""
    return ApprovalDecided(f"apr_{index}", f"call_1_{index}", "approve", "ann")


def denied(index: int = 0, comment: str | None = "not today") -> ApprovalDecided:
    """Return a no to the `index`-th call."""
    return ApprovalDecided(f"apr_{index}", f"call_1_{index}", "deny", "ann", comment)


def running(index: int = 0, effect: ToolEffect = "once", attempt: int = 1) -> ToolCallStarted:
    """Return the start of the `index`-th call."""
    return ToolCallStarted(f"call_1_{index}", attempt, effect)
