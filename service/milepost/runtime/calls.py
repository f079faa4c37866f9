"""What is done in the world: a model called, a tool run; each with the events that tell of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

from milepost.core import ids
from milepost.core.agents import Agent
from milepost.core.effects import CallModel, CallTool
from milepost.core.errors import ProviderError, ToolError
from milepost.core.events import (
    CacheHit,
    Event,
    Failure,
    GuardrailTriggered,
    MessageAborted,
    MessageCompleted,
    ModelFellBack,
    ReasoningCompleted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
)
from milepost.core.json import Json, clean, clean_text
from milepost.core.messages import ToolKind
from milepost.core.model import CacheHit as CachedDelta
from milepost.core.model import (
    FellBack,
    ModelRequest,
    Provider,
    ReasoningDelta,
    Reply,
    RequestedCall,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.live.hub import Hub
from milepost.live.writer import LiveWriter
from milepost.providers.asked import current
from milepost.providers.assemble import Assembly
from milepost.providers.closing import closing
from milepost.providers.pricing import Pricing
from milepost.runtime import notices
from milepost.runtime.clock import Clock
from milepost.runtime.message_screen import UNSCREENED, Words
from milepost.store.records import Claim
from milepost.tools import LiveProgress, Outcome, Registry, Tool, ToolContext
from milepost.tools.streaming import Writer

CALLS_PER_STEP_MAX = 64
TOO_MANY = Failure(
    "too_many_calls",
    f"a step may make {CALLS_PER_STEP_MAX} calls; make this one in the next, if it is needed still",
)

Invoke = Callable[..., Awaitable[Outcome]]
"""Calls a tool, as `Invoker.call` does."""


class ModelCall:
    """One attempt at a message: its deltas go live, its whole goes into the log."""

    def __init__(
        self, effect: CallModel, after_seq: int, claim: Claim, agent: Agent, step: int,
        kind_of: Callable[[str], ToolKind],
    ) -> None:  # fmt: skip
        self._effect = effect
        self._after_seq = after_seq
        self._claim = claim
        self._agent = agent
        self._step = step
        self._kind_of = kind_of
        self._answering = agent.model
        self._fallen: list[Event] = []
        self._triggered: list[GuardrailTriggered] = []

    async def perform(
        self,
        provider: Provider,
        request: ModelRequest,
        hub: Hub,
        clock: Clock,
        pricing: Pricing,
        words: Words = UNSCREENED,
    ) -> list[Event]:
        """Call the model; return the message and the calls that it asks for, or why not.

        `words` lets go of what may be shown.
        """
        message_id = self._effect.message_id
        run_id = self._claim.run_id
        text = LiveWriter(hub, run_id, "message.delta", message_id, self._after_seq)
        thought = LiveWriter(hub, run_id, "reasoning.delta", message_id, self._after_seq)
        assembly = Assembly()
        asked = current()
        started_ms = clock()
        first_ms: int | None = None
        age_s: float | None = None
        asked.begin()
        try:
            async with (
                within(self._agent.limits.model_timeout_s, self._agent.model),
                closing(provider.stream(request)) as deltas,
            ):
                async for delta in deltas:
                    if isinstance(delta, FellBack):
                        asked.fall_back(delta)
                        self._fall_back(delta)
                        continue
                    if first_ms is None:
                        first_ms = clock()
                    assembly.feed(delta)
                    match delta:
                        case CachedDelta(age_s):
                            pass
                        case TextDelta(piece):
                            _show(text, words.text(clean_text(piece)), age_s)
                        case ReasoningDelta(piece):
                            _show(thought, words.thought(clean_text(piece)), age_s)
                        case _:
                            pass  # What only the whole reply needs.
                reply = assembly.reply()
        except ProviderError as error:
            asked.fail(error, spoken=first_ms is not None)
            return self._aborted(error, Usage(unknown_calls=asked.cut_off))
        finally:
            text.close()
            thought.close()
        reply, self._triggered = await words.screened(reply)
        delay_ms = None if first_ms is None else first_ms - started_ms
        usage = priced(reply, pricing, self._answering, asked.cut_off)
        return self._told(reply, usage, delay_ms, age_s)

    def _fall_back(self, delta: FellBack) -> None:
        self._answering = delta.chosen
        failure = Failure(delta.code, clean_text(delta.message), retryable=True)
        fell = ModelFellBack(self._effect.message_id, delta.failed, delta.chosen, failure)
        self._fallen.append(fell)

    def _aborted(self, error: ProviderError, usage: Usage) -> list[Event]:
        failure = _failure(error)
        aborted = MessageAborted(self._effect.message_id, failure.message, failure, usage)
        return [*self._fallen, aborted]

    def _told(
        self, reply: Reply, usage: Usage, first_delta_ms: int | None, age_s: float | None
    ) -> list[Event]:
        """Nothing stands between text that was shown and its completion.

        A client that was cut off there would know the event, but not how much text it has.
        """
        message_id = self._effect.message_id
        events: list[Event] = []
        if age_s is not None:
            events.append(CacheHit(message_id, age_s))
        events.append(
            MessageCompleted(
                message_id=message_id,
                content=clean_text(reply.text),
                finish_reason=reply.finish_reason,
                usage=usage,
                model=clean_text(reply.model),
                response_id=clean_text(reply.response_id),
                first_delta_ms=first_delta_ms,
                sealed=reply.sealed,
                answered_by=None if self._answering == self._agent.model else self._answering,
            )
        )
        events += [*self._fallen, *self._triggered]
        if reply.reasoning:
            events.append(ReasoningCompleted(message_id, clean_text(reply.reasoning)))
        events += [self._requested(index, call) for index, call in enumerate(reply.calls)]
        beyond = range(CALLS_PER_STEP_MAX, len(reply.calls))
        events += [ToolCallFailed(ids.call_id(self._step, index), TOO_MANY) for index in beyond]
        return events

    def _requested(self, index: int, call: RequestedCall) -> ToolCallRequested:
        call_id = ids.call_id(self._step, index)
        arguments, malformed = _parsed(call.arguments)
        name = clean_text(call.name)
        return ToolCallRequested(
            call_id=call_id,
            name=name,
            arguments=arguments,
            kind=self._kind_of(name),
            idempotency_key=ids.idempotency_key(self._claim.run_id, call_id),
            message_id=self._effect.message_id,
            provider_call_id=clean_text(call.provider_id),
            malformed=malformed,
        )


def _show(writer: LiveWriter, piece: str, age_s: float | None) -> None:
    """Show a piece while it is new: a cached reply is there at once."""
    if piece and age_s is None:
        writer.write(piece)


def within(limit_s: float | None, model: str) -> AbstractAsyncContextManager[None]:
    """Raise `ProviderError` where a whole reply takes longer than `limit_s`; None: no bound."""
    return nullcontext() if limit_s is None else _within(limit_s, model)


@asynccontextmanager
async def _within(limit_s: float, model: str) -> AsyncIterator[None]:
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise ProviderError(
            f"{model} had not answered whole within {limit_s:g} s; allow it more time with the"
            " agent's limit model_timeout_s, or ask for less",
            code="provider_timeout",
            retryable=True,
        ) from None


def priced(reply: Reply, pricing: Pricing, model: str, cut_off: int = 0) -> Usage:
    """Return what the reply of `model`, `provider/model`, took, in money too.

    `cut_off` calls failed at work before it, and told nobody what they took. A cached one shows
    what it saved: what it took when its vendor made it, which may have read a part from a cache of
    its own.
    """
    usage = reply.usage
    provider, _, name = model.partition("/")
    if reply.cached:
        taken = replace(
            usage,
            input_tokens=usage.saved_input_tokens,
            output_tokens=usage.saved_output_tokens,
        )
        saved = pricing.cost_nanos(provider, name, *(reply.requests or (taken,))) or 0
        return Usage(
            unknown_calls=cut_off,
            saved_input_tokens=usage.saved_input_tokens,
            saved_output_tokens=usage.saved_output_tokens,
            saved_cost_nanos=saved,
        )
    cost_nanos = pricing.cost_nanos(provider, name, *(reply.requests or (usage,)))
    known = usage.of_one_call(cost_nanos)
    return known + Usage(unknown_calls=cut_off) if cut_off else known


def _parsed(text: str) -> tuple[dict[str, Json], str | None]:
    """Return a call's arguments; or none, and the text that is no JSON object."""
    try:
        # Not orjson: it reads integers beyond 64 bits as floats, which is another number.
        arguments = clean(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}, clean_text(text)
    return (arguments, None) if isinstance(arguments, dict) else ({}, clean_text(text))


def _failure(error: ProviderError) -> Failure:
    return Failure(error.code, clean_text(str(error)), error.retryable, error.retry_after_s)


def live_progress(
    hub: Hub, run_id: str, call_id: str, after_seq: int, past: Callable[[Writer], Writer]
) -> LiveProgress:
    """Return what shows a tool's words to those who follow the run, behind its call's start.

    `past` gives the writer that they have to pass.
    """
    return LiveProgress(
        lambda: past(LiveWriter(hub, run_id, "tool_call.progress", call_id, after_seq))
    )


async def run_tool(
    effect: CallTool, context: ToolContext, tools: Registry, invoke: Invoke, clock: Clock,
    timeout_s: float,
) -> list[Event]:  # fmt: skip
    """Run the tool; return its result, or why there is none."""
    started_ms = clock()
    tool = tools.get(effect.call.name)
    if tool is None:
        gone = Failure("unknown_tool", f"tool {effect.call.name!r} is not loaded in this worker")
        return [ToolCallFailed(effect.call.id, gone)]
    outcome = await invoke(tool, effect.arguments, context, timeout_s=timeout_s)
    took_ms = clock() - started_ms
    if outcome.error is None:
        result = outcome.content
        return [ToolCallCompleted(effect.call.id, result, took_ms, terminal=tool.terminal)]
    if outcome.cause is not None:
        notices.tool_failed(outcome.cause, context.run_id, effect.call.id, tool.name)
    error = outcome.error
    message = _kind_alone(tool, outcome.cause) if tool.executes else error.message
    failure = Failure(error.type, clean_text(message), error.retryable)
    return [ToolCallFailed(effect.call.id, failure, took_ms)]


def _kind_alone(tool: Tool, cause: ToolError | None) -> str:
    """Return what a user is told of an executor's failure: its kind, and none of its words."""
    if cause is not None and cause.code == "tool_timeout":
        return f"{tool.name} timed out; it may have acted"
    raised = cause.__cause__ if cause is not None and cause.__cause__ else cause
    return f"{tool.name} failed: {type(raised).__name__}"
