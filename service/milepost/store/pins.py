"""Messages of sessions that are pinned: runs are shown them wherever the window begins."""

from sqlalchemy import delete, func, select

from milepost.core.errors import ConflictError
from milepost.core.window import Place
from milepost.store import schema
from milepost.store.dialect import insert_new, number, text
from milepost.store.missing import session_not_found
from milepost.store.session_past import PINS_MAX
from milepost.store.work import Statement, Work

_P = schema.pins.c
_S = schema.sessions.c

_of_session = (_P.session_id == text("session_id")) & (_P.tenant == text("tenant"))
_LOCK = Statement(
    select(_S.id).where(_S.id == text("session_id"), _S.tenant == text("tenant")).with_for_update()
)
_COUNT = Statement(select(func.count()).select_from(schema.pins).where(_of_session))
_PUT = Statement(
    insert_new(schema.pins)
    .values(
        tenant=text("tenant"),
        session_id=text("session_id"),
        turn=number("turn"),
        message_index=number("index"),
        created_ms=number("now_ms"),
    )
    .returning(_P.turn)
)
_REMOVE = Statement(
    delete(schema.pins).where(
        _of_session, _P.turn == number("turn"), _P.message_index == number("index")
    )
)
_LIST = Statement(
    select(_P.turn, _P.message_index)
    .where(_of_session)
    .order_by(_P.turn, _P.message_index)
    .limit(PINS_MAX)
)


class TooManyPinsError(ConflictError):
    """Too much of the session is pinned already."""

    code = "too_many_pins"


def put(tenant: str, session_id: str, place: Place, now_ms: int) -> Work[None]:
    """Pin a message. Raises `TooManyPinsError`, and `NotFoundError` if there is no such session."""
    named = {"tenant": tenant, "session_id": session_id}
    if not (yield _LOCK(**named)):
        raise session_not_found(session_id)
    yield _PUT(**named, turn=place.turn, index=place.at, now_ms=now_ms)
    ((count,),) = yield _COUNT(**named)
    if count > PINS_MAX:
        raise TooManyPinsError(
            f"session {session_id} has {PINS_MAX} pinned messages already; unpin one first"
        )


def remove(tenant: str, session_id: str, place: Place) -> Work[None]:
    """Unpin a message, if it is pinned."""
    yield _REMOVE(tenant=tenant, session_id=session_id, turn=place.turn, index=place.at)


def find(tenant: str, session_id: str) -> Work[list[Place]]:
    """Return the pinned messages, in their order."""
    found = yield _LIST(tenant=tenant, session_id=session_id)
    return [Place(turn, index) for turn, index in found]
