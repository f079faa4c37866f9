"""Which request was answered with which resource: a key counts for a day, tenant, method and path.

The key commits in the transaction of its effect, so that there is never one without the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import exists, insert, select, tuple_

from milepost.core.errors import ConflictError
from milepost.store import schema
from milepost.store.dialect import insert_new, number, rows, rows_of, text
from milepost.store.records import Request
from milepost.store.work import Call, Statement, Work

TTL_MS = 24 * 3_600_000
PURGE_MAX = 1_000

T = TypeVar("T")

_I = schema.idempotency.c


class RequestConflictError(ConflictError):
    """The idempotency key was used for another request."""

    code = "idempotency_key_reused"


class AnsweredError(ConflictError):
    """A rival answered the same request meanwhile: look again."""

    code = "stale"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with a key, and the resource that is to answer it."""

    tenant: str
    request: Request
    resource_id: str
    time_ms: int


_asked = rows(
    "asked", "tenant", "scope", "key", "request_hash", "resource_id", numbers=("created_ms",)
)
_same_key = (_asked.c.tenant == _I.tenant) & (_asked.c.scope == _I.scope) & (_asked.c.key == _I.key)
_FORGET = Statement(
    schema.idempotency.delete().where(
        _I.created_ms < number("before_ms"), exists().where(_same_key)
    )
)
_FIND = Statement(
    select(_I.tenant, _I.scope, _I.key, _I.request_hash, _I.resource_id).select_from(
        schema.idempotency.join(_asked, _same_key)
    )
)
_names = [column.name for column in _I]
_REMEMBER_ALL = Statement(
    insert(schema.idempotency).from_select(_names, select(*(_asked.c[name] for name in _names)))
)
_REMEMBER = Statement(
    insert_new(schema.idempotency)
    .values(
        tenant=text("tenant"),
        scope=text("scope"),
        key=text("key"),
        request_hash=text("request_hash"),
        resource_id=text("resource_id"),
        created_ms=number("created_ms"),
    )
    .returning(_I.resource_id)
)
_old = schema.idempotency.alias("old")
_PURGE = Statement(
    schema.idempotency.delete()
    .where(
        tuple_(_I.tenant, _I.scope, _I.key).in_(
            select(_old.c.tenant, _old.c.scope, _old.c.key)
            .where(_old.c.created_ms < number("before_ms"))
            .order_by(_old.c.created_ms)
            .limit(PURGE_MAX)
            .with_for_update(skip_locked=True)  # Every process purges.
        )
    )
    .returning(_I.key)
)


def recall_all(asked: Sequence[Asked]) -> Work[dict[str, str | RequestConflictError]]:
    """Return by new resource which one answered the same request before, or why none may."""
    batch = rows_of(_row(item) for item in asked)
    before_ms = min(item.time_ms for item in asked) - TTL_MS
    _, found = yield _FORGET(asked=batch, before_ms=before_ms), _FIND(asked=batch)
    known = {tuple(row[:3]): (row[3], row[4]) for row in found}
    answers: dict[str, str | RequestConflictError] = {}
    for item in asked:
        match known.get((item.tenant, item.request.scope, item.request.key)):
            case None:
                continue
            case (item.request.hash, resource_id):
                answers[item.resource_id] = resource_id
            case _:
                answers[item.resource_id] = RequestConflictError(
                    f"Idempotency-Key {item.request.key!r} was used for another request;"
                    " use a new key"
                )
    return answers


def remember_all(asked: Sequence[Asked]) -> Call:
    """Return the statement that keeps the keys. In order, lest two groups wait for each other."""
    ordered = sorted(asked, key=lambda item: (item.tenant, item.request.scope, item.request.key))
    return _REMEMBER_ALL(asked=rows_of(_row(item) for item in ordered))


def recall(asked: Asked) -> Work[str | None]:
    """Return the resource that answered this request before; raise if its key had another use."""
    answer = (yield from recall_all([asked])).get(asked.resource_id)
    if isinstance(answer, RequestConflictError):
        raise answer
    return answer


def remember(asked: Asked) -> Work[str | None]:
    """Keep the key for this resource; return the other one if a rival was faster.

    Comes before the effect, so that whoever repeats a request waits for the first one's commit
    instead of trying the same.
    """
    row = _row(asked)
    forget = _FORGET(asked=rows_of([row]), before_ms=asked.time_ms - TTL_MS)
    _, kept = yield forget, _REMEMBER(**row)
    return None if kept else (yield from recall(asked))


def keeping(asked: Asked | None, effect: Work[T]) -> Work[T]:
    """Do `effect` with its request's key in the same transaction.

    Raises `AnsweredError`, and does nothing, if the key has been kept before.
    """
    if asked is not None and (yield from remember(asked)) is not None:
        raise AnsweredError(f"Idempotency-Key {asked.request.key!r} was answered; look again")
    return (yield from effect)


def purge(now_ms: int) -> Work[int]:
    """Forget keys that count no longer, so many at a time; return how many that were."""
    purged = yield _PURGE(before_ms=now_ms - TTL_MS)
    return len(purged)


def _row(asked: Asked) -> dict[str, str | int]:
    return {
        "tenant": asked.tenant,
        "scope": asked.request.scope,
        "key": asked.request.key,
        "request_hash": asked.request.hash,
        "resource_id": asked.resource_id,
        "created_ms": asked.time_ms,
    }
