"""What was said in a session before a run: the transcripts of the runs that ended before it."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from milepost.core.codec import decode
from milepost.core.messages import Message
from milepost.core.state import State, fold, transcript
from milepost.store import sessions
from milepost.store.records import Claim, LogEntry
from milepost.store.store import Store

TURNS_MAX = 100
CACHED_RUNS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """What was said in a run. `begun`: a model was asked, and not only the client spoke."""

    messages: tuple[Message, ...]
    begun: bool


class History:
    """Reads transcripts from logs; one that has ended never changes and is kept for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, Told] = OrderedDict()

    async def before(
        self, claim: Claim, turns: int, *, begun_only: bool = False
    ) -> tuple[Message, ...]:
        """Return what the first `turns` ended runs of the session said, at most the last 100.

        With `begun_only` it is without the input that no model ever read: whoever has guardrails
        look at inputs does not know what they would have made of it.
        """
        if not turns:
            return ()
        run_ids = await self._store.read(
            sessions.history(claim.tenant, claim.session_id, turns, limit=TURNS_MAX)
        )
        told = await self._told(run_ids)
        counting = (each for each in map(told.__getitem__, run_ids) if each.begun or not begun_only)
        return tuple(message for each in counting for message in each.messages)

    async def of(self, run_ids: Sequence[str]) -> dict[str, tuple[Message, ...]]:
        """Return what was said in each of these runs, which have all ended."""
        return {run_id: each.messages for run_id, each in (await self._told(run_ids)).items()}

    async def _told(self, run_ids: Sequence[str]) -> dict[str, Told]:
        # Others may push out of the cache what it had when we asked: keep our own hold of it.
        told = {run_id: self._cached[run_id] for run_id in run_ids if run_id in self._cached}
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
        return {run_id: _told(folded(entries)) for run_id, entries in logs.items()}

    def _remember(self, told: dict[str, Told]) -> None:
        self._cached.update(told)
        while len(self._cached) > CACHED_RUNS_MAX:
            self._cached.popitem(last=False)


def _told(state: State) -> Told:
    return Told(transcript(state), begun=state.step > 0)


def folded(entries: Iterable[LogEntry]) -> State:
    """Return where a run stands by its log."""
    events = (decode(entry.type, entry.data) for entry in entries)
    return fold(event for event in events if event)
