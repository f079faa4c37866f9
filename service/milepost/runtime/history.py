"""What was said in a session before a run: the transcripts of the runs that ended before it."""

from collections import OrderedDict

from milepost.core.codec import decode
from milepost.core.messages import Message
from milepost.core.state import fold, transcript
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
        await self._read([run_id for run_id in run_ids if run_id not in self._cached])
        said = tuple(message for run_id in run_ids for message in self._cached[run_id])
        self._forget()
        return said

    async def _read(self, run_ids: list[str]) -> None:
        if not run_ids:
            return
        logs: dict[str, list[LogEntry]] = {run_id: [] for run_id in run_ids}
        for run_id, *entry in await self._store.read(sessions.logs(run_ids)):
            logs[run_id].append(LogEntry(*entry))
        for run_id, entries in logs.items():
            events = (decode(entry.type, entry.data) for entry in entries)
            self._cached[run_id] = transcript(fold(event for event in events if event))

    def _forget(self) -> None:
        while len(self._cached) > CACHED_RUNS_MAX:
            self._cached.popitem(last=False)
