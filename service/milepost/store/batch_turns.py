"""A batch's turn: what ended is counted, and as many items become runs as there is room for.

An item becomes a run in the transaction that writes down which: a crash leaves both or neither, so
that no item is run twice. A turn holds the lock of its batch before any other (see `store/log.py`);
whoever comes second finds nothing left to do.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import add

import orjson
from sqlalchemy import and_, case, func, null, or_, select, update

from milepost.core.codec import usage_read, usage_shown
from milepost.store import new_runs, schema
from milepost.store.batches import COLUMNS, LOCK, BatchRow, Counts
from milepost.store.dialect import json_text, number, rows, rows_of, text, word, words
from milepost.store.hurry import hurrying
from milepost.store.records import NewRun
from milepost.store.work import Rows, Statement, Work

LOOK_MAX = 1_000
WAITING_MAX = 1_000

_B = schema.batches.c
_I = schema.batch_items.c
_R = schema.runs.c

_ERASED = "failed"
"""How an item is counted whose run was erased before anybody had looked how it ended."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item that has no run yet; `input` and `metadata` are encoded JSON."""

    place: int
    input: str
    metadata: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """An open batch and how its runs stand, by status; `untold` were not told to stop."""

    row: BatchRow
    live: Mapping[str, int]
    untold: int

    @property
    def is_stale(self) -> bool:
        """Say whether the batch does not know yet how its runs stand."""
        counted = self.row.counted
        known = {status: getattr(counted, status) for status in schema.ACTIVE}
        return {status: count for status, count in known.items() if count} != self.live

    def needs_a_turn(self, room: int) -> bool:
        """Say whether a turn would change anything, if so many runs may be queued."""
        if self.row.status == "cancelling" and (self.untold or not self.live):
            return True
        return self.is_stale or min(_free(self.row, self.live), room) > 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a turn may begin: a run for each pair of ids, of a run and of its session.

    The clock is read once it is known which runs are over, so that none begins before the end of
    the one whose place it takes.
    """

    ids: Sequence[tuple[str, str]]
    begin: Callable[[BatchRow, Item, tuple[str, str], int], NewRun]
    clock: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of a turn: the batch, whether it is another than before, and how many runs began.

    `untold` are runs of a batch that is being cancelled, which were not told to stop.
    """

    row: BatchRow
    changed: bool
    begun: int
    untold: tuple[str, ...]


_OPEN = Statement(
    select(*COLUMNS)
    .where(
        _B.status.in_(words(schema.BATCH_OPEN)),
        or_(
            _B.created_ms > number("after_ms"),
            and_(_B.created_ms == number("after_ms"), _B.id > text("after_id")),
        ),
    )
    # by id alone, SQLite would go through all that there ever were
    .order_by(_B.created_ms, _B.id)
    .limit(number("limit"))
)
_started = schema.batch_items.outerjoin(schema.runs, _R.id == _I.run_id)
_LIVE = Statement(
    select(_I.batch_id, _R.status, func.count(), func.count(case((_R.cancel_ms.is_(None), 1))))
    .select_from(_started)
    .where(_I.status == word("started"))
    .group_by(_I.batch_id, _R.status)
)
_STARTED = Statement(
    select(_I.place, _I.run_id, _R.status, _R.cancel_ms, json_text(_R.outcome, word("usage")))
    .select_from(_started)
    .where(
        _I.batch_id == text("batch_id"),
        _I.tenant == text("tenant"),
        _I.status == word("started"),
    )
    .order_by(_I.place)
)
_settled = rows("settled", "status", numbers=("place",))
_SETTLE = Statement(
    update(schema.batch_items)
    .where(
        _I.batch_id == text("batch_id"),
        _I.tenant == text("tenant"),
        _I.place == _settled.c.place,
    )
    .values(status=_settled.c.status)
)
_NEXT = Statement(
    select(_I.place, _I.input, _I.metadata)
    .where(
        _I.batch_id == text("batch_id"),
        _I.tenant == text("tenant"),
        _I.place >= number("after"),
        _I.place < number("through"),
    )
    .order_by(_I.place)
)
_begun = rows("begun", "run_id", numbers=("place",))
# The input is the run's from here on: who erases that erases all of it.
_BEGIN = Statement(
    update(schema.batch_items)
    .where(
        _I.batch_id == text("batch_id"),
        _I.tenant == text("tenant"),
        _I.place == _begun.c.place,
    )
    .values(status=word("started"), run_id=_begun.c.run_id, input=null(), metadata=null())
)
_KEEP = Statement(
    update(schema.batches)
    .where(_B.id == text("batch_id"), _B.tenant == text("tenant"))
    .values(
        status=text("status"),
        started=number("started"),
        counts=text("counts"),
        usage=text("usage"),
        seq=number("seq"),
        changed_ms=number("changed_ms"),
        ended_ms=number("ended_ms"),
    )
)


def look(queue_limit: int, behind: BatchRow | None = None) -> Work[tuple[list[Standing], int]]:
    """Return open batches, the oldest first, and how many runs are queued, up to a limit.

    They are `LOOK_MAX` at most: if so many, there may be more behind the last of them.
    """
    after_ms, after_id = (behind.created_ms, behind.id) if behind else (-1, "")
    opened = yield _OPEN(after_ms=after_ms, after_id=after_id, limit=LOOK_MAX)
    if not opened:
        return [], 0
    live = yield _LIVE()
    queued = yield from new_runs.queued(queue_limit)
    by_batch: dict[str, Counter[str]] = {}
    untold: Counter[str] = Counter()
    for batch_id, status, count, without in live:
        by_batch.setdefault(batch_id, Counter())[_active(status)] += count
        if status not in schema.ENDED and status is not None:
            untold[batch_id] += without
    standings = []
    for columns in opened:
        row = BatchRow(*columns)
        standings.append(Standing(row, by_batch.get(row.id, {}), untold[row.id]))
    return standings, queued


def turn(tenant: str, batch_id: str, offer: Offer) -> Work[Turn | None]:
    """Give a batch its turn; None if it is over, or gone."""
    # Every pump that waits for this batch keeps all other batches waiting.
    _, locked = yield hurrying(), LOCK(tenant=tenant, batch_id=batch_id)
    if not locked or not (row := BatchRow(*locked[0])).is_open:
        return None
    before = row
    found = yield _STARTED(tenant=tenant, batch_id=batch_id)
    now_ms = offer.clock()
    row, live, untold = yield from _settle(row, found)
    free = min(_free(row, live), len(offer.ids))
    if free > 0:
        row = yield from _begin(row, free, offer, now_ms)
        live["queued"] += free
    row = _counted(row, live, now_ms)
    changed = row != before
    if changed:
        row = replace(row, seq=before.seq + 1, changed_ms=now_ms)
        yield _KEEP(
            tenant=tenant,
            batch_id=batch_id,
            status=row.status,
            started=row.started,
            counts=row.counts,
            usage=row.usage,
            seq=row.seq,
            changed_ms=row.changed_ms,
            ended_ms=row.ended_ms,
        )
    return Turn(row, changed, max(free, 0), untold if row.status == "cancelling" else ())


def _settle(row: BatchRow, found: Rows) -> Work[tuple[BatchRow, Counter[str], tuple[str, ...]]]:
    """Count the runs that are over; return how the others stand, and which were not told to stop.

    The row's counts are those of items that are over, from here on.
    """
    live: Counter[str] = Counter()
    over: list[tuple[int, str, str | None]] = []
    untold: list[str] = []
    for place, run_id, status, cancel_ms, usage in found:
        if status is None or status in schema.ENDED:
            over.append((place, status or _ERASED, usage))
            continue
        live[_active(status)] += 1
        if cancel_ms is None:
            untold.append(run_id)
    if not over:
        return row, live, tuple(untold)
    settled = rows_of({"place": place, "status": status} for place, status, _ in over)
    yield _SETTLE(tenant=row.tenant, batch_id=row.id, settled=settled)
    counts = asdict(row.counted)
    for _, status, _ in over:
        counts[status] += 1
    used = reduce(add, (usage_read(orjson.loads(each)) for _, _, each in over if each), row.used)
    row = replace(
        row,
        counts=orjson.dumps(counts).decode(),
        usage=orjson.dumps(usage_shown(used)).decode(),
    )
    return row, live, tuple(untold)


def _begin(row: BatchRow, count: int, offer: Offer, now_ms: int) -> Work[BatchRow]:
    """Make runs of the next items."""
    named = {"tenant": row.tenant, "batch_id": row.id}
    found = yield _NEXT(**named, after=row.started, through=row.started + count)
    items = [Item(*columns) for columns in found]
    made = [
        offer.begin(row, item, ids, now_ms) for item, ids in zip(items, offer.ids, strict=False)
    ]
    yield from new_runs.create(made)
    begun = ({"place": item.place, "run_id": run.id} for item, run in zip(items, made, strict=True))
    yield _BEGIN(**named, begun=rows_of(begun))
    return replace(row, started=row.started + count)


def _counted(row: BatchRow, live: Mapping[str, int], now_ms: int) -> BatchRow:
    """Return the batch with its runs counted, and ended if all of its items are over."""
    counts = replace(row.counted, **{status: live.get(status, 0) for status in schema.ACTIVE})
    row = replace(row, counts=_encoded(counts))
    if counts.done < row.total:
        return row
    status = "completed" if row.status == "running" else "cancelled"
    return replace(row, status=status, ended_ms=now_ms)


def _encoded(counts: Counts) -> str:
    return orjson.dumps(counts).decode()


def _free(row: BatchRow, live: Mapping[str, int]) -> int:
    """Return how many more items may become runs: who waits for a person holds nobody up.

    But people have only so much patience: beyond a bound, too many questions wait for them.
    """
    under_way = live.get("queued", 0) + live.get("running", 0)
    unasked = WAITING_MAX - live.get("waiting", 0)
    return min(row.concurrency - under_way, unasked, row.pending)


def _active(status: str | None) -> str:
    """Return how a run is counted; one that is over stands for itself."""
    return "queued" if status in schema.PENDING else status or _ERASED
