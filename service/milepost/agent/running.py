"""One run in process: the same drive as a worker's, over a log in memory, from input to result."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import orjson

from milepost.agent.answer_format import AnswerFormat
from milepost.agent.approvals import InProcessApprovals
from milepost.agent.approver import Approver
from milepost.agent.asking import Options, Spoken, conversation
from milepost.agent.children import ChildOrder, InProcessChildren, StartChild
from milepost.agent.definition import Written
from milepost.agent.narration import Narration
from milepost.agent.observations import SessionSave, ToolChunk
from milepost.agent.result import AgentResult, Record, result_of
from milepost.agent.run_log import RunLog
from milepost.agent.steering import nobody_hears
from milepost.agent.stream import Chunks, OnChunk, StreamChunk
from milepost.agent.telling import Telling
from milepost.agent.workplace import Equipment
from milepost.core.agents import Agent, Memory, Remembered
from milepost.core.codec import decode
from milepost.core.context import NOTHING_SEEN, Earlier, Seen
from milepost.core.errors import ConflictError, InvalidError
from milepost.core.events import (
    Failure,
    Parent,
    ResumeWhy,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunQueued,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionLoaded,
    Terminal,
)
from milepost.core.evolve import fold
from milepost.core.rulings import Judge
from milepost.core.spans import Span
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.core.window import Place
from milepost.live.hub import Hub, inbox_bell
from milepost.memory.conversation import Conversation
from milepost.runtime.clock import Clock, NewId, now_ms
from milepost.runtime.drive import drive
from milepost.runtime.journal import no_export
from milepost.runtime.means import Means
from milepost.runtime.permits import Identity, Permits
from milepost.runtime.rules import rules_for
from milepost.runtime.settle import closing
from milepost.runtime.steering import letter_of
from milepost.runtime.stops import StopCondition
from milepost.store.records import STEER_LETTER, STEERS_MAX, Claim, Entry

TENANT = "local"
WORKER = "in process"
CALLER = "caller"
CANCEL_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is the same for all runs of an agent."""

    written: Written
    stop_condition: StopCondition | None
    approver: Approver | None
    has_agents: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is a run's own, besides what is said: in which batch, below which run, who listens."""

    options: Options
    answer: AnswerFormat | None
    start_child: StartChild
    batch_id: str | None = None
    child: ChildOrder | None = None
    on_chunk: OnChunk | None = None


@dataclass(frozen=True, slots=True)
class _Ports:
    """What a journal needs, around one log in memory, which counts for itself."""

    store: RunLog
    hub: Hub
    new_id: NewId
    clock: Clock = now_ms

    @property
    def metrics(self) -> RunLog:
        return self.store

    @property
    def shelf(self) -> RunLog:
        return self.store

    @property
    def export(self) -> Callable[[Sequence[Span]], None]:
        return no_export


class _Unleased:
    """Nobody else can take a run that is in this process' memory."""

    def check(self) -> None:
        """It always may act."""


class Running:
    """A run, from its beginning to its end. It is cancelled with whoever awaits it."""

    def __init__(
        self, plan: Plan, said: Spoken, order: Order, equipment: Equipment, telling: Telling
    ) -> None:
        self._plan = plan
        self._said = said
        self._order = order
        self._telling = telling
        self.run_id = order.child.run_id if order.child else equipment.new_id("run")
        self._new_id = equipment.new_id
        self._session_id = self._new_id("ses")
        self._hub = Hub()
        self.log = RunLog(self._told) if telling.is_heard else RunLog()
        self._children = InProcessChildren(order.start_child, self.log, self._hub)
        self._approvals = InProcessApprovals(plan.approver, self._judge(), self.log, self._hub)
        self._narration = self._narrating()
        self._broken: Exception | None = None
        self._heard = 0
        self._seen = NOTHING_SEEN
        self._means = self._equipped(equipment)
        self._listen()

    async def result(self) -> AgentResult:
        """Run to the end.

        What is neither a model's failure nor a tool's, such as a provider that is broken itself, is
        raised as it is; so is what a stream handler raises, which ends the run.
        """
        work = asyncio.create_task(self._run(), name=self.run_id)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await self._cancel(work)
            raise
        finally:
            await self._approvals.stop()
            await self._children.stop()
            await self._keep()
            await self._telling.end()
        if self._broken:
            raise self._broken
        return self._made()

    def hear(self, said: str) -> None:
        """Have the run's model read this at its next step.

        Raises `ConflictError` if the run is over, or has been told as much as one takes.
        """
        if self.log.change and self.log.change.ends:
            raise nobody_hears()
        if self._heard == STEERS_MAX:
            raise ConflictError(
                f"run {self.run_id} takes {STEERS_MAX} messages, and has them; say it with the"
                " next one",
                code="too_many_messages",
            )
        if not said:
            raise InvalidError("there is nothing to hear in an empty text")
        [message] = conversation(said).now
        letter = letter_of(message, self._new_id("ste"), CALLER)
        self.log.deliver(STEER_LETTER, orjson.loads(letter))
        self._heard += 1
        self._hub.ring(inbox_bell(self.run_id))

    async def before(
        self, claim: Claim, memory: Memory | None, summary_id: str, *, begun_only: bool = False
    ) -> Seen:
        """Return what was said before the run: in its conversation, or as it was handed in."""
        if self._talk is not None:
            self._seen = self._talk.seen(memory, summary_id, begun_only=begun_only)
        else:
            said = self._said.before
            loaded = SessionLoaded(claim.turns, len(said), kept_from=str(Place(1, 0)))
            self._seen = Seen(Earlier(messages=said), loaded)
        return self._seen

    async def again(self, _claim: Claim, state: State, *, begun_only: bool = False) -> Seen:
        """Return the same, to a run that goes on."""
        del begun_only
        context = state.loaded.context if state.loaded else ""
        earlier = replace(self._seen.earlier, context=context)
        return replace(self._seen, earlier=earlier, loaded=None)

    async def _keep(self) -> None:
        """Have what was said in the conversation from now on."""
        if self._talk is not None and self.log.events:
            self._talk.keep(self.log.events)
            saved = SessionSave(self.run_id, len(self._talk))
            await self._telling.tell([saved])

    @property
    def _talk(self) -> Conversation | None:
        return self._order.options.conversation

    # --- From the beginning to the end ---

    async def _run(self) -> None:
        claim = self._claim()
        try:
            await self.log.begin(now_ms(), self._queued(), RunStarted(1, WORKER))
            while True:
                agent = self._agent
                driven = await drive(self.log.claim(claim), agent, self, self._means)
                await driven.run()
                if self.log.change and self.log.change.ends:
                    return
                await self._resume()
        except Exception as error:
            failure = Failure("internal", repr(error))
            await self._close(lambda used: RunFailed(failure, used))
            raise

    @property
    def _agent(self) -> Agent:
        """The agent, which is told what is known if there is anything to know."""
        agent = self._plan.written.agent
        if self._order.options.knowledge is None:
            return agent
        return replace(agent, memory=replace(agent.memory or Memory(), recall=Remembered()))

    def _claim(self) -> Claim:
        child = self._order.child
        metadata = dict(self._order.options.trace_metadata)
        return Claim(
            run_id=self.run_id,
            tenant=TENANT,
            session_id=self._session_id,
            agent_id="",
            agent_version=0,
            user=self._order.options.user,
            epoch=0,
            head=0,
            inbox_seq=0,
            turns=self._turns,
            metadata=orjson.dumps(metadata).decode(),
            trace_parent=child.trace_parent if child else None,
            entries=None,
        )

    def _queued(self) -> RunQueued:
        order, options = self._order, self._order.options
        deadline_ms = order.child.deadline_ms if order.child else None
        if options.deadline_s is not None:
            deadline_ms = now_ms() + round(options.deadline_s * 1000)
        return RunQueued(
            agent=self._plan.written.agent.name,
            agent_id="",
            agent_version=0,
            session_id=self._session_id,
            input=self._said.now,
            user=options.user,
            deadline_ms=deadline_ms,
            response_format=order.answer.wanted if order.answer else None,
            cache=options.cache,
            parent=self._parent,
            bounds=order.child.bounds if order.child else None,
        )

    @property
    def _turns(self) -> int:
        if self._talk is not None:
            return self._talk.turns
        return 1 if self._said.before else 0

    @property
    def _parent(self) -> Parent | None:
        if self._order.child:
            return self._order.child.parent
        above = self._order.options.parent_run_id
        return None if above is None else Parent(above, "", 0)

    async def _resume(self) -> None:
        """Wait until there is something to go on with, and take the run in hand again."""
        waiting, state = self.log.events[-1], fold(self.log.events)
        assert isinstance(waiting, RunWaiting), "a run that has not ended waits"
        await self.log.mail(self._left_s(state))
        why: ResumeWhy = "cancel" if waiting.cause == "operator" else waiting.cause
        if self.log.unread[:1] == [STEER_LETTER]:
            why = "steer"
        await self.log.begin(now_ms(), RunResumed(state.attempt + 1, WORKER, why))

    def _left_s(self, state: State) -> float | None:
        if state.deadline_ms is None:
            return None
        return max(0.0, (state.deadline_ms - now_ms()) / 1000)

    async def _close(self, terminal: Callable[[Usage], Terminal]) -> None:
        """Bring a log to its end that nobody drives any more."""
        state = fold(self.log.events)
        if not state.ended:
            before, last = closing(state, terminal(state.usage))
            await self.log.begin(now_ms(), *before, last)

    # --- From outside ---

    async def _cancel(self, work: "asyncio.Task[None]") -> None:
        """Ask the run to end, as a client of the service would; one that does not is cut off."""
        self._ask_for_end()
        try:
            await asyncio.wait({work}, timeout=CANCEL_S_MAX)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work}, timeout=CANCEL_S_MAX)
            if work.done() and not work.cancelled():
                work.exception()  # The caller is told of the cancellation alone.
            await self._close(lambda used: RunCancelled(CALLER, "cut off", (), used))

    def _ask_for_end(self) -> None:
        self.log.deliver("cancel", {"by": CALLER, "reason": None})
        self._hub.ring(inbox_bell(self.run_id))

    # --- Who is told ---

    def _listen(self) -> None:
        order = self._order
        self.log.listen(self._children.see)
        self.log.put_questions_to(self._approvals.ask)
        self.log.listen(self._approvals.see)
        if order.on_chunk or order.options.stream_handler or self._telling.is_heard:
            chunks = Chunks(self._show, is_structured=self._format is not None)
            self._hub.link = chunks
            self.log.listen(chunks.see)

    def _show(self, chunk: StreamChunk) -> None:
        if self._order.on_chunk:
            self._order.on_chunk(chunk)
        if chunk.type == "tool_progress":
            self._telling.say(ToolChunk(self.run_id, chunk.id, chunk.tool, chunk.text))
        handler = self._order.options.stream_handler
        if handler and chunk.type == "text" and self._broken is None:
            try:
                handler(chunk.text)
            except Exception as error:
                self._broken = error
                self._ask_for_end()

    async def _told(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if event := decode(entry.type, entry.data):
                await self._telling.tell(self._narration.of(event, entry.time_ms))

    def _narrating(self) -> Narration:
        parent = self._parent
        return Narration(
            self.run_id,
            self._plan.written.agent,
            parent_run_id=parent.run_id if parent else None,
            batch_id=self._order.batch_id,
            metadata=self._order.options.trace_metadata,
            is_structured=self._format is not None,
        )

    # --- What it is made of ---

    @property
    def _format(self) -> AnswerFormat | None:
        return self._order.answer

    def _equipped(self, equipment: Equipment) -> Means:
        plan, answering = self._plan, equipment.answering
        return Means(
            ports=_Ports(self.log, self._hub, equipment.new_id),
            providers=answering.catalog,
            tools=plan.written.tools,
            invoker=equipment.invoker,
            pricing=answering.pricing,
            lease=_Unleased(),
            results=equipment.results,
            stop_condition=plan.stop_condition,
            answer_check=self._format.check if self._format else None,
            chains=answering.chains,
            children=self._children if plan.has_agents else None,
            rails=plan.written.rails,
            rates=equipment.rates,
            recall=self._order.options.knowledge,
        )

    def _judge(self) -> Judge:
        written, user = self._plan.written, self._order.options.user
        permits = Permits(Identity(user))
        return rules_for(written.agent, written.tools, permits).judge

    def _made(self) -> AgentResult:
        log, parent = self.log, self._parent
        record = Record(
            model=self._plan.written.agent.model,
            before=self._said.before or self._seen.earlier.messages,
            events=tuple(log.events),
            times_ms=tuple(entry.time_ms for entry in log.log),
            spans=tuple(log.spans),
            contents=log.contents,
            children=tuple(self._children.results),
            parent_run_id=parent.run_id if parent else None,
            metadata=self._order.options.trace_metadata,
            observer_failures=self._telling.failures,
        )
        return result_of(self.run_id, record, self._parsed())

    def _parsed(self) -> object:
        """Return the answer's value as an object of the class that was asked for."""
        match self.log.events[-1]:
            case RunCompleted(output, _, finish_reason) if self._format:
                if output.parsed is not None and finish_reason != "routed":
                    return self._format.parsed(output.parsed)
            case _:
                pass  # Nothing that was asked for.
        return None
