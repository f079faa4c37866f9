"""What happens in a run at one moment, and is a step of its trace without a duration."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from milepost.core.events import (
    BudgetExceeded,
    BudgetWarning,
    CacheHit,
    Event,
    GuardrailTriggered,
    LoopDetected,
    ModelFellBack,
    PolicyDecided,
    StructuredRetried,
    ToolCallCompleted,
    ToolCallDenied,
)
from milepost.core.frozen import dataclass
from milepost.core.spans import SpanKind
from milepost.telemetry.attributes import MESSAGE_ID, Attributes
from milepost.telemetry.endings import Ending, failed
from milepost.telemetry.keys import INPUT_SCREENING, screening_of


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened. It stands below the first of `within` that is open, if any is.

    `model` is one that was called with it, as `provider/model`.
    """

    kind: SpanKind
    subject: str
    ending: Ending
    call_id: str | None = None
    within: tuple[str, ...] = ()
    attributes: Attributes = field(default_factory=dict)
    model: str | None = None


def moment_of(event: Event, *, content: bool) -> Moment | None:
    """Return what happened, or None: most events begin or end something.

    What somebody said of it is given only where the installation opted in to `content`.
    """
    told = _MOMENTS.get(type(event))
    return None if told is None else told(event, content)


def _triggered(event: GuardrailTriggered, content: bool) -> Moment:
    call_id = event.call_id
    return Moment(
        "guardrail",
        event.guardrail,
        _OK,
        call_id,
        (screening_of(call_id), call_id) if call_id else (INPUT_SCREENING,),
        {
            "milepost.guardrail.place": event.place,
            "milepost.guardrail.action": event.action,
            **({"milepost.guardrail.reason": event.reason} if content else {}),
        },
    )


def _judged(event: PolicyDecided, _: bool) -> Moment:
    told = {"milepost.policy.verdict": event.verdict, "milepost.policy.reason": event.reason}
    return Moment("policy", event.verdict, _OK, event.call_id, attributes=told)


def _denied(event: ToolCallDenied, content: bool) -> Moment:
    told = {"milepost.denial.by": event.by}
    if content:
        told["milepost.denial.reason"] = event.reason
    return Moment("denial", "", _OK, event.call_id, attributes=told)


def _hit(event: CacheHit, _: bool) -> Moment:
    told: Attributes = {MESSAGE_ID: event.message_id, "milepost.cache.age_s": event.age_s}
    return Moment("cache_hit", "message", _OK, within=(event.message_id,), attributes=told)


def _told_again(event: ToolCallCompleted, _: bool) -> Moment | None:
    if not event.cached:
        return None
    return Moment("cache_hit", "", _OK, event.call_id, (event.call_id,))


def _corrected(event: StructuredRetried, _: bool) -> Moment:
    told: Attributes = {
        MESSAGE_ID: event.message_id,
        "milepost.structured_retry.attempt": event.attempt,
    }
    return Moment("structured_retry", "answer", failed(event.error), attributes=told)


def _fell_back(event: ModelFellBack, _: bool) -> Moment:
    told = {
        MESSAGE_ID: event.message_id,
        "milepost.fallback.failed": event.failed,
        "milepost.fallback.chosen": event.chosen,
    }
    failure = failed(event.error)
    return Moment("fallback", event.chosen, failure, attributes=told, model=event.chosen)


def _circled(event: LoopDetected, _: bool) -> Moment:
    told: Attributes = {
        "milepost.loop.pattern": event.pattern,
        "milepost.loop.tools": event.tools,
        "milepost.loop.count": event.count,
        "milepost.loop.action": event.action,
    }
    return Moment("loop", event.pattern, _OK, attributes=told)


def _spent(event: BudgetWarning | BudgetExceeded, _: bool) -> Moment:
    told: Attributes = {
        "milepost.budget.id": event.budget,
        "milepost.budget.limit": event.limit,
        "milepost.budget.spent": event.spent,
        "milepost.budget.of": event.of,
    }
    return Moment("budget", event.type.removeprefix("budget."), _OK, attributes=told)


_OK = Ending("ok")
_MOMENTS: Mapping[type[Event], Callable[[Any, bool], Moment | None]] = {
    GuardrailTriggered: _triggered,
    PolicyDecided: _judged,
    ToolCallDenied: _denied,
    CacheHit: _hit,
    ToolCallCompleted: _told_again,
    StructuredRetried: _corrected,
    ModelFellBack: _fell_back,
    LoopDetected: _circled,
    BudgetWarning: _spent,
    BudgetExceeded: _spent,
}
