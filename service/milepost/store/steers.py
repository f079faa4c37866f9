"""What people say to runs that are not over: brought to each, as much as one run takes."""

from collections.abc import Sequence

from sqlalchemy import func, select

from milepost.core.errors import ConflictError
from milepost.core.events import SteerReceived
from milepost.store import runs, schema
from milepost.store.dialect import at_start, text, word
from milepost.store.records import STEER_LETTER, STEERS_MAX
from milepost.store.runs import Letter
from milepost.store.work import Statement, Work

_E = schema.events.c
_I = schema.inbox.c

_READ = Statement(
    select(func.count()).where(
        _E.run_id == at_start(text("run_id")),
        _E.tenant == text("tenant"),
        _E.type == word(SteerReceived.type),
    )
)
_UNREAD = Statement(
    select(func.count()).where(
        _I.run_id == text("run_id"),
        _I.tenant == text("tenant"),
        _I.kind == word(STEER_LETTER),
    )
)


class RunOverError(ConflictError):
    """Nobody reads what is said to a run that is over."""

    code = "run_over"


def steer(tenant: str, run_id: str, said: Sequence[str], now_ms: int) -> Work[str]:
    """Bring what was said to a run, in this order; return the run's status then.

    Raises `RunOverError`, and `ConflictError` beyond what one run takes. It counts while nobody
    else can bring it anything.
    """
    status = None
    for data in said:
        letter = Letter(STEER_LETTER, data, "steer", now_ms)
        status = yield from runs.deliver(tenant, run_id, letter)
        if status is None:
            raise RunOverError(f"run {run_id} is over; start another one in its session")
    assert status is not None, "something was said"
    ((read,),), ((unread,),) = yield (
        _READ(tenant=tenant, run_id=run_id),
        _UNREAD(tenant=tenant, run_id=run_id),
    )
    if read + unread > STEERS_MAX:
        raise ConflictError(
            f"run {run_id} takes {STEERS_MAX} messages, and has them; start another one in its"
            " session",
            code="too_many_messages",
        )
    return status
