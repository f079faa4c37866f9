"""Batches: many runs of one agent, made ahead, of which only so many are under way at a time.

An item waits as a row of its own. Items begin in their order, so that a number says which is next;
see `store/batch_turns.py` for how one becomes a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import orjson
from sqlalchemy import delete as delete_from
from sqlalchemy import func, insert, null, or_, select, update

from milepost.core.codec import usage_read, usage_shown
from milepost.core.errors import ConflictError, NotFoundError, OverloadedError
from milepost.core.usage import Usage
from milepost.store import alone, erasures, schema
from milepost.store.dialect import number, rows, text, word, words
from milepost.store.listing import Query, paged, where_between, where_equal, where_labelled
from milepost.store.records import Page
from milepost.store.work import Rows, Statement, Work

OPEN_MAX = 100

_B = schema.batches.c
_I = schema.batch_items.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class Counts:
    """How a batch's runs stood when they were last looked at; items that have none are not in it,
    unless they were cancelled before.
    """

    queued: int = 0
    running: int = 0
    waiting: int = 0
    completed: int = 0
    incomplete: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0

    @property
    def done(self) -> int:
        """How many items are over."""
        return sum(getattr(self, status) for status in schema.ENDED)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as the table has it; JSON columns are still encoded.

    `queued_event` is what the first event of each of its runs has in common, `started` how many of
    its items became runs, `deadline_after_ms` how long each may take from then on. `seq` counts
    what became of it: whoever has seen the same number has seen the same.
    """

    id: str
    tenant: str
    agent_id: str
    agent: str
    agent_version: int
    user: str | None
    status: str
    concurrency: int
    lane: int
    deadline_after_ms: int | None
    metadata: str
    scopes: str
    trace_parent: str | None
    queued_event: str
    total: int
    started: int
    counts: str
    usage: str
    seq: int
    created_ms: int
    changed_ms: int
    ended_ms: int | None
    cancelled_by: str | None
    cancel_reason: str | None
    made_by: str | None = None

    @property
    def is_open(self) -> bool:
        """Say whether anything may still become of it."""
        return self.status in schema.BATCH_OPEN

    @property
    def pending(self) -> int:
        """How many items may still become runs."""
        return self.total - self.started if self.status == "running" else 0

    @property
    def counted(self) -> Counts:
        """How its runs stood when they were last looked at."""
        return Counts(**orjson.loads(self.counts))

    @property
    def used(self) -> Usage:
        """What those of its runs took that are over."""
        return usage_read(orjson.loads(self.usage))


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to be begun; JSON columns come encoded. See `BatchRow`."""

    id: str
    tenant: str
    agent_id: str
    agent: str
    agent_version: int
    user: str | None
    concurrency: int
    lane: int
    deadline_after_ms: int | None
    metadata: str
    scopes: str
    trace_parent: str | None
    queued_event: str
    total: int
    created_ms: int
    made_by: str | None = None


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Which batches a search is after; None means any."""

    status: str | None = None
    agent: str | None = None
    user: str | None = None
    made_by: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultRow:
    """What became of an item; `outcome` is encoded JSON, None until its run is over.

    `status` is the run's own, or `pending` or `cancelled` of an item that has none.
    """

    place: int
    custom_id: str | None
    run_id: str | None
    status: str
    outcome: str | None


COLUMNS = (
    _B.id, _B.tenant, _B.agent_id, _B.agent, _B.agent_version, _B.user_id, _B.status,
    _B.concurrency, _B.lane, _B.deadline_after_ms, _B.metadata, _B.scopes, _B.trace_parent,
    _B.queued_event, _B.total, _B.started, _B.counts, _B.usage, _B.seq, _B.created_ms,
    _B.changed_ms, _B.ended_ms, _B.cancelled_by, _B.cancel_reason, _B.made_by,
)  # fmt: skip

_CREATE = Statement(
    insert(schema.batches).values(
        id=text("id"),
        tenant=text("tenant"),
        agent_id=text("agent_id"),
        agent=text("agent"),
        agent_version=number("agent_version"),
        user_id=text("user"),
        status=word("running"),
        concurrency=number("concurrency"),
        lane=number("lane"),
        deadline_after_ms=number("deadline_after_ms"),
        metadata=text("metadata"),
        scopes=text("scopes"),
        made_by=text("made_by"),
        trace_parent=text("trace_parent"),
        queued_event=text("queued_event"),
        total=number("total"),
        counts=text("counts"),
        usage=text("usage"),
        created_ms=number("created_ms"),
        changed_ms=number("created_ms"),
    )
)
_items = rows("items", "custom_id", "input", "metadata", numbers=("place",))
_ADD_ITEMS = Statement(
    insert(schema.batch_items).from_select(
        ["batch_id", "tenant", "place", "custom_id", "input", "metadata"],
        select(
            text("batch_id"),
            text("tenant"),
            _items.c.place,
            _items.c.custom_id,
            _items.c.input,
            _items.c.metadata,
        ),
    )
)
_open_of = (
    select(_B.id)
    .where(_B.tenant == text("tenant"), _B.status.in_(words(schema.BATCH_OPEN)))
    .limit(OPEN_MAX)
    .subquery()
)
_COUNT_OPEN = Statement(select(func.count()).select_from(_open_of))
_one = (_B.id == text("batch_id")) & (_B.tenant == text("tenant"))
_FIND = Statement(select(*COLUMNS).where(_one))
LOCK = Statement(select(*COLUMNS).where(_one).with_for_update())
_its_items = (_I.batch_id == text("batch_id")) & (_I.tenant == text("tenant"))
_CANCEL_ITEMS = Statement(
    update(schema.batch_items)
    .where(_its_items, _I.place >= number("started"))
    .values(status=word("cancelled"), input=null(), metadata=null())
)
_CANCEL = Statement(
    update(schema.batches)
    .where(_one)
    .values(
        status=word("cancelling"),
        counts=text("counts"),
        cancelled_by=text("by"),
        cancel_reason=text("reason"),
        seq=_B.seq + 1,
        changed_ms=number("now_ms"),
    )
)
_DELETE_ITEMS = Statement(delete_from(schema.batch_items).where(_its_items))
_DELETE = Statement(delete_from(schema.batches).where(_one))


def create(batch: NewBatch, chunks: Sequence[str]) -> Work[BatchRow]:
    """Keep a batch and its items, which come as JSON arrays of rows.

    Raises `OverloadedError` if the tenant has too many batches that are not over.
    """
    yield from alone.counting(batch.tenant, "batches")
    yield from erasures.require_none(batch.tenant, batch.user)
    ((open_ones,),) = yield _COUNT_OPEN(tenant=batch.tenant)
    if open_ones >= OPEN_MAX:
        raise OverloadedError(
            f"{open_ones} batches are not over, and {OPEN_MAX} may be; wait for one, or cancel it",
            retry_after_s=60,
        )
    counts, usage = orjson.dumps(Counts()), orjson.dumps(usage_shown(Usage()))
    yield _CREATE(**asdict(batch), counts=counts.decode(), usage=usage.decode())
    for chunk in chunks:
        yield _ADD_ITEMS(batch_id=batch.id, tenant=batch.tenant, items=chunk)
    return (yield from find(batch.tenant, batch.id))


def find(tenant: str, batch_id: str) -> Work[BatchRow]:
    """Return the batch; raise `NotFoundError` if the tenant has none such."""
    return _found((yield _FIND(tenant=tenant, batch_id=batch_id)), batch_id)


def _found(found: Rows, batch_id: str) -> BatchRow:
    if not found:
        raise NotFoundError(f"there is no batch {batch_id}", code="batch_not_found")
    return BatchRow(*found[0])


def search(tenant: str, wanted: BatchFilter, page: Page) -> Work[list[BatchRow]]:
    """Return the tenant's batches that match, one more than the page holds if there are more."""
    query: Query = select(*COLUMNS).where(_B.tenant == tenant)
    query = where_equal(
        query,
        {_B.status: wanted.status, _B.user_id: wanted.user, _B.made_by: wanted.made_by},
    )
    if wanted.agent is not None:
        query = query.where((_B.agent == wanted.agent) | (_B.agent_id == wanted.agent))
    query = where_between(query, _B.created_ms, wanted.created_after_ms, wanted.created_before_ms)
    query = where_labelled(query, _B.metadata, wanted.metadata)
    found = yield Statement(paged(query, _B.id, page))()
    return [BatchRow(*row) for row in found]


def results(tenant: str, batch_id: str, page: Page, *, done: bool = False) -> Work[list[ResultRow]]:
    """Return what became of the items, in their order, one more than the page holds.

    With `done`, only of those that are over. The page's cursor is an item's place.
    """
    query: Query = (
        select(_I.place, _I.custom_id, _I.run_id, func.coalesce(_R.status, _I.status), _R.outcome)
        .select_from(
            schema.batch_items.outerjoin(
                schema.runs, (_R.id == _I.run_id) & (_R.tenant == _I.tenant)
            )
        )
        .where(_I.tenant == tenant, _I.batch_id == batch_id)
    )
    if done:
        query = query.where(or_(_I.status.in_(words(schema.ENDED)), _R.ended_ms.is_not(None)))
    found = yield Statement(paged(query, _I.place, page))()
    return [ResultRow(*row) for row in found]


def cancel(
    tenant: str, batch_id: str, *, by: str, reason: str | None, now_ms: int
) -> Work[BatchRow]:
    """Let no other item become a run; whoever tends the batch stops those that did.

    A batch that is over, or being cancelled, stays as it is.
    """
    row = _found((yield LOCK(tenant=tenant, batch_id=batch_id)), batch_id)
    if row.status != "running":
        return row
    named = {"tenant": tenant, "batch_id": batch_id}
    counts = asdict(row.counted)
    counts["cancelled"] += row.pending
    yield (
        _CANCEL_ITEMS(**named, started=row.started),
        _CANCEL(**named, counts=orjson.dumps(counts).decode(), by=by, reason=reason, now_ms=now_ms),
    )
    return (yield from find(tenant, batch_id))


def delete(tenant: str, batch_id: str) -> Work[None]:
    """Erase the batch with its items; their runs stay, as what they are.

    Raises `ConflictError` with the code batch_busy while it is not over.
    """
    row = _found((yield LOCK(tenant=tenant, batch_id=batch_id)), batch_id)
    if row.is_open:
        raise ConflictError(
            f"batch {batch_id} is {row.status}; wait for its end, or cancel it", code="batch_busy"
        )
    named = {"tenant": tenant, "batch_id": batch_id}
    yield _DELETE_ITEMS(**named), _DELETE(**named)
