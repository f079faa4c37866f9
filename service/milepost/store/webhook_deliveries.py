"""Deliveries: one message for one webhook, and all that was tried to get it there.

Who sends one has claimed it: it is due again when the claim lapses, so that a sender may die at any
moment and nothing is lost. The number of the claim is what a late sender is told apart by.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import orjson
from sqlalchemy import delete as delete_from
from sqlalchemy import exists, func, null, select, true, update

from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.webhooks import delivery_id, wants
from milepost.store import outbox, schema, webhooks
from milepost.store.dialect import insert_new, number, rows, rows_of, text, word
from milepost.store.listing import Query, paged, where_equal
from milepost.store.outbox import Outgoing
from milepost.store.records import Page
from milepost.store.work import Statement, Work

PENDING_MAX = 10_000
READY_MAX = 1_000
ATTEMPTS_KEPT = 10
KEPT_MS = 14 * 86_400_000
PURGE_MAX = 1_000
TOO_MANY = f"{PENDING_MAX} deliveries to this webhook wait already"

STATUSES = ("pending", "delivered", "dead")

_D = schema.webhook_deliveries.c
_W = schema.webhooks.c


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """A message for a webhook: an event by its `run_id` and `seq`, or `data` as JSON.

    `claims` counts who set out to send it, `settled` is the last of them of whom one knows what
    came of it. `failures` are the attempts of the present series that came to nothing; `attempts`
    is the JSON list of the last ones.
    """

    id: str
    tenant: str
    webhook_id: str
    type: str
    run_id: str | None
    seq: int | None
    data: str | None
    status: str
    claims: int
    settled: int
    failures: int
    attempts: str
    due_ms: int
    event_ms: int
    created_ms: int
    ended_ms: int | None

    @property
    def is_being_sent(self) -> bool:
        """Say whether somebody has claimed it and did not say yet what came of it."""
        return self.status == "pending" and self.claims > self.settled


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of sending it once. `excerpt` is the beginning of what was answered."""

    time_ms: int
    duration_ms: int
    status: int | None = None
    error: str | None = None
    excerpt: str | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A webhook that something is due for."""

    webhook_id: str
    tenant: str


@dataclass(frozen=True, slots=True)
class FannedOut:
    """How much was taken out of the outbox, and how many deliveries of it were dead at once."""

    taken: int
    dead: int


_COLUMNS = tuple(_D)
_names = [column.name for column in _D]
_new = rows(
    "new", "id", "tenant", "webhook_id", "type", "run_id", "data", "status", "attempts",
    numbers=(
        "seq", "claims", "settled", "failures", "due_ms", "event_ms", "created_ms", "ended_ms"
    ),
)  # fmt: skip
# What was said again after it was taken out of the outbox is there already: if that were refused,
# nothing else would get out of there. WHERE keeps SQLite from reading ON CONFLICT as a part of the
# FROM clause.
_ADD = Statement(
    insert_new(schema.webhook_deliveries).from_select(
        _names, select(*(_new.c[each] for each in _names)).where(true())
    )
)
_counted = rows("counted", "webhook_id")
_pending = _D.status == word("pending")
_WAITING = Statement(
    select(_D.webhook_id, func.count())
    .where(_D.webhook_id.in_(select(_counted.c.webhook_id)), _pending)
    .group_by(_D.webhook_id)
)
_busy = rows("busy", "webhook_id")
_any = schema.webhook_deliveries.alias("anybodys").c
_READY = Statement(
    select(_W.id, _W.tenant)
    .where(
        # Mostly nothing is due for anybody: then no webhook is looked at.
        select(_any.id)
        .where(_any.status == word("pending"), _any.due_ms <= number("now_ms"))
        .limit(1)
        .scalar_subquery()
        .is_not(None),
        _W.id > text("after"),
        _W.enabled == 1,
        exists().where(_D.webhook_id == _W.id, _pending, _D.due_ms <= number("now_ms")),
        _W.id.not_in(select(_busy.c.webhook_id)),
    )
    .order_by(_W.id)
    .limit(number("limit"))
)
_pick = (
    select(_D.id)
    .where(_D.webhook_id == text("webhook_id"), _pending, _D.due_ms <= number("now_ms"))
    .order_by(_D.due_ms)
    .limit(number("limit"))
    .with_for_update(skip_locked=True)
    .cte("pick")
)
_CLAIM = Statement(
    update(schema.webhook_deliveries)
    .where(_D.id.in_(select(_pick.c.id)))
    .values(claims=_D.claims + 1, due_ms=number("until_ms"))
    .returning(*_COLUMNS)
)
_claimed = rows("claimed", "webhook_id")
_CLAIMED = Statement(
    select(*_COLUMNS).where(
        _pending,
        _D.due_ms == number("until_ms"),
        _D.claims > _D.settled,
        _D.webhook_id.in_(select(_claimed.c.webhook_id)),
    )
)
_own = _D.tenant == text("tenant")
_SETTLE = Statement(
    update(schema.webhook_deliveries)
    .where(_D.id == text("delivery_id"), _own, _pending, _D.claims == number("claim"))
    .values(
        status=text("status"),
        settled=_D.claims,
        failures=number("failures"),
        attempts=text("attempts"),
        due_ms=number("due_ms"),
        ended_ms=number("ended_ms"),
    )
    .returning(_D.id)
)
_one = (_D.id == text("delivery_id")) & (_D.webhook_id == text("webhook_id")) & _own
_FIND = Statement(select(*_COLUMNS).where(_one))
_AGAIN = Statement(
    update(schema.webhook_deliveries)
    .where(_one, _D.status != word("pending"))
    .values(status="pending", failures=0, due_ms=number("now_ms"), ended_ms=null())
    .returning(*_COLUMNS)
)
_HURRY = Statement(
    update(schema.webhook_deliveries)
    .where(_one, _pending, _D.settled == _D.claims, _D.due_ms > number("now_ms"))
    .values(failures=0, due_ms=number("now_ms"))
    .returning(*_COLUMNS)
)
_past = (
    select(_D.id)
    .where(_D.created_ms < number("before_ms"))
    .order_by(_D.created_ms)
    .limit(PURGE_MAX)
    .with_for_update(skip_locked=True)  # Every process purges.
    .cte("past")
)
_PURGE = Statement(
    delete_from(schema.webhook_deliveries).where(_D.id.in_(select(_past.c.id))).returning(_D.id)
)


def fan_out(now_ms: int) -> Work[FannedOut]:
    """Turn what is in the outbox into deliveries, in one transaction; return how much that was.

    A webhook gets what happened since it is there. One that does not take its messages gets no
    more of them than so many at a time: the rest are dead at once, and can be sent again.
    """
    taken = yield from outbox.take()
    if not taken:
        return FannedOut(0, 0)
    there = yield from webhooks.enabled_of({each.tenant for each in taken})
    made = [
        _made(each, hook.id, now_ms)
        for each in taken
        for hook in there
        if hook.tenant == each.tenant
        and each.concerns(hook.id, hook.created_ms)
        and wants(hook.patterns, each.type)
    ]
    dead = (yield from _add(made)) if made else 0
    return FannedOut(len(taken), dead)


def add(row: DeliveryRow) -> Work[DeliveryRow]:
    """Keep a message for one webhook."""
    yield _ADD(new=rows_of([asdict(row)]))
    return row


def _made(told: Outgoing, webhook_id: str, now_ms: int) -> DeliveryRow:
    return DeliveryRow(
        id=delivery_id(told.id, webhook_id, told.created_ms),
        tenant=told.tenant,
        webhook_id=webhook_id,
        type=told.type,
        run_id=told.run_id,
        seq=told.seq,
        data=told.data,
        status="pending",
        claims=0,
        settled=0,
        failures=0,
        attempts="[]",
        due_ms=now_ms,
        event_ms=told.created_ms,
        created_ms=now_ms,
        ended_ms=None,
    )


def _add(made: list[DeliveryRow]) -> Work[int]:
    """Keep deliveries; return how many were one too many, and so are dead."""
    hooks = {each.webhook_id for each in made}
    counted = rows_of({"webhook_id": webhook_id} for webhook_id in sorted(hooks))
    waiting: dict[str, int] = dict((yield _WAITING(counted=counted)))
    added = []
    for each in made:
        row = asdict(each)
        waiting[each.webhook_id] = waiting.get(each.webhook_id, 0) + 1
        if waiting[each.webhook_id] > PENDING_MAX:
            lost = Attempt(each.created_ms, 0, error=TOO_MANY)
            row |= {"status": "dead", "attempts": _listed([], lost), "ended_ms": each.created_ms}
        added.append(row)
    yield _ADD(new=rows_of(added))
    return sum(row["status"] == "dead" for row in added)


def ready(busy: Iterable[str], now_ms: int, after: str = "") -> Work[list[Ready]]:
    """Return the webhooks that something is due for, but for those that are `busy`.

    They are `READY_MAX` at most, of those behind `after`: there may be more behind the last.
    """
    found = yield _READY(
        now_ms=now_ms,
        busy=rows_of({"webhook_id": webhook_id} for webhook_id in busy),
        after=after,
        limit=READY_MAX,
    )
    return [Ready(*row) for row in found]


def claim(wanted: Mapping[str, int], *, lease_ms: int, now_ms: int) -> Work[list[DeliveryRow]]:
    """Take up to so many due deliveries of each webhook; nobody else does until the lease lapses.

    The caller's clock says when: two that disagree may send the same, as after a crash.
    """
    found = yield tuple(
        _CLAIM(webhook_id=webhook_id, limit=limit, now_ms=now_ms, until_ms=now_ms + lease_ms)
        for webhook_id, limit in wanted.items()
    )
    return [DeliveryRow(*row) for claimed in found for row in claimed]


def claimed(webhook_ids: Iterable[str], until_ms: int) -> Work[list[DeliveryRow]]:
    """Return what was claimed for these webhooks until that very millisecond.

    Of two who did so in the same one, either may be told of both.
    """
    asked = rows_of({"webhook_id": webhook_id} for webhook_id in webhook_ids)
    found = yield _CLAIMED(claimed=asked, until_ms=until_ms)
    return [DeliveryRow(*row) for row in found]


def delivered(row: DeliveryRow, attempt: Attempt) -> Work[bool]:
    """Write down that the message arrived; False if another claim has followed this one."""
    ended_ms = attempt.time_ms + attempt.duration_ms
    return (yield from _settle(row, attempt, "delivered", row.failures, row.due_ms, ended_ms))


def failed(row: DeliveryRow, attempt: Attempt, wait_ms: int | None) -> Work[bool]:
    """Write down that it did not, and when it is tried again: with None it is dead."""
    ended_ms = attempt.time_ms + attempt.duration_ms
    failures = row.failures + 1
    if wait_ms is None:
        return (yield from _settle(row, attempt, "dead", failures, row.due_ms, ended_ms))
    return (yield from _settle(row, attempt, "pending", failures, ended_ms + wait_ms, None))


def _settle(
    row: DeliveryRow,
    attempt: Attempt,
    status: str,
    failures: int,
    due_ms: int,
    ended_ms: int | None,
) -> Work[bool]:
    settled = yield _SETTLE(
        tenant=row.tenant,
        delivery_id=row.id,
        claim=row.claims,
        status=status,
        failures=failures,
        attempts=_listed(orjson.loads(row.attempts), attempt),
        due_ms=due_ms,
        ended_ms=ended_ms,
    )
    return bool(settled)


def _listed(before: list[object], attempt: Attempt) -> str:
    return orjson.dumps([*before, asdict(attempt)][-ATTEMPTS_KEPT:]).decode()


def find(tenant: str, webhook_id: str, named: str) -> Work[DeliveryRow]:
    """Return a delivery; raise `NotFoundError` if the tenant's webhook has none such."""
    found = yield _FIND(tenant=tenant, webhook_id=webhook_id, delivery_id=named)
    if not found:
        raise NotFoundError(f"there is no delivery {named}", code="delivery_not_found")
    return DeliveryRow(*found[0])


def search(
    tenant: str, webhook_id: str, page: Page, *, status: str | None = None, kind: str | None = None
) -> Work[list[DeliveryRow]]:
    """Return a webhook's deliveries that match, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_D.tenant == tenant, _D.webhook_id == webhook_id)
    query = where_equal(query, {_D.status: status, _D.type: kind})
    found = yield Statement(paged(query, _D.id, page))()
    return [DeliveryRow(*row) for row in found]


def redeliver(row: DeliveryRow, now_ms: int) -> Work[DeliveryRow]:
    """Send it again under the same id: at once, and from the first of its retries on.

    Raises `ConflictError` while it is being sent, or is about to be.
    """
    named = {
        "tenant": row.tenant,
        "webhook_id": row.webhook_id,
        "delivery_id": row.id,
        "now_ms": now_ms,
    }
    again = (yield _AGAIN(**named)) or (yield _HURRY(**named))
    if not again:
        raise ConflictError(
            f"delivery {row.id} is on its way; wait for what becomes of it",
            code="delivery_pending",
        )
    return DeliveryRow(*again[0])


def purge(now_ms: int) -> Work[int]:
    """Forget old deliveries, so many at a time; return how many that were."""
    return len((yield _PURGE(before_ms=now_ms - KEPT_MS)))
