"""The agent loop: given where a run stands, what must happen next.

Pure. A run resumes after a crash by folding its log and calling `decide` again; nothing else is
remembered anywhere.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from milepost.core import bounds, ids
from milepost.core.admission import UNKNOWN_OUTCOME, decide_call, look_at
from milepost.core.answers import CORRECTION
from milepost.core.backoff import RETRY_AFTER_S_MAX, wait_s
from milepost.core.bounds import OWN
from milepost.core.effects import (
    CallModel,
    CallTool,
    Cancel,
    Effect,
    End,
    Park,
    Record,
    ScreenInput,
    SummarizeHistory,
)
from milepost.core.events import (
    ApprovalWithdrawn,
    BudgetExceeded,
    Event,
    Failure,
    LoopDetected,
    MemorySummarizing,
    MemoryTrimmed,
    MessageAborted,
    ModelRetried,
    Output,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    SteerApplied,
    StepCompleted,
    StepStarted,
    Stretch,
    StructuredRetried,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallStarted,
    WaitCause,
)
from milepost.core.json import Json
from milepost.core.loops import circle_in, notice_of
from milepost.core.open_call import CallStatus, OpenCall
from milepost.core.rulings import AnswerRule, Ask, Count, Fits, Misfits, Refuse, Reject, Rules, Run
from milepost.core.state import State
from milepost.core.usage import UNKNOWN

CRASHES_MAX = 3

SKIPPED = Failure("skipped", "Skipped: the result of another call has ended the run.")
UNAFFORDABLE = Failure("skipped", "Skipped: the run's budget has nothing left for this call.")
ROUTED = Failure("skipped", "Not run: this agent only chooses its calls.")


def decide(state: State, rules: Rules, now_ms: int) -> tuple[Effect, ...]:
    """Return the next effects; none means that the next move is a tool's, a model's or a person's.

    Effects whose opening events are already in the log are not returned again, so the shell may
    call this after every append.
    """
    if state.ended:
        return ()
    if state.cancelling or state.failing:
        return (Cancel(),)
    if limit := _limit_reached(state, rules, now_ms):
        return (End(RunExpired(limit, state.usage)),)
    if state.message_lost and state.open_message:
        lost = MessageAborted(state.open_message, "its worker died", usage=UNKNOWN)
        return (Record((lost,)),)
    if state.crashes >= CRASHES_MAX:
        return () if state.waiting else (Park("operator", ()),)
    return _decide_step(state, rules)


def _decide_step(state: State, rules: Rules) -> tuple[Effect, ...]:
    if state.calls:
        return _decide_calls(state, rules)
    if state.open_message:
        return ()
    if state.exceeded:
        return (End(RunIncomplete("budget", Output(state.text), state.usage)),)
    if state.step_open and state.replied:
        # Whoever said something meanwhile has not been answered yet.
        return (_close_step(state) if state.steers else _answer(state, rules.answer),)
    if rules.screens_input and not state.screened:
        return () if state.screening else (ScreenInput(),)
    if state.blocked is not None:
        return (End(RunIncomplete("guardrail", Output(""), state.usage)),)
    if state.trim is not None:
        return () if state.summarizing else (_trim(state.trim, rules.summarizer),)
    return _decide_message(state, rules)


def _trim(trim: Stretch, summarizer: str | None) -> Effect:
    """Write down what falls out of sight, and have a model tell of it first, if one is to."""
    stretch = (trim.id, trim.first, trim.last, trim.messages)
    if summarizer is None:
        return Record((MemoryTrimmed(*stretch),))
    return SummarizeHistory(MemorySummarizing(*stretch, summarizer))


def _limit_reached(state: State, rules: Rules, now_ms: int) -> str | None:
    """Return which of the run's time limits has passed: time on the wall, or time at work."""
    if state.deadline_ms is not None and now_ms >= state.deadline_ms:
        return "deadline"
    if rules.active_deadline_ms is not None and now_ms >= rules.active_deadline_ms:
        return "active_time"
    return None


def _decide_calls(state: State, rules: Rules) -> tuple[Effect, ...]:
    calls = state.calls.values()
    if any(call.terminal for call in calls):
        end = _close_step(state) if state.steers else _with_result(state, rules)
        return _wind_down(state, rules, SKIPPED, end)
    if state.exceeded:
        return _wind_down(state, rules, UNAFFORDABLE, _over_budget(state))
    if rules.routing_only:
        return _route(state, rules)
    decisions = (decide_call(call, state, rules) for call in _next_calls(state, rules))
    if effects := tuple(effect for effect in decisions if effect):
        return _within_bound(effects, state, rules.limits.max_tool_calls)
    if all(call.status is CallStatus.DONE for call in calls):
        return (_close_step(state),)
    return _park(state)


def _close_step(state: State) -> Record:
    return Record((StepCompleted(state.step),))


def _next_calls(state: State, rules: Rules) -> Iterator[OpenCall]:
    """Yield the calls whose turn it is: all at once, or up to the first that is not through."""
    for call in state.calls.values():
        yield call
        if not rules.parallel_tools and call.status is not CallStatus.DONE:
            return


def _within_bound(
    effects: tuple[Effect, ...], state: State, bound: int | None
) -> tuple[Effect, ...]:
    """Let no more calls begin than the run may make; the first that may not ends the run."""
    if bound is None:
        return effects
    admitted: list[Effect] = []
    begun = state.tool_calls
    for effect in effects:
        begun += _begins(effect)
        if begun > bound:
            exceeded = BudgetExceeded(OWN, "max_tool_calls", begun - 1, bound)
            return (*admitted, Record((exceeded,)))
        admitted.append(effect)
    return tuple(admitted)


def _begins(effect: Effect) -> bool:
    """Say whether a call begins with the effect: by us, or by the client."""
    match effect:
        case CallTool(attempt=1) | Record((ToolCallStarted(attempt=1),)):
            return True
        case _:
            return False


def _wind_down(state: State, rules: Rules, why: Failure, end: End | Record) -> tuple[Effect, ...]:
    """Bring the step to its `end`, once what has begun has come to its own.

    What has not begun is skipped: a vendor refuses a conversation with a call left unanswered. What
    is through has to be made shorter still where a model goes on to read it.
    """
    calls = state.calls.values()
    skipped = [event for call in calls if call.status in _UNBEGUN for event in _skip(call, why)]
    if skipped:
        return (Record(tuple(skipped)),)
    goes_on = isinstance(end, Record)
    left = (call for call in calls if goes_on or call.status is not CallStatus.DONE)
    if effects := tuple(effect for call in left if (effect := decide_call(call, state, rules))):
        return effects
    return () if any(call.status in _IN_HAND for call in calls) else (end,)


def _with_result(state: State, rules: Rules) -> End:
    """End with the first terminal result."""
    answer = next(call.content for call in state.calls.values() if call.terminal)
    parsed = rules.answer.read(answer) if rules.answer else None
    output = Output(answer, parsed.value if isinstance(parsed, Fits) else None)
    closing = (StepCompleted(state.step),)
    return End(RunCompleted(output, state.usage, "terminal"), closing)


def _over_budget(state: State) -> End:
    closing = (StepCompleted(state.step),)
    return End(RunIncomplete("budget", Output(state.text), state.usage), closing)


def _route(state: State, rules: Rules) -> tuple[Effect, ...]:
    """Answer with the calls that could be made; those that could not go back to the model."""
    open_calls = [call for call in state.calls.values() if call.status is not CallStatus.DONE]
    if any(call.status in _IN_HAND for call in open_calls):
        return ()
    chosen: list[Json] = []
    closed: list[Event] = []
    looks: list[Effect] = []
    for open_call in open_calls:
        call = open_call.call
        match ruling := rules.judge(call, open_call.counts):
            case Run(arguments) | Ask(arguments) | Count(arguments):
                given = None if isinstance(ruling, Count) else ruling.given
                if look := look_at(open_call, arguments, rules, given):
                    looks.append(look)
                chosen.append({"name": call.name, "arguments": dict(arguments)})
                closed.append(ToolCallFailed(call.id, ROUTED))
            case Refuse(by, reason):
                closed.append(ToolCallDenied(call.id, by, reason))
            case Reject(error):
                closed.append(ToolCallFailed(call.id, error))
    if looks:
        return tuple(looks)
    closed.append(StepCompleted(state.step))
    if not chosen or state.steers:
        return (Record(tuple(closed)),)
    output = Output(state.text, {"calls": chosen})
    return (End(RunCompleted(output, state.usage, "routed"), tuple(closed)),)


def _skip(open_call: OpenCall, why: Failure) -> tuple[Event, ...]:
    call_id = open_call.call.id
    if open_call.asking == "outcome":
        why = UNKNOWN_OUTCOME
    failed = ToolCallFailed(call_id, why)
    if open_call.status is CallStatus.ASKED and open_call.approval_id:
        return (ApprovalWithdrawn(open_call.approval_id, call_id), failed)
    return (failed,)


_IN_HAND = frozenset(
    {
        CallStatus.SCREENING, CallStatus.COUNTING, CallStatus.STARTED, CallStatus.CHECKING,
        CallStatus.COMPRESSING,
    }
)  # fmt: skip
_UNBEGUN = frozenset(
    {
        CallStatus.REQUESTED, CallStatus.ASKED, CallStatus.APPROVED, CallStatus.DENIED,
        CallStatus.AWAITED,
    }
)  # fmt: skip


def _park(state: State) -> tuple[Effect, ...]:
    """Wait for people and clients only when nothing else in the step can proceed."""
    calls = state.calls.values()
    if state.waiting or any(call.status in _IN_HAND for call in calls):
        return ()
    asked = [call.approval_id or "" for call in calls if call.status is CallStatus.ASKED]
    awaited = [call for call in calls if call.status is CallStatus.AWAITED]
    by_clients = [call.call.id for call in awaited if call.child_run_id is None]
    children = [call.child_run_id for call in awaited if call.child_run_id is not None]
    cause: WaitCause = "child_run"
    if asked or by_clients:
        cause = "approval" if asked else "client_tool"
    return (Park(cause, (*asked, *by_clients, *children)),)


def _decide_message(state: State, rules: Rules) -> tuple[Effect, ...]:
    if checked := _check_bounds(state, rules):
        return checked
    retried = _decide_retry(state, state.failure, rules) if state.failure else ()
    if state.steers and not any(isinstance(effect, End) for effect in retried):
        return (Record((SteerApplied(tuple(each.message_id for each in state.steers)),)),)
    if retried:
        return retried
    if not state.step_open and state.step - state.steps_before >= rules.limits.max_steps:
        return (End(RunIncomplete("max_steps", Output(state.text), state.usage)),)
    if not state.step_open and (circle := _circle(state, rules)):
        return (circle,)
    opening: Iterable[Event] = () if state.step_open else (StepStarted(state.step + 1),)
    return (CallModel(ids.message_id(state.messages_started + 1), tuple(opening)),)


def _check_bounds(state: State, rules: Rules) -> tuple[Effect, ...]:
    """Keep the run within its own bounds; without a price, one in money can't be kept at all."""
    if rules.unpriced and rules.limits.max_cost_usd_micros is not None:
        return (End(RunFailed(_unpriced(rules.unpriced), state.usage)),)
    if over := bounds.exceeded(state, rules.limits):
        return (Record((over,)),)
    nearly = bounds.warnings(state, rules.limits)
    return (Record(nearly),) if nearly else ()


def _unpriced(model: str) -> Failure:
    return Failure(
        "unpriced_model",
        f"the run has a bound on its cost, and nobody knows what {model} costs; name its price in"
        " a prices file",
    )


def _circle(state: State, rules: Rules) -> Effect | None:
    """Step in where the run turns in a circle, if the agent wants that."""
    wanted = rules.loop_detection
    circle = circle_in(state.trail, wanted, rules.repeat_allowed) if wanted else None
    if wanted is None or circle is None:
        return None
    seen = LoopDetected(
        circle.pattern, circle.tools, circle.count, wanted.action, notice_of(circle)
    )
    if wanted.action == "warn":
        return Record((seen,))
    return End(RunIncomplete("loop", Output(state.text), state.usage), (seen,))


def _decide_retry(state: State, failure: Failure, rules: Rules) -> tuple[Effect, ...]:
    limits = rules.limits
    if not failure.retryable or state.failures > limits.model_retries:
        return (End(RunFailed(replace(failure, retry_after_s=None), state.usage)),)
    if failure.retry_after_s and failure.retry_after_s > RETRY_AFTER_S_MAX:
        # A run that waits keeps its worker's slot: whoever created it is told when to come back.
        return (End(RunFailed(failure, state.usage)),)
    wait = wait_s(
        state.failures,
        failure.code,
        failure.retry_after_s,
        backoff_s=limits.retry_backoff_s,
        cooldown_s=limits.rate_limit_cooldown_s,
    )
    message_id = ids.message_id(state.messages_started + 1)
    retried = ModelRetried(message_id, state.failures + 1, round(wait * 1000), failure)
    return (CallModel(message_id, (retried,), wait),)


def _answer(state: State, rule: AnswerRule | None) -> Effect:
    """The model asked for nothing more: the run ends with what it said, if that is an answer."""
    closing = (StepCompleted(state.step),)
    output = Output(state.text)
    if state.finish_reason == "length":
        return End(RunIncomplete("output_tokens", output, state.usage), closing)
    if state.finish_reason == "content_filter":
        return End(RunIncomplete("content_filter", output, state.usage), closing)
    if rule is None:
        return End(RunCompleted(output, state.usage, state.finish_reason), closing)
    match rule.read(state.text):
        case Fits(value):
            answered = Output(state.text, value)
            return End(RunCompleted(answered, state.usage, state.finish_reason), closing)
        case Misfits(error):
            if state.corrections >= rule.retries:
                return End(RunIncomplete("structured_output", output, state.usage), closing)
            return Record((_correction(state, error),))


def _correction(state: State, error: str) -> StructuredRetried:
    message_id = ids.message_id(state.messages_started)
    notice = f"{CORRECTION}{error}. Answer again, with nothing but JSON that fits it."
    failure = Failure("invalid_answer", error, retryable=True)
    return StructuredRetried(message_id, state.corrections + 1, failure, notice)
