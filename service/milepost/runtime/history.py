"""What was said in a session before a run: the transcripts of the runs that ended before it."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from milepost.core.agents import Memory, Window
from milepost.core.codec import decode
from milepost.core.context import NOTHING_SEEN, Earlier, Seen
from milepost.core.events import (
    ArtifactCreated,
    BudgetWarning,
    CacheHit,
    Custom,
    Event,
    GuardrailTriggered,
    MessageStarted,
    ModelFellBack,
    ModelRetried,
    PolicyDecided,
    ReasoningCompleted,
    RunCancelled,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunIncomplete,
    RunRetrying,
    RunStarted,
    RunWaiting,
    SessionLoaded,
    Stretch,
)
from milepost.core.evolve import fold
from milepost.core.messages import NOT_RUN, Message
from milepost.core.state import State
from milepost.core.window import Place, Placed, cut, estimated, holds, window_of
from milepost.memory.conversation import placed_in
from milepost.memory.sight import Sight, as_pinned, seen
from milepost.memory.transcript import Told, told_in
from milepost.store import log, session_past, sessions
from milepost.store.records import Claim, LogEntry
from milepost.store.session_past import Past
from milepost.store.store import Store

TURNS_MAX = 128
"""So many turns are read at a time; a few more than most windows have room for."""

TURNS_SHOWN = 100
"""So many were shown by versions that had no window."""

READ_MAX = 1_000
CACHED_RUNS_MAX = 1_000
CACHED_TOKENS_MAX = 4_000_000
TRUSTED_S = 60
"""How long what was read of a log is taken for what it says: logs are not kept for ever."""


@dataclass(slots=True)
class _Cached:
    """What was said in a run, and when its log was looked at last."""

    told: Told
    looked_s: float


class History:
    """Reads transcripts from logs; one that has ended never changes and is kept for a while.

    But its log may be gone at some time, and then nothing is shown of it any more.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, _Cached] = OrderedDict()
        self._cached_tokens = 0

    async def before(
        self, claim: Claim, memory: Memory | None, summary_id: str, *, begun_only: bool = False
    ) -> Seen:
        """Return what a run that begins sees of its session, within the window of its agent.

        What falls out of sight with it is known as `summary_id`. With `begun_only` it is without
        the input that no model ever read: whoever has guardrails look at inputs does not know what
        they would have made of it.
        """
        if not claim.turns:
            return NOTHING_SEEN
        window = window_of(memory)
        past, placed = await self._last(claim, window, begun_only=begun_only)
        sight = Sight(claim.turns, placed, cut(placed, window))
        pins = [pin for pin in past.pins if pin < sight.begins]
        pinned = await self._at(claim, past, pins, begun_only=begun_only)
        found = seen(sight, summary_id, past.trimmed, pinned)
        return replace(found, trimmed_runs=_runs_of(placed[: sight.trimmed], past))

    async def again(self, claim: Claim, state: State, *, begun_only: bool = False) -> Seen:
        """Return what a run that is under way saw when it began, as its log tells."""
        loaded = state.loaded
        if loaded is None:
            return NOTHING_SEEN
        if not loaded.turns:
            return Seen(Earlier(context=loaded.context))
        kept_from = Place.of(loaded.kept_from) if loaded.kept_from else Place(0, 0)
        since = kept_from
        if state.trim is not None:
            since = min(since, Place.of(state.trim.first))
        past = await self._store.read(
            session_past.past(
                claim.tenant,
                claim.session_id,
                loaded.turns,
                since=since.turn,
                limit=READ_MAX if loaded.kept_from else TURNS_SHOWN,
            )
        )
        placed = await self._placed(past, begun_only=begun_only)
        summaries: list[str] = []
        if loaded.summaries:
            work = session_past.told(claim.tenant, loaded.summaries)
            summaries = await self._store.read(work)
        pins = [Place.of(pin) for pin in loaded.pins]
        pinned = await self._at(claim, past, pins, begun_only=begun_only)
        earlier = Earlier(
            messages=tuple(each.message for each in placed if each.place >= kept_from),
            summaries=tuple(summaries),
            pinned=tuple(map(as_pinned, pinned.values())),
            context=loaded.context,
        )
        trimmed = _within(placed, state.trim)
        return Seen(
            earlier,
            trimmed=tuple(each.message for each in trimmed),
            trimmed_runs=_runs_of(trimmed, past),
        )

    async def of(self, run_ids: Sequence[str]) -> dict[str, tuple[Message, ...]]:
        """Return what was said in each of these runs, which have all ended."""
        return {run_id: each.messages for run_id, each in (await self._told(run_ids)).items()}

    async def at(self, tenant: str, session_id: str, place: Place) -> Message | None:
        """Return the message that stands there in a run that is over, None if there is none."""
        turn = place.turn
        work = session_past.past(tenant, session_id, turn, since=turn, limit=1)
        placed = await self._placed(await self._store.read(work), begun_only=False)
        return next((each.message for each in placed if each.place == place), None)

    # --- Reading ---

    async def _last(
        self, claim: Claim, window: Window, *, begun_only: bool
    ) -> tuple[Past, list[Placed]]:
        """Return the session's last messages: all that is in sight, or too much for the window."""
        whole, placed = Past(), list[Placed]()
        before = claim.turns + 1
        while True:
            # No more than a run is shown again that goes on elsewhere.
            limit = min(TURNS_MAX, READ_MAX - len(whole.turns))
            work = session_past.past(
                claim.tenant, claim.session_id, claim.turns, before=before, limit=limit
            )
            past = await self._store.read(work)
            whole = replace(past, turns=(*past.turns, *whole.turns))
            read = await self._placed(past, begun_only=begun_only)
            placed[:0] = [each for each in read if each.place > past.out_of_sight]
            if not past.more or len(whole.turns) >= READ_MAX or not holds(placed, window):
                return whole, placed
            before = past.turns[0][0]

    async def _placed(self, past: Past, *, begun_only: bool) -> list[Placed]:
        told = await self._told([run_id for _, run_id in past.turns])
        return [
            each
            for turn, run_id in past.turns
            for each in _of_turn(turn, told[run_id], past.ends.get(turn), begun_only=begun_only)
        ]

    async def _at(
        self, claim: Claim, past: Past, places: Sequence[Place], *, begun_only: bool
    ) -> dict[Place, Message]:
        """Return the messages at these places, those that are still there."""
        if not places:
            return {}
        turns = {place.turn for place in places}
        work = session_past.runs_at(claim.tenant, past.lines, turns)
        runs = await self._store.read(work)
        told = await self._told([*runs.values()])
        messages = {
            each.place: each.message
            for turn, run_id in runs.items()
            for each in placed_in(turn, told[run_id], begun_only=begun_only)
        }
        return {place: messages[place] for place in places if place in messages}

    async def _told(self, run_ids: Sequence[str]) -> dict[str, Told]:
        # Others may push out of the cache what it had when we asked: keep our own hold of it.
        found = {run_id: self._cached[run_id] for run_id in run_ids if run_id in self._cached}
        await self._look_again(found)
        told = {run_id: each.told for run_id, each in found.items() if run_id in self._cached}
        missing = [run_id for run_id in run_ids if run_id not in told]
        if missing:
            read = await self._read(missing)
            self._remember(read)
            told |= read
        return told

    async def _read(self, run_ids: Sequence[str]) -> dict[str, Told]:
        logs: dict[str, list[LogEntry]] = {run_id: [] for run_id in run_ids}
        for run_id, *entry in await self._store.read(sessions.logs(run_ids)):
            logs[run_id].append(LogEntry(*entry))
        return {run_id: _told(entries) for run_id, entries in logs.items()}

    async def _look_again(self, found: Mapping[str, _Cached]) -> None:
        """Let go of what was found in the cache for a long time, and has no log any more."""
        now = time.monotonic()
        old = {run_id: each for run_id, each in found.items() if now - each.looked_s >= TRUSTED_S}
        if not old:
            return
        there = await self._store.read(log.heads(old))
        for run_id, each in old.items():
            if run_id in there:
                each.looked_s = now
            elif self._cached.pop(run_id, None):
                self._cached_tokens -= sum(each.told.tokens)

    def _remember(self, told: Mapping[str, Told]) -> None:
        """Keep so many, and so much: one transcript may be as long as a thousand others."""
        now = time.monotonic()
        for run_id, each in told.items():
            if run_id not in self._cached:
                self._cached_tokens += sum(each.tokens)
            self._cached[run_id] = _Cached(each, now)
        while len(self._cached) > CACHED_RUNS_MAX or self._cached_tokens > CACHED_TOKENS_MAX:
            _, dropped = self._cached.popitem(last=False)
            self._cached_tokens -= sum(dropped.told.tokens)


def _of_turn(turn: int, told: Told, end: int | None, *, begun_only: bool) -> list[Placed]:
    """Return a turn's messages, up to and with number `end`; what is cut there leaves no call open.

    Results that are beyond are no part of the session, but that there was none has to be said.
    """
    placed = placed_in(turn, told, begun_only=begun_only)
    if end is None or end >= len(placed) - 1:
        return placed
    return [*placed[: end + 1], *_closing(placed[: end + 1])]


def _closing(placed: Sequence[Placed]) -> list[Placed]:
    """Return results for the calls that have none."""
    answered = {each.message.call_id for each in placed}
    missing = [
        Message("tool", NOT_RUN, call_id=call.id)
        for each in placed
        for call in each.message.calls
        if call.id not in answered
    ]
    turn, last = placed[-1].place if placed else Place(0, 0)
    return [
        Placed(Place(turn, last + more), message, estimated(message))
        for more, message in enumerate(missing, start=1)
    ]


def _within(placed: Iterable[Placed], stretch: Stretch | None) -> list[Placed]:
    if stretch is None:
        return []
    first, last = Place.of(stretch.first), Place.of(stretch.last)
    return [each for each in placed if first <= each.place <= last]


def _runs_of(placed: Iterable[Placed], past: Past) -> tuple[str, ...]:
    """Return the runs in which these messages were said."""
    said_in = {each.place.turn for each in placed}
    return tuple(run_id for turn, run_id in past.turns if turn in said_in)


def _told(entries: Iterable[LogEntry]) -> Told:
    """Return what was said in a run that has ended, of whose log only a part says something.

    To read the rest as well would take twice as long.
    """
    return told_in(_events(entry for entry in entries if entry.type not in _SILENT))


_SILENT = frozenset(
    event.type
    for event in (
        RunStarted, RunWaiting, RunRetrying, RunCompleted, RunIncomplete, RunFailed, RunCancelled,
        RunExpired, SessionLoaded, MessageStarted, ReasoningCompleted, ModelRetried, ModelFellBack,
        PolicyDecided, GuardrailTriggered, ArtifactCreated, Custom, CacheHit, BudgetWarning,
    )
)  # fmt: skip


def _events(entries: Iterable[LogEntry]) -> Iterable[Event]:
    events = (decode(entry.type, entry.data) for entry in entries)
    return (event for event in events if event)


def folded(entries: Iterable[LogEntry]) -> State:
    """Return where a run stands by its log."""
    return fold(_events(entries))
