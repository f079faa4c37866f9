"""Whose data is being erased, how far that has come, and that nothing of theirs is taken meanwhile.

An erasure is a row, so that another process goes on where one has died. Who it was is forgotten
with the rest: an id stays, and counts of what is gone.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import orjson
from sqlalchemy import insert, null, select, update

from milepost.core.errors import ConflictError, NotFoundError
from milepost.store import audit, schema
from milepost.store.dialect import advisory_lock, now_ms, number, rows, rows_of, text
from milepost.store.hurry import hurrying
from milepost.store.listing import Query, paged
from milepost.store.records import AuditRow, Page
from milepost.store.work import Call, Statement, Work

TAKEN_MS = 1_000
"""How long who has taken an erasure may be silent: whether the answer arrived, nobody knows."""
HELD_MS = 30_000
"""How long who erases may be silent after a step before another one goes on."""
RECENT_MS = 600_000
"""How long caches are looked through again, for what came in late."""
OWNERS_MAX = 1_000

_LOCK_KEY = 0x6D702D6572617365  # "mp-erase"

_E = schema.erasures.c


class UserBeingErasedError(ConflictError):
    """All that there is of the user is being erased, so nothing new is taken."""

    code = "user_being_erased"
    retryable = True


@dataclass(frozen=True, slots=True)
class ErasureRow:
    """An erasure as the table has it; `counts` is encoded JSON, `user` None once it is forgotten.

    `stage` says what is being gone through, `place` how far.
    """

    id: str
    tenant: str
    owner: str
    asked_by: str
    user: str | None
    stage: str
    place: str
    counts: str
    until_ms: int
    created_ms: int
    ended_ms: int | None

    @property
    def counted(self) -> dict[str, int]:
        """How much of what is gone so far."""
        counted: dict[str, int] = orjson.loads(self.counts)
        return counted


@dataclass(frozen=True, slots=True)
class NewErasure:
    """An erasure to be begun; `owner` is how caches know the user."""

    id: str
    tenant: str
    owner: str
    asked_by: str
    user: str
    created_ms: int


_COLUMNS = (
    _E.id, _E.tenant, _E.owner, _E.asked_by, _E.user_id, _E.stage, _E.place, _E.counts, _E.until_ms,
    _E.created_ms, _E.ended_ms,
)  # fmt: skip

# Whoever makes something for a user holds the lock together with all others that do, and looks for
# an erasure then. One that begins waits for them: so it sees all that they made. Who comes later
# waits behind that one, for whatever user: so who begins one may not be frozen with it for long.
_TOGETHER = Statement(advisory_lock(_LOCK_KEY, shared=True))
_ALONE = Statement(advisory_lock(_LOCK_KEY, shared=False))

_wanted = rows("wanted", "tenant", "user_id")
_BEING_ERASED = Statement(
    select(_E.tenant, _E.user_id).select_from(
        schema.erasures.join(
            _wanted,
            (_E.tenant == _wanted.c.tenant)
            & (_E.user_id == _wanted.c.user_id)
            & _E.user_id.is_not(None),
        )
    )
)
_OF_USER = Statement(
    select(*_COLUMNS).where(
        _E.tenant == text("tenant"), _E.user_id == text("user_id"), _E.user_id.is_not(None)
    )
)
_BEGIN = Statement(
    insert(schema.erasures).values(
        id=text("id"),
        tenant=text("tenant"),
        owner=text("owner"),
        asked_by=text("asked_by"),
        user_id=text("user_id"),
        created_ms=number("created_ms"),
    )
)
_one = (_E.id == text("erasure_id")) & (_E.tenant == text("tenant"))
_FIND = Statement(select(*_COLUMNS).where(_one))
_next = (
    select(_E.id)
    .where(_E.ended_ms.is_(None), _E.until_ms <= now_ms())
    # By its age alone, one that waits for something would be taken again and again before others.
    .order_by(_E.until_ms, _E.created_ms)
    .limit(1)
    .with_for_update(skip_locked=True)
    .cte("next_one")
)
_TAKE = Statement(
    update(schema.erasures)
    .where(_E.id.in_(select(_next.c.id)))
    .values(until_ms=now_ms() + TAKEN_MS)
    .returning(*_COLUMNS)
)
_STANDS = Statement(
    select(_E.id)
    .where(
        _one,
        _E.user_id.is_not(None),
        _E.stage == text("stage"),
        _E.place == text("place"),
    )
    .with_for_update()
)
_ADVANCE = Statement(
    update(schema.erasures)
    .where(_one, _E.ended_ms.is_(None))
    .values(
        stage=text("stage"),
        place=text("place"),
        counts=text("counts"),
        until_ms=now_ms() + number("held_ms"),
    )
)
_LET_GO = Statement(
    update(schema.erasures).where(_one, _E.ended_ms.is_(None)).values(until_ms=now_ms())
)
_FORGET_USER = Statement(update(schema.erasures).where(_one).values(user_id=null(), place=""))
_END = Statement(
    update(schema.erasures)
    .where(_one, _E.ended_ms.is_(None))
    .values(ended_ms=now_ms(), stage="done")  # Others ask how long ago that was.
    .returning(_E.id)
)
_OPEN_OWNERS = Statement(
    select(_E.owner).where(_E.ended_ms.is_(None)).order_by(_E.created_ms).limit(OWNERS_MAX)
)
_RECENT_OWNERS = Statement(
    select(_E.owner)
    .where(_E.ended_ms > now_ms() - RECENT_MS)
    .order_by(_E.ended_ms.desc())
    .limit(OWNERS_MAX)
)


def looking_for(users: Iterable[tuple[str, str]]) -> tuple[Call, Call]:
    """Return the statements that tell, by the rows of the second, which of (tenant, user) are.

    They come in this order, in the transaction that makes something for these users.
    """
    wanted = rows_of({"tenant": tenant, "user_id": user} for tenant, user in set(users))
    return _TOGETHER(), _BEING_ERASED(wanted=wanted)


def refused(user: str) -> UserBeingErasedError:
    """Return the error for a user who is being erased."""
    return UserBeingErasedError(
        f"all that there is of user {user!r} is being erased; try again when that is done"
    )


def require_none(tenant: str, user: str | None) -> Work[None]:
    """Raise `UserBeingErasedError` if the user's data is being erased; call it before any effect.

    What is made in the same transaction is either seen by an erasure or comes after it.
    """
    if user is None:
        return
    _, found = yield looking_for([(tenant, user)])
    if found:
        raise refused(user)


def begin(wanted: NewErasure, act: AuditRow) -> Work[ErasureRow]:
    """Begin to erase a user; return the erasure that is under way already, if there is one."""
    yield hurrying(), _ALONE()
    found = yield _OF_USER(tenant=wanted.tenant, user_id=wanted.user)
    if found:
        return ErasureRow(*found[0])
    yield (
        _BEGIN(
            id=wanted.id,
            tenant=wanted.tenant,
            owner=wanted.owner,
            asked_by=wanted.asked_by,
            user_id=wanted.user,
            created_ms=wanted.created_ms,
        ),
        audit.adding(act),
    )
    return (yield from find(wanted.tenant, wanted.id))


def find(tenant: str, erasure_id: str) -> Work[ErasureRow]:
    """Return the erasure; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, erasure_id=erasure_id)
    if not found:
        raise NotFoundError(f"there is no erasure {erasure_id}", code="erasure_not_found")
    return ErasureRow(*found[0])


def search(tenant: str, page: Page) -> Work[list[ErasureRow]]:
    """Return the tenant's erasures, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_E.tenant == tenant)
    found = yield Statement(paged(query, _E.id, page))()
    return [ErasureRow(*row) for row in found]


def take() -> Work[ErasureRow | None]:
    """Take the erasure that nobody has been at for longest, None if somebody is at each."""
    found = yield _TAKE()
    return ErasureRow(*found[0]) if found else None


def stands(row: ErasureRow) -> Work[bool]:
    """Say whether it stands where it was seen; until the transaction ends, nobody takes it on.

    Who was silent for long is not at it any more. Another may have finished, and what there is of
    the user then is new.
    """
    named = {"tenant": row.tenant, "erasure_id": row.id}
    return bool((yield _STANDS(**named, stage=row.stage, place=row.place)))


def advance(row: ErasureRow, *, held_ms: int = HELD_MS) -> Work[None]:
    """Write down how far it has come, in the transaction that got there; keep it for a while."""
    yield _ADVANCE(
        tenant=row.tenant,
        erasure_id=row.id,
        stage=row.stage,
        place=row.place,
        counts=row.counts,
        held_ms=held_ms,
    )


def let_go(row: ErasureRow) -> Work[None]:
    """Let another one go on with it at once, from wherever it stands."""
    yield _LET_GO(tenant=row.tenant, erasure_id=row.id)


def forget_user(row: ErasureRow) -> Work[None]:
    """Forget who it was: all else is gone, and what comes from now on is new."""
    yield _FORGET_USER(tenant=row.tenant, erasure_id=row.id)


def end(row: ErasureRow, act: AuditRow) -> Work[bool]:
    """Write down that it is done; say whether it was not yet."""
    ended = yield _END(tenant=row.tenant, erasure_id=row.id)
    if ended:
        yield from audit.add(act)
    return bool(ended)


def owners() -> Work[list[str]]:
    """Return whose entries are to go from caches: of erasures under way, and of recent ones."""
    open_ones, recent = yield _OPEN_OWNERS(), _RECENT_OWNERS()
    return [owner for (owner,) in (*open_ones, *recent)]
