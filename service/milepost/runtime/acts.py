"""What a run does in the world, once its log says that it is begun."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypedDict, Unpack

import orjson

from milepost.core.context import Seen
from milepost.core.effects import (
    CallModel,
    CallTool,
    CheckCall,
    CompressResult,
    CountCall,
    ScreenCall,
    ScreenInput,
    SummarizeHistory,
)
from milepost.core.errors import FencedError, InvalidError
from milepost.core.events import (
    ApprovalDecided,
    Custom,
    Event,
    Failure,
    MessageAborted,
    ModelRetried,
    SideCallAborted,
    ToolCallCompleted,
    ToolCallCounted,
)
from milepost.core.ids import idempotency_key
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.model import ModelRequest, Provider, ResponseFormat
from milepost.core.prompt import prompt
from milepost.core.state import State
from milepost.core.usage import UNKNOWN, Usage
from milepost.providers.asked import Asked
from milepost.runtime import notices
from milepost.runtime.announcements import Announcements
from milepost.runtime.answers import Answers
from milepost.runtime.calls import Invoke, ModelCall, live_progress, run_tool
from milepost.runtime.children import session_above
from milepost.runtime.coherence import CoherenceCheck
from milepost.runtime.compressing import Compressor
from milepost.runtime.journal import Journal
from milepost.runtime.lookups import look_up
from milepost.runtime.means import Means
from milepost.runtime.message_screen import UNSCREENED
from milepost.runtime.permits import Permits
from milepost.runtime.rails import Rails
from milepost.runtime.reserving import Payer
from milepost.runtime.screening import past_screen, screened
from milepost.runtime.settle import Call
from milepost.runtime.spending import Spending
from milepost.runtime.stashes import PuttingOff
from milepost.runtime.stops import Stops
from milepost.runtime.structured import instruction
from milepost.runtime.subjects import subject_of
from milepost.runtime.summarizing import summarized
from milepost.runtime.transactions import Transacting
from milepost.telemetry.logs import logger
from milepost.tools import Approved, Outcome, Tool, ToolContext
from milepost.tools.artifacts import Emissions, EmitArtifact
from milepost.tools.context import Progress
from milepost.tools.emitting import Emit
from milepost.tools.pending import StashPending, stashing
from milepost.tools.streaming import Writer
from milepost.tools.transaction import TIMEOUT_S

_TOOL_LOG = logger("tool")


class WaysOut(TypedDict, total=False):
    """Where a tool may say and leave something while it runs; without one it goes nowhere."""

    progress: Progress
    emit: Emit
    emit_artifact: EmitArtifact
    stash_pending: StashPending


class Acts:
    """The calls of one run: of models, of tools, and of what looks at both.

    `left` says of calls that were cancelled and go on why they do.
    """

    def __init__(
        self, journal: Journal, seen: Seen, means: Means, permits: Permits,
        announcements: Announcements, stops: Stops,
    ) -> None:  # fmt: skip
        self._journal = journal
        self._seen = seen
        self._means = means
        self._permits = permits
        self._announcements = announcements
        self._stops = stops
        self.left: dict[str, str] = {}
        self._asked: tuple[str, Asked] | None = None
        self._transacting = Transacting(journal, means.transactions) if means.transactions else None
        self._putting_off = PuttingOff(means.stashes, journal.claim, journal.state.channel)
        self._answers = Answers(
            journal.claim, means.ports.shelf, means.results, self._leaves_traces
        )
        agent = journal.agent
        above = session_above(journal.claim, journal.state)
        self._spending = Spending(Payer(journal.claim, agent, above), means)
        self._compressor = (
            Compressor(agent.compression, journal.claim, means, self._spending)
            if agent.compression
            else None
        )
        self._rails = self._railed()

    def _leaves_traces(self, call_id: str) -> bool:
        return self._announcements.has_from(call_id) or self._putting_off.has_from(call_id)

    def _railed(self) -> Rails | None:
        journal, means = self._journal, self._means
        claim, wanted = journal.claim, journal.agent.guardrails
        if wanted is None:
            return None
        coherence = (
            CoherenceCheck(wanted.coherence, claim, means, self._spending)
            if wanted.coherence
            else None
        )
        return Rails(wanted, claim, journal.agent, means.rails, coherence)

    def perform(self, effect: Call, seq: int) -> Coroutine[None, None, list[Event]]:
        """Return what does it, and brings the events that tell of it; its start is at `seq`."""
        match effect:
            case CallModel(message_id):
                asked = Asked()
                self._asked = (message_id, asked)
                return self._call_model(effect, seq, asked)
            case CallTool():
                return self._call_tool(effect, seq)
            case CountCall():
                return self._count(effect)
            case CheckCall():
                return self._check(effect)
            case CompressResult():
                return self._compress(effect)
            case SummarizeHistory():
                return self._summarize(effect)
            case ScreenInput() | ScreenCall():
                return self._screen(effect)

    def cut_off(self, message_id: str) -> Usage:
        """Return what the message's call took if it is cut off now.

        How far one is that a worker before this had begun, nobody can say.
        """
        match self._asked:
            case (begun, asked) if begun == message_id:
                return Usage(unknown_calls=asked.unknown_calls)
            case _:
                return UNKNOWN

    def told(self, effect: Call) -> None:
        """Forget what a model was asked for the call beside the conversation: events tell of it."""
        self._spending.told(subject_of(effect))

    def untold(self, effect: Call) -> list[SideCallAborted]:
        """Return what tells of that instead, once, where the call comes to nothing."""
        return self._spending.untold(subject_of(effect))

    async def _call_model(self, effect: CallModel, seq: int, asked: Asked) -> list[Event]:
        journal, means = self._journal, self._means
        agent = journal.agent
        for event in effect.opening:
            if isinstance(event, ModelRetried):
                notices.model_retried(event, journal.claim.run_id, agent.model)
        if effect.wait_s:
            await asyncio.sleep(effect.wait_s)
            await means.await_lease()
        try:
            provider = self._provider()
        except InvalidError as error:
            failure = Failure(error.code, str(error))
            return [MessageAborted(effect.message_id, str(error), failure)]
        call = ModelCall(effect, seq, journal.claim, agent, journal.state.step, means.tools.kind)
        words = self._rails.message() if self._rails else UNSCREENED
        hub, clock, pricing = means.ports.hub, means.ports.clock, means.pricing
        return await self._spending.message(
            effect.message_id,
            self._request(),
            lambda request: call.perform(provider, request, hub, clock, pricing, words),
            asked,
        )

    def _provider(self) -> Provider:
        """Return who answers. Raises `InvalidError` where somebody is named who is not here."""
        agent, means = self._journal.agent, self._means
        if means.chains and agent.fallbacks:
            return means.chains.of((agent.model, *agent.fallbacks))
        return means.providers.get(agent.provider)

    def _request(self) -> ModelRequest:
        journal, means = self._journal, self._means
        agent, limits = journal.agent, journal.agent.limits
        wanted = agent.response_format
        native = wanted is not None and self._is_native(wanted.mode)
        told = instruction(wanted) if wanted and not native else ""
        return ModelRequest(
            tenant=journal.claim.tenant,
            model=agent.model_name,
            messages=prompt(agent, self._seen.earlier, journal.state, told),
            tools=means.tools.schemas(self._permits.allowed(agent.tools, means.tools)),
            temperature=limits.temperature,
            tokens_max=self._tokens_max(),
            cache_ttl_s=agent.cache_ttl_s,
            user=journal.claim.user,
            top_p=limits.top_p,
            stop=limits.stop_sequences,
            reasoning_effort=limits.reasoning_effort,
            parallel_tools=None if agent.parallel_tools else False,
            response_format=ResponseFormat(wanted.schema, wanted.name)
            if wanted and native
            else None,
        )

    def _is_native(self, mode: str) -> bool:
        """Whoever may come to answer must take the schema, or all are told of it in words."""
        if mode != "auto":
            return mode == "native"
        agent, providers = self._journal.agent, self._means.providers
        models = (agent.model, *agent.fallbacks)
        return all(providers.takes_schema(model.partition("/")[0]) for model in models)

    def _tokens_max(self) -> int | None:
        """Leave the reply no more room than the run's own bound on tokens does."""
        journal = self._journal
        limits, usage = journal.agent.limits, journal.state.usage + journal.state.children
        if limits.max_tokens is None:
            return limits.max_output_tokens
        left = max(1, limits.max_tokens - usage.input_tokens - usage.output_tokens)
        return min(left, limits.max_output_tokens or left)

    async def _call_tool(self, effect: CallTool, seq: int) -> list[Event]:
        if effect.call.kind == "agent":
            return await self._start_child(effect, seq)
        tool = self._means.tools.get(effect.call.name)
        if tool is not None and effect.effect == "transactional":
            return await self._transact(effect, seq, tool)
        events = await self._answers.answer(
            effect, tool, lambda emissions: self._run_tool(effect, seq, emissions)
        )
        shown = await self.screened(events, self._journal.state)
        self._answers.told(effect.call.id)  # Stopped before this, it would have brought nothing.
        return shown

    async def left_behind(self, effect: Call) -> list[Event]:
        """Return what tells of the files that a call left behind before it was stopped."""
        if not isinstance(effect, CallTool):
            return []
        return [*await self._answers.left_behind(effect.call.id)]

    async def announced(self, event: Event, state: State) -> list[Event]:
        """Return what a tool tells of while it runs, as far as its result might be shown."""
        assert isinstance(event, Custom), "tools tell of nothing else"
        tool = self._means.tools.get(state.calls[event.call_id].call.name)
        return await self.screened(screened(tool, [event]), state)

    async def taken_in(self, events: Iterable[Event], state: State) -> list[Event]:
        """Return what came in, as far as it may be shown."""
        shown: list[Event] = []
        for event in events:
            if isinstance(event, ApprovalDecided) and event.decision == "happened":
                shown += await self._happened(event, state)
            else:
                shown += await self.screened([event], state)
        return shown

    async def _happened(self, said: ApprovalDecided, state: State) -> list[Event]:
        """Treat what people say that a call has brought as if its tool had brought it."""
        tool = self._means.tools.get(state.calls[said.call_id].call.name)
        ends = tool is not None and tool.terminal
        brought = ToolCallCompleted(said.call_id, said.result, 0, terminal=ends)
        shown = await self.screened(screened(tool, [brought]), state)
        results = [event.result for event in shown if isinstance(event, ToolCallCompleted)]
        return [replace(said, result=results[0]), *shown]

    async def screened(self, events: list[Event], state: State) -> list[Event]:
        """Return the events with what was brought to the run's calls having passed its rails."""
        return await self._rails.results(events, state) if self._rails else events

    async def _start_child(self, effect: CallTool, seq: int) -> list[Event]:
        journal, children = self._journal, self._means.children
        assert children is not None, "only who can start children has agents among the tools"

        async def start() -> list[Event]:
            return [await children.start(effect, seq, journal.claim, journal.agent, journal.state)]

        # What takes time are its own calls, and they count as such.
        return await self._spending.tool(effect, 0, start)

    async def _run_tool(self, effect: CallTool, seq: int, emissions: Emissions) -> list[Event]:
        journal, means = self._journal, self._means
        claim = journal.claim
        past = partial(self._past_rails, effect.call.name)
        live = live_progress(means.ports.hub, claim.run_id, effect.call.id, seq, past)
        emitter = self._announcements.emitter(effect.call.id)
        stash = await self._putting_off.begin(effect.call.id)
        context = self._context(
            effect.call,
            effect.attempt,
            _approved(effect.approved_by, effect.comment),
            progress=live,
            emit=emitter,
            emit_artifact=emissions.emit,
            stash_pending=stash.put,
        )
        timeout_s = journal.agent.limits.tool_timeout_s
        clock, invoke = means.ports.clock, self._invoking(effect.call.id)
        try:
            with stashing(stash):
                events = await self._spending.tool(
                    effect,
                    timeout_s,
                    lambda: run_tool(effect, context, means.tools, invoke, clock, timeout_s),
                )
        finally:
            emitter.close()
            live.close()
            stashed = self._putting_off.close(stash, effect.call.id)
        events = _counted(events, live.pieces)
        return await self._putting_off.kept(stashed, effect.call.id, events)

    async def _transact(self, effect: CallTool, seq: int, tool: Tool) -> list[Event]:
        """Run the tool in a transaction; what it brings is in the log when this comes back."""
        journal, means, transacting = self._journal, self._means, self._transacting
        assert transacting is not None, "only a service has transactional tools"
        call, clock = effect.call, means.ports.clock
        agent_s = journal.agent.limits.tool_timeout_s
        limit_s = min(TIMEOUT_S, agent_s) if tool.timeout_s is None else tool.timeout_s
        past = partial(self._past_rails, call.name)
        live = live_progress(means.ports.hub, journal.claim.run_id, call.id, seq, past)
        approval = _approved(effect.approved_by, effect.comment)
        context = self._context(call, effect.attempt, approval, progress=live)
        invoke = self._invoking(call.id)

        async def run(within: ToolContext) -> list[Event]:
            return await run_tool(effect, within, means.tools, invoke, clock, limit_s)

        async def show(events: list[Event]) -> Iterable[Event]:
            live.close()
            told = screened(tool, _counted(events, live.pieces))
            shown = await self.screened(told, journal.state)
            return self._stops.stopped(shown, journal.state)

        async def act() -> list[Event]:
            return await transacting.call(effect, context, limit_s, run, show)

        try:
            events = await self._spending.tool(effect, limit_s, act)
        finally:
            live.close()
        return await self.screened(screened(tool, events), journal.state)

    def _invoking(self, call_id: str) -> Invoke:
        means = self._means
        invoke = partial(means.invoker.call, on_left=partial(self.left.__setitem__, call_id))

        async def begin(
            tool: Tool, arguments: Mapping[str, Json], context: ToolContext, *, timeout_s: float
        ) -> Outcome:
            try:
                return await invoke(tool, arguments, context, timeout_s=timeout_s)
            except FencedError:
                await means.await_lease()  # The tool has not begun: it may, if that is only late.
                return await invoke(tool, arguments, context, timeout_s=timeout_s)

        return begin

    def _context(
        self, call: ToolCall, attempt: int, approval: Approved | None, **ways: Unpack[WaysOut]
    ) -> ToolContext:
        claim = self._journal.claim
        return ToolContext(
            run_id=claim.run_id,
            session_id=claim.session_id,
            tenant=claim.tenant,
            user=claim.user,
            call_id=call.id,
            attempt=attempt,
            idempotency_key=idempotency_key(claim.run_id, call.id),
            deadline_ms=self._journal.state.deadline_ms,
            metadata=orjson.loads(claim.metadata),
            tool=call.name,
            approval=approval,
            log=_TOOL_LOG,
            **ways,
        )

    def _past_rails(self, name: str, writer: Writer) -> Writer:
        past = self._rails.progress(name, writer) if self._rails else writer
        return past_screen(self._means.tools.get(name), past)

    async def _count(self, effect: CountCall) -> list[Event]:
        rates = self._means.rates
        assert rates is not None, "only who can count has rules with a rate"
        counts = await rates.count(self._journal.claim, effect)
        return [ToolCallCounted(effect.call.id, counts)]

    async def _check(self, effect: CheckCall) -> list[Event]:
        journal, means = self._journal, self._means
        begun = journal.state.calls[effect.call.id]
        tool = means.tools.get(effect.call.name)
        context = self._context(
            effect.call, begun.attempt, _approved(begun.approved_by, begun.comment)
        )
        timeout_s = journal.agent.limits.tool_timeout_s
        clock, invoke = means.ports.clock, self._invoking(effect.call.id)
        events = await look_up(effect, context, tool, invoke, clock, timeout_s)
        return await self.screened(screened(tool, events), journal.state)

    async def _compress(self, effect: CompressResult) -> list[Event]:
        wanted = self._journal.agent.compression
        assert wanted is not None, "only an agent that asks for it has results compressed"
        assert self._compressor is not None, "whoever asks for it has one"
        compress = self._compressor.compress
        shortened = await self._answers.shorten(effect, wanted.threshold_chars, compress)
        return [shortened, *self._spending.warnings()]

    async def _summarize(self, effect: SummarizeHistory) -> list[Event]:
        told = await summarized(
            effect, self._seen.trimmed, self._journal.claim, self._means, self._spending
        )
        return [told, *self._spending.warnings()]

    async def _screen(self, effect: ScreenInput | ScreenCall) -> list[Event]:
        assert self._rails is not None, "only an agent with guardrails has anything screened"
        state = self._journal.state
        said = state.messages
        match effect:
            case ScreenInput():
                return await self._rails.input(said[state.inherited :])
            case ScreenCall():
                events = await self._rails.call(effect, (*self._seen.earlier.messages, *said))
                return [*events, *self._spending.warnings()]


def _counted(events: list[Event], chunks: int) -> list[Event]:
    """Return the events with how many pieces the tool showed; most show none."""
    if not chunks:
        return events
    return [
        replace(event, chunks=chunks) if isinstance(event, ToolCallCompleted) else event
        for event in events
    ]


def _approved(by: str | None, comment: str | None) -> Approved | None:
    return None if by is None else Approved(by, comment)
