"""What may be left of what was erased, written down with the erasing: whoever comes by removes it.

So nothing is left behind by a process that dies between a commit and the removal of a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Select, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql

from milepost.store import schema
from milepost.store.dialect import (
    among,
    now_ms,
    number,
    rows,
    rows_of_ids,
    text,
    word,
    words,
)
from milepost.store.work import Call, Statement, Work

TAKE_MAX = 100
FOLDER = "folder"
SESSION = "session"

_L = schema.leftovers.c
_A = schema.artifacts.c
_S = schema.sessions.c
_R = schema.runs.c
_X = schema.artifact_contents.c

Removal = Literal["remove", "keep", "later"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """A `folder` or a content, by its SHA-256, of a session; or a `session` that may be empty."""

    tenant: str
    session_id: str
    what: str

    def named(self) -> dict[str, str]:
        """Return it as statements take it."""
        return {"tenant": self.tenant, "session_id": self.session_id, "what": self.what}


_erasure = text("erasure_id")
_gone = rows("gone", "id")
_closed = rows("closed", "id")


def _noting(found: Select[tuple[str, str, str, str, int]]) -> Statement:
    """Return what notes them: an erasure waits for what it found noted, too."""
    names = ["tenant", "session_id", "what", "erasure_id", "due_ms"]
    noted = postgresql.insert(schema.leftovers).from_select(names, found)
    return Statement(
        noted.on_conflict_do_update(
            index_elements=[_L.tenant, _L.session_id, _L.what],
            set_={"erasure_id": func.coalesce(noted.excluded.erasure_id, _L.erasure_id)},
        )
    )


_NOTE_CONTENTS = _noting(
    select(_A.tenant, _A.session_id, _A.sha256, _erasure, now_ms())
    .where(
        among(_A.run_id, select(_gone.c.id).scalar_subquery()),
        _A.tenant == text("tenant"),
        _A.sha256.is_not(None),
        _A.url.is_(None),
    )
    .distinct()
)
_NOTE_FOLDERS = _noting(
    select(text("tenant"), _closed.c.id, word(FOLDER), _erasure, now_ms()).where(
        _closed.c.id.is_not(None)  # Without WHERE, SQLite takes ON CONFLICT for a part of FROM.
    )
)
_NOTE_SESSIONS = _noting(
    select(_S.tenant, _S.id, word(SESSION), _erasure, now_ms()).where(
        among(_S.id, select(_closed.c.id).scalar_subquery()),
        _S.tenant == text("tenant"),
        or_(
            # What a session's own terms say how long it is kept goes by these alone, unless it is
            # a user's who is being erased, or nobody's.
            _erasure.is_(None) & _S.ttl_ms.is_(None) & _S.keep_ms.is_(None),
            _erasure.is_not(None) & (_S.user_id.is_(None) | (_S.user_id == text("user_id"))),
        ),
    )
)
_fork = schema.sessions.alias("fork")
_origins = select(_fork.c.forked_from).where(
    among(_fork.c.id, select(_closed.c.id).scalar_subquery()),
    _fork.c.tenant == text("tenant"),
    _fork.c.forked_from.is_not(None),
)
_NOTE_ORIGINS = _noting(
    select(_S.tenant, _S.id, word(SESSION), _erasure, now_ms()).where(
        among(_S.id, _origins.scalar_subquery()),
        _S.tenant == text("tenant"),
        # One that never had a run of its own may still be about to have its first.
        _S.turns > func.coalesce(_S.forked_turn, 0),
        _S.ttl_ms.is_(None),
        _S.keep_ms.is_(None),
    )
)
_OLDEST = Statement(
    select(_L.tenant, _L.session_id, _L.what)
    .where(_L.due_ms <= now_ms())
    .order_by(_L.due_ms)
    .limit(TAKE_MAX)
)
_one = (
    (_L.tenant == text("tenant"))
    & (_L.session_id == text("session_id"))
    & (_L.what == text("what"))
)
_POSTPONE = Statement(
    update(schema.leftovers).where(_one).values(due_ms=now_ms() + number("delay_ms"))
)
_ANY_OF = Statement(
    select(_L.session_id)
    .where(_L.erasure_id == text("erasure_id"), _L.erasure_id.is_not(None))
    .limit(1)
)
_DROP = Statement(delete(schema.leftovers).where(_one))
_LOCK = Statement(
    select(_S.id).where(_S.id == text("session_id"), _S.tenant == text("tenant")).with_for_update()
)
_ACTIVE = Statement(
    select(_R.id).where(_R.session_id == text("session_id"), _R.status.in_(words(schema.ACTIVE)))
)
_content = (
    (_X.tenant == text("tenant"))
    & (_X.session_id == text("session_id"))
    & (_X.sha256 == text("what"))
)
_NEEDED = Statement(
    select(_A.id)
    .select_from(schema.artifacts.join(schema.runs, _R.id == _A.run_id))
    .where(
        _R.session_id == text("session_id"),
        _R.tenant == text("tenant"),
        _A.sha256 == text("what"),
        _A.url.is_(None),
    )
    .limit(1)
)
_FORGET_CONTENT = Statement(delete(schema.artifact_contents).where(_content))


@dataclass(frozen=True, slots=True)
class Cause:
    """For which erasure something is removed, and whose; without, because its time is over."""

    erasure_id: str | None = None
    user: str | None = None


TIME = Cause()


def of_runs(tenant: str, gone: str, cause: Cause = TIME) -> Call:
    """Return the statement that notes the contents that these runs' tools left behind."""
    return _NOTE_CONTENTS(tenant=tenant, gone=gone, erasure_id=cause.erasure_id)


def of_sessions(tenant: str, closed: str, cause: Cause = TIME) -> Call:
    """Return the statement that notes the folders of these sessions."""
    return _NOTE_FOLDERS(tenant=tenant, closed=closed, erasure_id=cause.erasure_id)


def emptied(tenant: str, session_ids: Iterable[str], cause: Cause = TIME) -> Call:
    """Return the statement that notes sessions that may have no runs any more.

    Those are left out whose own terms say how long they are kept, and other users'.
    """
    closed = rows_of_ids(session_ids)
    return _NOTE_SESSIONS(
        tenant=tenant, closed=closed, erasure_id=cause.erasure_id, user_id=cause.user
    )


def origins_of(tenant: str, closed: str) -> Call:
    """Return the statement that notes the sessions that these ones were forked off.

    Those may have had no runs for long, and have stayed only for their forks. Whose they are is no
    matter: no erasure of a user waits for them. Those are left out whose own terms say how long
    they are kept.
    """
    return _NOTE_ORIGINS(tenant=tenant, closed=closed, erasure_id=None)


def oldest() -> Work[list[Leftover]]:
    """Return what was noted first and is due, so much at a time."""
    return [Leftover(*row) for row in (yield _OLDEST())]


def postpone(left: Leftover, delay_ms: int) -> Work[None]:
    """Look at it again only after a while."""
    yield _POSTPONE(**left.named(), delay_ms=delay_ms)


def any_of(erasure_id: str) -> Work[bool]:
    """Say whether anything is left of what the erasure erased."""
    return bool((yield _ANY_OF(erasure_id=erasure_id)))


def drop(left: Leftover) -> Work[None]:
    """Forget it: nothing is left of it any more."""
    yield _DROP(**left.named())


def give_up_content(left: Leftover) -> Work[Removal]:
    """Erase a content from the database unless it is needed; say what is to become of its file.

    A run that is active may be about to refer to it: then it is for later. The session's lock keeps
    another one from becoming active meanwhile: the file is to be removed before that is let go.
    """
    named = left.named()
    locked = yield _LOCK(tenant=left.tenant, session_id=left.session_id)
    if locked:
        active, needed = yield _ACTIVE(session_id=left.session_id), _NEEDED(**named)
        if active:
            return "later"
        if needed:
            return "keep"
    yield _FORGET_CONTENT(**named)
    return "remove"
