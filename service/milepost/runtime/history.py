"""What was said in a session before a run: the transcripts of the runs that ended before it."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from milepost.core.codec import decode
from milepost.core.messages import Message
from milepost.core.state import State, fold, transcript
from milepost.store import sessions
from milepost.store.records import Claim, LogEntry
from milepost.store.store import Store

TURNS_MAX = 100
CACHED_RUNS_MAX = 1_000


class History:
    """Reads transcripts from logs; one that has ended never changes and is kept for a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def before(self, claim: Claim, turns: int) -> tuple[Message, ...]:
        """Return what the first `turns` ended runs of the session said, at most the last 100."""
        if not turns:
            return ()
        run_ids = await self._store.read(
            sessions.history(claim.tenant, claim.session_id, turns, limit=TURNS_MAX)
        )
        said = await self.of(run_ids)
        return tuple(message for run_id in run_ids for message in said[run_id])

    async def of(self, run_ids: Sequence[str]) -> dict[str, tuple[Message, ...]]:
        """Return what was said in each of these runs, which have all ended."""
        # Others may push out of the cache what it had when we asked: keep our own hold of it.
        said = {run_id: self._cached[run_id] for run_id in run_ids if run_id in self._cached}
        missing = [run_id for run_id in run_ids if run_id not in said]
        if missing:
            read = await self._read(missing)
            self._remember(read)
            said |= read
        return said

    async def _read(self, run_ids: Sequence[str]) -> dict[str, tuple[Message, ...]]:
        logs: dict[str, list[LogEntry]] = {run_id: [] for run_id in run_ids}
        for run_id, *entry in await self._store.read(sessions.logs(run_ids)):
            logs[run_id].append(LogEntry(*entry))
        return {run_id: transcript(folded(entries)) for run_id, entries in logs.items()}

    def _remember(self, said: dict[str, tuple[Message, ...]]) -> None:
        self._cached.update(said)
        while len(self._cached) > CACHED_RUNS_MAX:
            self._cached.popitem(last=False)


def folded(entries: Iterable[LogEntry]) -> State:
    """Return where a run stands by its log."""
    events = (decode(entry.type, entry.data) for entry in entries)
    return fold(event for event in events if event)
