"""Forks of sessions: each shares what was said in another one up to some message, by reference."""

from sqlalchemy import insert, select

from milepost.core.errors import ConflictError
from milepost.core.window import Place
from milepost.store import erasures, policies, schema, sessions
from milepost.store.dialect import number, text
from milepost.store.sessions import NewSession, SessionRow, Stretch
from milepost.store.work import Statement, Work

DEPTH_MAX = 16
"""So many forks deep a session may be: each is one more look whenever the past is read."""

TURN_MAX = 2**31 - 2

_S = schema.sessions.c


_parent = (_S.id == text("parent_id")) & (_S.tenant == text("tenant"))
_PARENT = Statement(select(_S.forked_from, _S.forked_turn, _S.forked_index).where(_parent))
_CREATE = Statement(
    insert(schema.sessions).values(
        **sessions.BEGINNING,
        turns=number("turn"),
        forked_from=text("parent_id"),
        forked_turn=number("turn"),
        forked_index=number("index"),
    )
)


def fork(session: NewSession, parent_id: str, at: Place | None) -> Work[SessionRow]:
    """Begin a session that shares another one's past up to and with the message at `at`.

    Its own turns are numbered on from there, and what the other one's rules forbid and ask about
    holds in it. Raises `NotFoundError` if the other one is not there, and `ConflictError` with the
    code fork_too_deep.
    """
    yield from erasures.require_none(session.tenant, session.user)
    yield from sessions.hold(session.tenant, parent_id)
    yield from _require_room(session.tenant, parent_id)
    yield _CREATE(
        **sessions.beginning_of(session),
        parent_id=parent_id,
        turn=at.turn if at else 0,
        index=at.at if at else None,
    )
    yield from policies.hand_down(session.tenant, parent_id, session.id)
    return (yield from sessions.find(session.tenant, session.id))


def _require_room(tenant: str, parent_id: str) -> Work[None]:
    above: str | None = parent_id
    for _ in range(DEPTH_MAX):
        found = yield _PARENT(tenant=tenant, parent_id=above)
        above = found[0][0] if found else None
        if above is None:
            return
    raise ConflictError(
        f"session {parent_id} is {DEPTH_MAX} forks deep, and none may be deeper; export it, and"
        " import it as a session of its own",
        code="fork_too_deep",
    )


def lineage(row: SessionRow) -> Work[list[Stretch]]:
    """Return of which sessions' turns the session's past is made, the oldest first.

    A fork may begin in what its parent itself shares: then it has nothing of the parent's own.
    """
    here, through = row.id, TURN_MAX
    end: int | None = None
    above, turn, index = row.forked_from, row.forked_turn or 0, row.forked_index
    found: list[Stretch] = []
    for _ in range(DEPTH_MAX + 1):
        if turn < through:
            found.insert(0, Stretch(here, turn, through + 1, end))
            through, end = turn, index
        elif turn == through:
            end = _lesser(end, index)
        if above is None:
            return found
        here = above
        read = yield _PARENT(tenant=row.tenant, parent_id=here)
        above, turn, index = read[0] if read and read[0][0] else (None, 0, None)
    return found


def _lesser(end: int | None, other: int | None) -> int | None:
    known = [each for each in (end, other) if each is not None]
    return min(known, default=None)
