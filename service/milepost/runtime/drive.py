"""One run in a worker's hands, from its claim to where it ends, waits or is handed back."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from milepost.core.agents import Agent
from milepost.core.context import Seen
from milepost.core.errors import OverloadedError
from milepost.core.events import (
    ApprovalDecided,
    MessageAborted,
    RunCancelling,
    RunRetrying,
    ToolCallRequested,
)
from milepost.core.open_call import CallStatus
from milepost.core.policy import NOTHING_STANDS
from milepost.core.rulings import Rules
from milepost.core.state import State
from milepost.live.hub import inbox_bell
from milepost.live.reminder import Reminder
from milepost.runtime import notices
from milepost.runtime.acts import Acts
from milepost.runtime.announcements import Announcements
from milepost.runtime.journal import Journal, Stamped, folded
from milepost.runtime.letters import events_of
from milepost.runtime.loading import load, look_back
from milepost.runtime.means import Means
from milepost.runtime.memory_runs import learns
from milepost.runtime.permits import Identity, Listed, Permits
from milepost.runtime.ports import Past
from milepost.runtime.rules import rules_for
from milepost.runtime.settle import Settlement, Settling
from milepost.runtime.stops import Stops
from milepost.runtime.structured import checked
from milepost.runtime.works import Works
from milepost.store.records import Change, Claim, InboxMovedError
from milepost.tools import preview

INBOX_POLL_S = 1.0
DEADLINE_SLACK_S = 0.002
SETTLE_TRIES_MAX = 100


class Drive:
    """Settles, writes, acts, and begins again with what came of it."""

    def __init__(self, journal: Journal, seen: Seen, means: Means, narrowed: Listed) -> None:
        self._journal = journal
        self._seen = seen
        self._means = means
        agent, claim = journal.agent, journal.claim
        self._permits = Permits(Identity.of(claim.user, claim.scopes, claim.made_by), narrowed)
        self._standing = NOTHING_STANDS
        self._resumed = bool(journal.state.calls)
        self._stops = Stops(agent.stop_when, means.stop_condition)
        self._announcements = Announcements(means.ports.clock, self._wake)
        self._acts = Acts(journal, seen, means, self._permits, self._announcements, self._stops)
        self._judge_by_present_rules()
        self._works = Works(
            journal, means, self._acts, self._announcements, self._stops, self._wake
        )
        self._error: Exception | None = None
        self._read_to: int | None = None  # As far as the inbox is in what happened, if unwritten.
        self._draining = False
        self._called_off = False
        self._woken: asyncio.Event | None = None

    def _judge_by_present_rules(self) -> None:
        journal, means = self._journal, self._means
        self._rules = self._ruled()
        self._settling = Settling(
            journal.claim,
            journal.agent,
            self._rules,
            means.ports.new_id,
            preview,
            self._acts.cut_off,
        )

    def _ruled(self) -> Rules:
        journal, means = self._journal, self._means
        agent = journal.agent
        rules = rules_for(agent, means.tools, self._permits, self._standing)
        if rules.answer and means.answer_check:
            rules = replace(rules, answer=checked(rules.answer, means.answer_check))
        if agent.limits.active_s is not None:
            until_ms = journal.worked.until_ms(agent.limits.active_s)
            rules = replace(rules, active_deadline_ms=until_ms)
        if agent.limits.max_cost_usd_micros is not None and not means.pricing.knows(agent.model):
            rules = replace(rules, unpriced=agent.model)
        return rules

    @property
    def _broken(self) -> BaseException | None:
        return self._error or self._works.broken

    @property
    def is_at_a_call(self) -> bool:
        """Say whether the model has asked for calls, and not all of them are over."""
        calls = self._journal.state.calls.values()
        return any(call.status is not CallStatus.DONE for call in calls)

    def drain(self) -> None:
        """Hand the run back soon: what can be repeated stops at once, the rest may finish."""
        self._draining = True
        self._wake()

    async def run(self) -> None:
        """Drive the run until this worker lets go of it. Raises `FencedError` if it was taken."""
        journal = self._journal
        happened = journal.stamp(*journal.lost)
        with (
            self._means.ports.hub.bell(inbox_bell(journal.claim.run_id)) as self._woken,
            Reminder(INBOX_POLL_S, self._wake),
        ):
            alarm = self._set_alarm()
            try:
                if self._seen.loaded:
                    happened += journal.stamp(self._seen.loaded)
                while not await self._advance(happened):
                    mail = journal.inbox_known > journal.inbox_seen
                    happened = [] if mail else await self._await_more(self._woken)
            finally:
                if alarm:
                    alarm.cancel()
                await self._works.stop()

    def _set_alarm(self) -> asyncio.TimerHandle | None:
        """Have the run woken at its deadline, whichever comes first."""
        deadlines = (self._journal.state.deadline_ms, self._rules.active_deadline_ms)
        known = [deadline_ms for deadline_ms in deadlines if deadline_ms is not None]
        if not known:
            return None
        left_s = max(0, min(known) - self._means.ports.clock()) / 1000
        return asyncio.get_running_loop().call_later(left_s + DEADLINE_SLACK_S, self._wake)

    async def _advance(self, happened: list[Stamped]) -> bool:
        """Write what happened and what follows from it; say whether the run was let go."""
        if self._draining:
            return await self._hand_back(happened)
        if self._broken is None:
            try:
                return await self._go_on(happened)
            except Exception as error:
                self._error = error
        await self._bring_home(happened)
        assert self._broken is not None, "or it would have gone on"
        raise self._broken

    async def _go_on(self, happened: list[Stamped]) -> bool:
        settlement = await self._commit(happened)
        happened.clear()  # It is written down.
        if settlement.leaves:
            if settlement.change and settlement.change.ends and self._means.children:
                await self._means.children.part(self._journal.claim, self._journal.state)
            return True
        base = self._journal.head - len(settlement.happened)
        if settlement.calls:
            await self._means.await_lease()
        for effect, offset in settlement.calls:
            self._works.begin(effect, base + offset)
        return False

    async def _bring_home(self, happened: list[Stamped]) -> None:
        """Write what happened, and what could not be repeated as soon as it has come to its end.

        Raises `FencedError` where the run is another's: nobody could be told what came of it.
        """
        await self._keep(happened)
        if self._works:
            await self._keep(await self._works.finish())

    async def _keep(self, happened: list[Stamped]) -> None:
        """Write what happened, and nothing that follows: this drive begins none of it any more."""
        journal = self._journal
        async with journal.lock:
            state = folded(journal.state, happened)
            await journal.append(happened, state=state, inbox_read=self._read_to)
        self._read_to = None

    async def _commit(self, happened: list[Stamped]) -> Settlement:
        """Write an iteration, once no tool of the run writes in a transaction of its own."""
        async with self._journal.lock:
            return await self._commit_alone(happened)

    async def _commit_alone(self, happened: list[Stamped]) -> Settlement:
        """Write an iteration; where anything came in meanwhile, read it and settle anew."""
        journal, now = self._journal, 0
        for _ in range(SETTLE_TRIES_MAX):
            await self._read_inbox(happened)
            if await self._halt(happened):
                await self._read_inbox(happened)
            await self._look_at_rules(happened)
            now = max(now, self._means.ports.clock())  # What is over stays over.
            settlement = self._settling.settle(journal.state, happened, now, self._works.stopped)
            if not settlement.happened and self._read_to is None:
                return settlement
            if settlement.change and settlement.change.ends:
                if came := await self._end_works(happened):
                    happened += came
                    continue
                await self._learn(settlement)
            try:
                await journal.append(
                    settlement.happened,
                    state=settlement.state,
                    change=settlement.change,
                    approvals=settlement.approvals,
                    inbox_read=self._read_to,
                )
            except InboxMovedError:
                journal.inbox_known = max(journal.inbox_seen, self._read_to or 0) + 1
                continue
            self._read_to = None
            return settlement
        raise self._overrun()

    def _overrun(self) -> OverloadedError:
        run_id = self._journal.claim.run_id
        return OverloadedError(f"run {run_id} gets messages faster than it can read them")

    async def _end_works(self, happened: Sequence[Stamped]) -> list[Stamped]:
        """Stop what is in hand of a run that ends; return what came to its own end meanwhile.

        By what has `happened` a child may be over whose call is in hand still.
        """
        if not self._works:
            return []
        state = folded(self._journal.state, happened)
        return await self._works.came_of(await self._works.stop(), state)

    async def _learn(self, settlement: Settlement) -> None:
        """Add to a run's end what it leaves for memory; what says so stands right before it."""
        journal, lessons = self._journal, self._means.lessons
        if lessons is None or settlement.change is None or not learns(journal.agent):
            return
        last = settlement.happened[-1]
        told, lesson = await lessons.of(journal.claim, journal.agent, settlement.state, last.event)
        if told is not None:
            settlement.happened.insert(-1, Stamped(told, last.time_ms))
        settlement.change = replace(settlement.change, lesson=lesson)

    async def _halt(self, happened: list[Stamped]) -> bool:
        """Stop all that is in hand of a run that is cancelled, so that its end can tell of it.

        What came to its own end meanwhile has happened. Say whether anything had to be stopped.
        """
        if not any(isinstance(stamped.event, RunCancelling) for stamped in happened):
            return False  # Nearly always, and so before anything is folded.
        state = folded(self._journal.state, happened)
        if not (self._works or self._awaits_children(state)):
            return False
        over, let_go = await asyncio.gather(self._call_off(state), self._works.stop())
        happened += await self._works.came_of(let_go, state)
        self._works.note(let_go)
        self._works.note_children(over, state)
        self._journal.inbox_known = max(self._journal.inbox_known, self._journal.inbox_seen + 1)
        return True

    def _awaits_children(self, state: State) -> bool:
        return bool(state.open_children and self._means.children and not self._called_off)

    async def _call_off(self, state: State) -> frozenset[str]:
        if self._means.children is None or not self._awaits_children(state):
            return frozenset()
        self._called_off = True
        claim, stop_s = self._journal.claim, self._means.stop_s
        return await self._means.children.call_off(claim, state, stop_s)

    async def _look_at_rules(self, happened: Sequence[Stamped]) -> None:
        """Judge calls by the rules of now, whatever held when they were asked for.

        What a person has said yes to, maybe days ago, is judged by those of this very moment.
        """
        means, claim = self._means, self._journal.claim
        events = [stamped.event for stamped in happened]
        if not (self._journal.state.calls or any(isinstance(e, ToolCallRequested) for e in events)):
            return
        decided = any(isinstance(event, ApprovalDecided) for event in events)
        fresh, self._resumed = self._resumed or decided, False
        standing, permits = self._standing, self._permits
        if means.permissions_of is not None:
            narrowed = await means.permissions_of(claim.tenant, fresh=fresh)
            if narrowed != permits.narrowed:
                permits = replace(permits, narrowed=narrowed)
        if means.standing_of is not None:
            standing = await means.standing_of(claim.tenant, claim.session_id, fresh=fresh)
        if standing is not self._standing or permits is not self._permits:
            self._standing, self._permits = standing, permits
            self._judge_by_present_rules()

    async def _read_inbox(self, happened: list[Stamped]) -> None:
        """Add what came in to what happened; it is read once that is written."""
        journal = self._journal
        seen = max(journal.inbox_seen, self._read_to or 0)
        if journal.inbox_known <= seen:
            return
        claim = journal.claim
        count, letters = await self._means.ports.store.inbox(claim.tenant, claim.run_id, seen)
        if not letters:
            # What the count stands for was read before, or the bell was rung for nothing.
            journal.inbox_seen = journal.inbox_known = count
            return
        read: list[Stamped] = []
        for letter in letters:
            state = folded(journal.state, [*happened, *read])
            came = await self._acts.taken_in(events_of([letter], state), state)
            read += journal.stamp(*self._stops.stopped(came, state))
        happened += read
        self._read_to = count

    async def _await_more(self, woken: asyncio.Event) -> list[Stamped]:
        """Wait for a call to end, a message, a drain or the deadline; return what ended.

        A bell may be rung for nothing, and one rung elsewhere may be lost: so whoever is woken
        without a call having ended looks into the inbox, and everybody looks once a while.
        """
        await woken.wait()
        woken.clear()
        happened = [*(await self._works.announced()), *self._works.collect()]
        if not happened:
            journal = self._journal
            journal.inbox_known = max(journal.inbox_known, journal.inbox_seen + 1)
        return happened

    def _wake(self, _: object = None) -> None:
        if self._woken is not None:
            self._woken.set()

    async def _hand_back(self, happened: list[Stamped]) -> bool:
        """Let what cannot be repeated finish, stop the rest, and queue the run for another."""
        happened += await self._works.finish()
        await self._works.stop()
        state = self._journal.state
        if state.open_message and not _closes(happened, state.open_message):
            usage = self._acts.cut_off(state.open_message)
            aborted = MessageAborted(state.open_message, "handed back", usage=usage)
            happened += self._journal.stamp(aborted)
        try:
            async with self._journal.lock:
                await self._release(happened)
        except OverloadedError:
            await self._keep(happened)
            raise
        if self._broken:
            raise self._broken
        return True

    async def _release(self, happened: list[Stamped]) -> None:
        journal = self._journal
        last = [*happened, *journal.stamp(RunRetrying("drain"))]
        for _ in range(SETTLE_TRIES_MAX):
            state = folded(journal.state, last)
            change = Change("queued", resume_why="drain", crashes=state.crashes)
            try:
                await journal.append(last, state=state, change=change)
            except InboxMovedError:
                # The next worker reads it; only the count must be right for the change to stand.
                claim, store = journal.claim, self._means.ports.store
                journal.inbox_seen, _ = await store.inbox(
                    claim.tenant, claim.run_id, journal.inbox_seen
                )
                continue
            notices.run_handed_back(journal.claim.run_id)
            return
        raise self._overrun()


def _closes(happened: Sequence[Stamped], message_id: str) -> bool:
    return any(getattr(stamped.event, "message_id", None) == message_id for stamped in happened)


async def drive(claim: Claim, agent: Agent, history: Past, means: Means) -> Drive:
    """Load the run and return what drives it."""
    tools = await means.tools_of(claim.tenant) if means.tools_of else means.tools
    if means.children is not None:
        tools = await means.children.join(tools, agent, claim.tenant)
    if tools is not means.tools:
        means = replace(means, tools=tools)
    narrowed = await means.permissions_of(claim.tenant) if means.permissions_of else {}
    journal = await load(claim, agent, means)
    seen = await look_back(journal, history, means)
    journal.told_of = seen.trimmed_runs
    return Drive(journal, seen, means, narrowed)
