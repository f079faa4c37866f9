"""The outbox: what webhooks are to be told, written in the transaction in which it happened.

A row names an event, and does not repeat it: the log has it. It also names the webhooks that were
enabled just then: who came first is said by the order of transactions, and by no machine's clock. A
tenant without an enabled webhook gets no rows, at the price of one look into an index.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, cast, delete, exists, func, null, select

from milepost.core.webhooks import LOGGED_TYPES
from milepost.store import schema
from milepost.store.dialect import in_reach, insert_new, number, reach, rows, rows_of
from milepost.store.records import Entry
from milepost.store.work import Call, Statement, Work

TAKE_MAX = 200

_O = schema.outbox.c
_W = schema.webhooks.c
_E = schema.events.c
_TOLD = ["id", "tenant", "type", "run_id", "seq", "data", "created_ms"]
_NAMES = [*_TOLD, "webhooks"]


class Outgoing(NamedTuple):
    """Something that webhooks are to be told: an event of a log by its `seq`, or `data` as JSON.

    `webhooks` are the ids of those that were there, with a comma between them; None if the version
    before has put it here.
    """

    id: str
    tenant: str
    type: str
    run_id: str
    seq: int | None
    data: str | None
    created_ms: int
    webhooks: str | None

    def concerns(self, webhook_id: str, created_ms: int) -> bool:
        """Say whether the webhook, made at `created_ms`, was there when this happened."""
        if self.webhooks is None:
            return created_ms <= self.created_ms
        return webhook_id in self.webhooks.split(",")


def _there(tenant: ColumnElement[str]) -> tuple[ColumnElement[str], ColumnElement[bool]]:
    """Return who of the tenant is there to be told, and whether anybody is."""
    enabled = (_W.tenant == tenant, _W.enabled == 1)
    ids = select(func.aggregate_strings(_W.id, ",")).where(*enabled).scalar_subquery()
    return ids, exists().where(*enabled)


_told = rows(
    "told", "id", "tenant", "type", "run_id", "data", numbers=("seq", "created_ms")
)  # fmt: skip
_whom_told, _any_told = _there(_told.c.tenant)
# WHERE keeps SQLite from reading ON CONFLICT as a part of the FROM clause, too.
_PUT = Statement(
    insert_new(schema.outbox).from_select(
        _NAMES,
        select(*(_told.c[name] for name in _TOLD), _whom_told).where(_any_told),
    )
)
_begun = rows("begun", "run_id", "tenant", "type", numbers=("time_ms",))
_whom_begun, _any_begun = _there(_begun.c.tenant)
_last = (
    select(func.max(_E.seq))
    .where(_E.run_id == _begun.c.run_id, in_reach(_E.run_id))
    .correlate(_begun)
    .scalar_subquery()
)
_PUT_LAST = Statement(
    insert_new(schema.outbox).from_select(
        _NAMES,
        select(
            _begun.c.run_id + ":" + cast(_last, Text),
            _begun.c.tenant,
            _begun.c.type,
            _begun.c.run_id,
            _last,
            cast(null(), Text),
            _begun.c.time_ms,
            _whom_begun,
        ).where(_any_begun),
    )
)
_ANY = Statement(select(_O.id).limit(1))
_pick = (
    select(_O.id)
    .order_by(_O.id)
    .limit(number("limit"))
    .with_for_update(skip_locked=True)
    .cte("pick")
)
_TAKE = Statement(
    delete(schema.outbox)
    .where(_O.id.in_(select(_pick.c.id)))
    .returning(*(_O[name] for name in _NAMES))
)


def event_rows(
    tenant: str, run_id: str, first: int, entries: Iterable[Entry]
) -> list[dict[str, Any]]:
    """Return rows for those of a log's new entries, from seq `first` on, that webhooks may want."""
    return [
        {
            "id": f"{run_id}:{seq}",
            "tenant": tenant,
            "type": entry.type,
            "run_id": run_id,
            "data": None,
            "seq": seq,
            "created_ms": entry.time_ms,
        }
        for seq, entry in enumerate(entries, start=first)
        if entry.type in LOGGED_TYPES
    ]


def put(told: Sequence[dict[str, Any]]) -> Call:
    """Return the statement that keeps these rows for the tenants that have webhooks."""
    return _PUT(told=rows_of(told))


def put_last(begun: Sequence[dict[str, Any]]) -> Call:
    """Return the statement that keeps the last event of each log: of `run_id, tenant, type`."""
    return _PUT_LAST(begun=rows_of(begun), **reach(row["run_id"] for row in begun))


def add(
    tenant: str, kind: str, run_id: str, seq: int | None, data: str | None, now_ms: int
) -> Work[None]:
    """Have webhooks told of something, in the transaction that this is done in.

    Without `seq` it is no event of the log, and `data` is all that is told: a JSON object. The
    same, said twice in the same millisecond, is told once.
    """
    said = hashlib.sha256((data or "").encode()).hexdigest()[:16]
    place = str(seq) if seq is not None else f"{kind}:{now_ms}:{said}"
    yield put(
        [
            {
                "id": f"{run_id}:{place}",
                "tenant": tenant,
                "type": kind,
                "run_id": run_id,
                "data": data,
                "seq": seq,
                "created_ms": now_ms,
            }
        ]
    )


def waits() -> Work[bool]:
    """Say whether there is anything in the outbox."""
    return bool((yield _ANY()))


def take(limit: int = TAKE_MAX) -> Work[list[Outgoing]]:
    """Take messages out, for whoever makes deliveries of them in the same transaction."""
    return [Outgoing(*row) for row in (yield _TAKE(limit=limit))]
