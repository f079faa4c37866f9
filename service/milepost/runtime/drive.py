"""One run in a worker's hands, from its claim to where it ends, waits or is handed back."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from milepost.core.agents import Agent
from milepost.core.codec import decode
from milepost.core.effects import CallModel, CallTool, CompressResult
from milepost.core.errors import FencedError, InvalidError, OverloadedError
from milepost.core.events import (
    Event,
    Failure,
    MessageAborted,
    ModelRetried,
    RunResumed,
    RunRetrying,
    SessionLoaded,
)
from milepost.core.ids import idempotency_key
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.core.prompt import prompt
from milepost.core.repetition import may_repeat
from milepost.core.state import State, evolve
from milepost.core.usage import UNKNOWN
from milepost.live.frames import Frame
from milepost.live.hub import inbox_bell
from milepost.live.reminder import Reminder
from milepost.providers.catalog import Catalog
from milepost.providers.pricing import Pricing
from milepost.runtime import notices
from milepost.runtime.answers import Answers
from milepost.runtime.calls import ModelCall, live_progress, run_tool
from milepost.runtime.compressing import Compressor
from milepost.runtime.cutoff import cut_off
from milepost.runtime.history import History
from milepost.runtime.journal import Journal, Ports, Stamped, folded
from milepost.runtime.letters import events_of
from milepost.runtime.permits import Identity, Listed, Permits
from milepost.runtime.result_cache import ResultCache
from milepost.runtime.rules import rules_for
from milepost.runtime.settle import Call, Settlement, Settling
from milepost.store import log
from milepost.store.log import InboxMovedError
from milepost.store.records import Change, Claim, LogEntry
from milepost.telemetry.logs import logger
from milepost.telemetry.spans import SpanFold
from milepost.tools import Approved, Invoker, Registry, ToolContext, preview
from milepost.tools.artifacts import Emissions

INBOX_POLL_S = 1.0
LEASE_PAUSE_S = 0.1
DEADLINE_SLACK_S = 0.002
SETTLE_TRIES_MAX = 100
_TOOL_LOG = logger("tool")
_TAKEN_OVER = frozenset({"crash", "outage", "drain"})


class Lease(Protocol):
    """What says whether this process may still act in the world."""

    def check(self) -> None:
        """Raise `FencedError` when the lease may have lapsed."""


@dataclass(frozen=True, slots=True)
class Means:
    """What runs are driven with: everything that does not differ from run to run.

    `tools` are the installation's; `tools_of` adds those that a tenant has declared itself, and
    `permissions_of` says to whom the tenant permits which.
    """

    ports: Ports
    providers: Catalog
    tools: Registry
    invoker: Invoker
    pricing: Pricing
    lease: Lease
    drain_s: float = 20.0
    lease_wait_s: float = 2.0  # Its thread tries twice a second while the database is away.
    stop_s: float = 4.0  # More than the invoker needs, and less than a cancellation's grace.
    content: bool = False
    tools_of: Callable[[str], Awaitable[Registry]] | None = None
    permissions_of: Callable[[str], Awaitable[Listed]] | None = None
    results: ResultCache | None = None


async def load(claim: Claim, agent: Agent, means: Means) -> Journal:
    """Fold the run's log as far as the claim reaches, and show the claim itself.

    What came later is another's.
    """
    entries: Sequence[LogEntry]
    if claim.entries is not None:
        entries = claim.entries
    else:
        entries = await means.ports.store.read(
            log.read_all(claim.tenant, claim.run_id, through=claim.head)
        )
    state, event = State(), None
    spans = SpanFold(
        claim.run_id,
        claim.trace_parent,
        agent=agent.name,
        session_id=claim.session_id,
        provider=agent.provider,
        content=means.content,
    )
    for entry in entries:
        if event := decode(entry.type, entry.data):
            state = evolve(state, event)
            spans.feed(entry.seq, entry.time_ms, event)
    if isinstance(event, RunResumed) and event.why in _TAKEN_OVER:
        notices.run_taken_over(event, claim.run_id)
    last = entries[-1]
    shown = Frame(claim.run_id, last.seq, last.type, last.time_ms, last.data.encode())
    means.ports.hub.publish(claim.run_id, [shown])
    return Journal(claim, agent, state, spans, means.ports)


class Drive:
    """Settles, writes, acts, and begins again with what came of it."""

    def __init__(
        self, journal: Journal, history: tuple[Message, ...], means: Means, narrowed: Listed
    ) -> None:
        self._journal = journal
        self._history = history
        self._means = means
        agent, claim = journal.agent, journal.claim
        self._permits = Permits(Identity.of(claim.user, claim.scopes), narrowed)
        self._settling = Settling(
            claim,
            agent,
            rules_for(agent, means.tools, self._permits),
            means.ports.new_id,
            preview,
        )
        self._answers = Answers(journal.claim, means.ports.shelf, means.results)
        self._compressor = (
            Compressor(agent.compression, journal.claim, means.providers, means.pricing)
            if agent.compression
            else None
        )
        self._works: dict[asyncio.Task[list[Event]], Call] = {}
        self._broken: BaseException | None = None
        self._draining = False
        self._woken: asyncio.Event | None = None

    def drain(self) -> None:
        """Hand the run back soon: what can be repeated stops at once, the rest may finish."""
        self._draining = True
        self._wake()

    async def run(self) -> None:
        """Drive the run until this worker lets go of it. Raises `FencedError` if it was taken."""
        journal = self._journal
        happened: list[Stamped] = []
        with (
            self._means.ports.hub.bell(inbox_bell(journal.claim.run_id)) as self._woken,
            Reminder(INBOX_POLL_S, self._wake),
        ):
            alarm = self._set_alarm()
            try:
                if journal.state.history_turns is None and self._history:
                    happened = journal.stamp(self._loaded())
                while not await self._advance(happened):
                    mail = journal.inbox_known > journal.inbox_seen
                    happened = [] if mail else await self._await_more(self._woken)
            finally:
                if alarm:
                    alarm.cancel()
                await self._stop_works()

    def _set_alarm(self) -> asyncio.TimerHandle | None:
        """Have the run woken at its deadline."""
        deadline_ms = self._journal.state.deadline_ms
        if deadline_ms is None:
            return None
        left_s = max(0, deadline_ms - self._means.ports.clock()) / 1000
        return asyncio.get_running_loop().call_later(left_s + DEADLINE_SLACK_S, self._wake)

    async def _advance(self, happened: list[Stamped]) -> bool:
        """Write what happened and what follows from it; say whether the run was let go."""
        if self._draining:
            return await self._hand_back(happened)
        settlement = await self._commit(happened)
        if settlement.leaves:
            return True
        if self._broken:
            raise self._broken
        base = self._journal.head - len(settlement.happened)
        if settlement.calls:
            await self._await_lease()
        for effect, offset in settlement.calls:
            self._begin(effect, base + offset)
        return False

    async def _await_lease(self) -> None:
        """Wait out the moment in which the database is back, and our lease is not yet.

        What the log says is begun would else be taken for lost, although it never began.
        """
        for _ in range(round(self._means.lease_wait_s / LEASE_PAUSE_S)):
            try:
                self._means.lease.check()
            except FencedError:
                await asyncio.sleep(LEASE_PAUSE_S)
            else:
                return

    async def _commit(self, happened: list[Stamped]) -> Settlement:
        """Write an iteration; where a message came in meanwhile, read it and settle anew."""
        journal = self._journal
        read_to = None
        for _ in range(SETTLE_TRIES_MAX):
            read_to = await self._read_inbox(happened, read_to)
            now = self._means.ports.clock()
            settlement = self._settling.settle(journal.state, happened, now)
            if not settlement.happened and read_to is None:
                return settlement
            if settlement.change and settlement.change.ends:
                await self._stop_works()
            try:
                await journal.append(
                    settlement.happened,
                    state=settlement.state,
                    change=settlement.change,
                    approvals=settlement.approvals,
                    inbox_read=read_to,
                )
            except InboxMovedError:
                journal.inbox_known = max(journal.inbox_seen, read_to or 0) + 1
                continue
            return settlement
        raise OverloadedError(
            f"run {journal.claim.run_id} gets messages faster than it can read them"
        )

    async def _read_inbox(self, happened: list[Stamped], read_to: int | None) -> int | None:
        """Add what came in to what happened; return how far the inbox was read, if it was."""
        journal = self._journal
        seen = max(journal.inbox_seen, read_to or 0)
        if journal.inbox_known <= seen:
            return read_to
        claim = journal.claim
        count, letters = await self._means.ports.store.inbox(claim.tenant, claim.run_id, seen)
        if not letters:
            # What the count stands for was read before, or the bell was rung for nothing.
            journal.inbox_seen = journal.inbox_known = count
            return read_to
        for letter in letters:
            happened += journal.stamp(*events_of([letter], folded(journal.state, happened)))
        return count

    async def _await_more(self, woken: asyncio.Event) -> list[Stamped]:
        """Wait for a call to end, a message, a drain or the deadline; return what ended.

        A bell may be rung for nothing, and one rung elsewhere may be lost: so whoever is woken
        without a call having ended looks into the inbox, and everybody looks once a while.
        """
        await woken.wait()
        woken.clear()
        happened = self._collect()
        if not happened:
            journal = self._journal
            journal.inbox_known = max(journal.inbox_known, journal.inbox_seen + 1)
        return happened

    def _collect(self) -> list[Stamped]:
        """Take what has ended. A call that raised ends the drive, but loses no sibling's result."""
        happened: list[Stamped] = []
        for task in [task for task in self._works if task.done()]:
            effect = self._works.pop(task)
            if task.cancelled():
                happened += self._journal.stamp(cut_off(effect))
            elif error := task.exception():
                self._broken = self._broken or error
            else:
                happened += self._journal.stamp(*task.result())
        return happened

    def _wake(self, _: object = None) -> None:
        if self._woken is not None:
            self._woken.set()

    def _begin(self, effect: Call, seq: int) -> None:
        """Start a call in the world, which is written down already: only if we still may."""
        self._means.lease.check()
        task = asyncio.create_task(self._work(effect, seq))
        task.add_done_callback(self._wake)
        self._works[task] = effect

    def _work(self, effect: Call, seq: int) -> Coroutine[None, None, list[Event]]:
        match effect:
            case CallModel():
                return self._call_model(effect, seq)
            case CallTool():
                return self._call_tool(effect, seq)
            case CompressResult():
                return self._compress(effect)

    async def _call_model(self, effect: CallModel, seq: int) -> list[Event]:
        journal, means = self._journal, self._means
        agent = journal.agent
        for event in effect.opening:
            if isinstance(event, ModelRetried):
                notices.model_retried(event, journal.claim.run_id, agent.model)
        if effect.wait_s:
            await asyncio.sleep(effect.wait_s)
            means.lease.check()
        try:
            provider = means.providers.get(agent.provider)
        except InvalidError as error:
            failure = Failure(error.code, str(error))
            return [MessageAborted(effect.message_id, str(error), failure)]
        request = ModelRequest(
            tenant=journal.claim.tenant,
            model=agent.model_name,
            messages=prompt(agent, self._history, journal.state),
            tools=means.tools.schemas(self._permits.allowed(agent.tools, means.tools)),
            temperature=agent.limits.temperature,
            tokens_max=agent.limits.max_output_tokens,
            cache_ttl_s=agent.cache_ttl_s,
        )
        call = ModelCall(effect, seq, journal.claim, agent, journal.state.step, means.tools.kind)
        return await call.perform(
            provider,
            request,
            means.ports.hub,
            means.ports.clock,
            means.pricing,
        )

    async def _call_tool(self, effect: CallTool, seq: int) -> list[Event]:
        tool = self._means.tools.get(effect.call.name)
        return await self._answers.answer(
            effect, tool, lambda emissions: self._run_tool(effect, seq, emissions)
        )

    async def _run_tool(self, effect: CallTool, seq: int, emissions: Emissions) -> list[Event]:
        journal, means = self._journal, self._means
        claim = journal.claim
        live = live_progress(means.ports.hub, claim.run_id, effect.call.id, seq)
        context = ToolContext(
            run_id=claim.run_id,
            session_id=claim.session_id,
            tenant=claim.tenant,
            user=claim.user,
            call_id=effect.call.id,
            attempt=effect.attempt,
            idempotency_key=idempotency_key(claim.run_id, effect.call.id),
            deadline_ms=journal.state.deadline_ms,
            tool=effect.call.name,
            approval=_approval(effect),
            progress=live,
            log=_TOOL_LOG,
            emit_artifact=emissions.emit,
        )
        timeout_s = journal.agent.limits.tool_timeout_s
        clock = means.ports.clock
        try:
            return await run_tool(effect, context, means.tools, means.invoker, clock, timeout_s)
        finally:
            live.close()

    async def _compress(self, effect: CompressResult) -> list[Event]:
        wanted = self._journal.agent.compression
        assert wanted is not None, "only an agent that asks for it has results compressed"
        assert self._compressor is not None, "whoever asks for it has one"
        compress = self._compressor.compress
        return [await self._answers.shorten(effect, wanted.threshold_chars, compress)]

    async def _hand_back(self, happened: list[Stamped]) -> bool:
        """Let what cannot be repeated finish, stop the rest, and queue the run for another."""
        for task, effect in self._works.items():
            if not isinstance(effect, CallTool) or may_repeat(effect.effect):
                task.cancel()
        if self._works:
            await asyncio.wait(self._works, timeout=self._means.drain_s)
        for task in [task for task in self._works if task.cancelled()]:
            del self._works[task]
        happened += self._collect()
        await self._stop_works()
        state = self._journal.state
        if state.open_message and not _closes(happened, state.open_message):
            aborted = MessageAborted(state.open_message, "handed back", usage=UNKNOWN)
            happened += self._journal.stamp(aborted)
        await self._release(happened)
        if self._broken:
            raise self._broken
        return True

    async def _release(self, happened: list[Stamped]) -> None:
        journal = self._journal
        happened += journal.stamp(RunRetrying("drain"))
        for _ in range(SETTLE_TRIES_MAX):
            state = folded(journal.state, happened)
            try:
                await journal.append(
                    happened, state=state, change=Change("queued", resume_why="drain")
                )
            except InboxMovedError:
                # The next worker reads it; only the count must be right for the change to stand.
                journal.inbox_seen += 1
                continue
            notices.run_handed_back(journal.claim.run_id)
            return

    async def _stop_works(self) -> None:
        """Cancel what is in hand. What will not be cancelled is left behind: the run goes on."""
        works = set(self._works)
        self._works.clear()
        for task in works:
            task.cancel()
        if works:
            await asyncio.wait(works, timeout=self._means.stop_s)

    def _loaded(self) -> SessionLoaded:
        return SessionLoaded(self._journal.claim.turns, len(self._history))


def _approval(effect: CallTool) -> Approved | None:
    return None if effect.approved_by is None else Approved(effect.approved_by, effect.comment)


def _closes(happened: Sequence[Stamped], message_id: str) -> bool:
    return any(getattr(stamped.event, "message_id", None) == message_id for stamped in happened)


async def drive(claim: Claim, agent: Agent, history: History, means: Means) -> Drive:
    """Load the run and return what drives it."""
    if means.tools_of is not None:
        means = replace(means, tools=await means.tools_of(claim.tenant))
    narrowed = await means.permissions_of(claim.tenant) if means.permissions_of else {}
    journal = await load(claim, agent, means)
    past = await history.before(claim, _turns_seen(journal.state, claim))
    return Drive(journal, past, means, narrowed)


def _turns_seen(state: State, claim: Claim) -> int:
    """Return how far the run sees back: what ended since its first step came later."""
    if state.history_turns is not None:
        return state.history_turns
    return 0 if state.step else claim.turns
