"""Runs that come to a session in which others are: what becomes of them, and of the others.

All of it happens under the lock of the session, as every end of a run does: nobody comes or goes
meanwhile.
"""

from dataclasses import replace

import orjson
from sqlalchemy import case, func, insert, null, or_, select, update

from milepost.core.errors import ConflictError
from milepost.core.events import SteerReceived
from milepost.core.frozen import dataclass
from milepost.store import lines, log, rollbacks, schema, steers
from milepost.store.dialect import now_ms, number, rows, rows_of, text, word, words
from milepost.store.records import STEER_LETTER, Entry, NewRun
from milepost.store.work import Statement, Work

LOST_MS = 60_000  # By so much the clocks of two processes may differ.

_R = schema.runs.c

_unended = (
    _R.session_id == text("session_id"),
    _R.tenant == text("tenant"),
    _R.turn.is_(None),
    _R.status.in_(words(lines.UNENDED)),
)
_BUSY = Statement(select(_R.id).where(*_unended).limit(1))
_STEERABLE = Statement(
    select(_R.id).where(
        _R.session_id == text("session_id"),
        _R.tenant == text("tenant"),
        _R.status.in_(words(schema.ACTIVE)),
        _R.cancel_ms.is_(None),
    )
)
# As a letter to each of them does; those that wait for their turn have their time from then on.
_TELL = Statement(
    update(schema.runs)
    .where(*_unended)
    .values(
        inbox_seq=_R.inbox_seq + 1,
        status=case((_R.status == word("waiting"), word("queued")), else_=_R.status),
        waiting_for=null(),
        resume_why=case((_R.status == word("waiting"), word("cancel")), else_=_R.resume_why),
        run_at_ms=case((_R.status == word("waiting"), now_ms()), else_=_R.run_at_ms),
        cancel_ms=func.coalesce(_R.cancel_ms, number("now_ms")),
        wake_at_ms=case(
            ((_R.status == word("blocked")) | _R.cancel_ms.is_not(None), _R.wake_at_ms),
            else_=now_ms() + lines.GRACE_MS,
        ),
        rolled_back_by=func.coalesce(_R.rolled_back_by, text("rolled_back_by")),
    )
    .returning(_R.id, _R.inbox_seq, _R.status, _R.place)
)
_told = rows("told", "run_id", "tenant", "data", numbers=("seq", "now_ms"))
_PUT = Statement(
    insert(schema.inbox).from_select(
        ["run_id", "seq", "tenant", "kind", "data", "created_ms"],
        select(
            _told.c.run_id,
            _told.c.seq,
            _told.c.tenant,
            word("cancel"),
            _told.c.data,
            _told.c.now_ms,
        ),
    )
)


class SessionBusyError(ConflictError):
    """The session has a run that is not over."""

    code = "session_busy"


@dataclass(frozen=True, slots=True)
class Joined:
    """The run that a message was brought to, in place of one of its own."""

    run_id: str


def arrive(run: NewRun) -> Work[NewRun | Joined]:
    """Do about the runs that are there what the new one wants; return what becomes of it.

    Raises `SessionBusyError` where it is not to come while others are there.
    """
    assert run.if_active is not None, "who does not mind stands in line"
    named = {"session_id": run.session_id, "tenant": run.tenant}
    match run.if_active.then:
        case "reject":
            if busy := (yield _BUSY(**named)):
                raise _busy(run.session_id, busy[0][0])
            return run
        case "steer":
            active = yield _STEERABLE(**named)
            if not active:
                return run
            ((run_id,),) = active
            yield from steers.steer(run.tenant, run_id, run.if_active.said, run.created_ms)
            return Joined(run_id)
        case "interrupt":
            return (yield from _replacing(run, None))
        case "rollback":
            return (yield from _replacing(run, run.id))


def reason_of(run: NewRun) -> str:
    """Return why those whom the run replaces are told to stop."""
    assert run.if_active is not None, "who does not mind replaces nobody"
    did = "rolled back" if run.if_active.then == "rollback" else "interrupted"
    return f"{did} by {run.id}"


def _busy(session_id: str, run_id: str) -> "SessionBusyError":
    return SessionBusyError(
        f"run {run_id} of session {session_id} is not over; wait for it, or choose another"
        " if_active"
    )


def _replacing(run: NewRun, rolled_back_by: str | None) -> Work[NewRun]:
    """Tell all that are ahead to stop; return the run with whom it replaces in its log."""
    assert run.if_active is not None, "see above"
    found = yield _TELL(
        session_id=run.session_id,
        tenant=run.tenant,
        now_ms=run.created_ms,
        rolled_back_by=rolled_back_by,
    )
    if not found:
        return run
    said = orjson.dumps({"by": run.if_active.by, "reason": reason_of(run)}).decode()
    letters = (
        {
            "run_id": run_id,
            "seq": seq,
            "tenant": run.tenant,
            "data": said,
            "now_ms": run.created_ms,
        }
        for run_id, seq, *_ in found
    )
    yield _PUT(told=rows_of(letters))
    if rolled_back_by is not None:
        replaced = [run_id for run_id, *_ in found]
        yield from rollbacks.unlearn(run.tenant, replaced, said, run.created_ms)
    in_line = sorted(found, key=lambda row: (row[2] == "blocked", row[3] or 0, row[0]))
    replaces = tuple(run_id for run_id, *_ in in_line)
    data = {**orjson.loads(run.queued.data), "replaces": replaces}
    queued = Entry(run.queued.type, run.queued.time_ms, orjson.dumps(data).decode())
    return replace(run, queued=queued, replaces=replaces)


_LATELY = Statement(
    select(_R.id).where(
        _R.session_id == text("session_id"),
        _R.tenant == text("tenant"),
        or_(_R.turn.is_(None), _R.ended_ms >= number("since_ms")),
    )
)


def heard(run: NewRun) -> Work[Joined | None]:
    """Return the run that this one's message was brought to, if it was: ids are never given twice.

    Only who lost an answer has to look.
    """
    if run.if_active is None or not run.if_active.said:
        return None
    wanted = run.if_active.message_ids[0]
    lately = yield _LATELY(
        session_id=run.session_id, tenant=run.tenant, since_ms=run.created_ms - LOST_MS
    )
    for (run_id,) in lately:
        _, letters = yield from log.inbox(run.tenant, run_id, 0)
        entries = yield from log.read_all(run.tenant, run_id)
        brought = [each.data for each in letters if each.kind == STEER_LETTER]
        brought += [each.data for each in entries if each.type == SteerReceived.type]
        if any(orjson.loads(data)["message_id"] == wanted for data in brought):
            return Joined(run_id)
    return None
