"""The append-only log of runs: its guarded insert, for many runs at once, and its reading.

Locks are taken in one order everywhere, so that no two transactions wait for each other: sessions,
then runs, then events and approvals, then the inbox.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import case, delete, exists, func, insert, null, select, update

from milepost.core.errors import FencedError, MilepostError
from milepost.store import alongside, lines, schema
from milepost.store.dialect import (
    among,
    at_start,
    in_reach,
    now_ms,
    number,
    packed,
    reach,
    rows,
    rows_of,
    text,
    unpacked,
    word,
)
from milepost.store.records import (
    Append,
    InboxMessage,
    InboxMovedError,
    LogEntry,
)
from milepost.store.untelling import untell_gone
from milepost.store.work import Call, Statement, Work

READ_MAX = 500


class GroupSplitError(MilepostError):
    """One of a group's appends does not fit; each must be tried alone to tell which."""

    code = "group_split"


_E = schema.events.c
_R = schema.runs.c

_batch = rows(
    "batch", "run_id", "tenant", "append_id", "status", "type", "data",
    numbers=("epoch", "seq", "time_ms"),
)  # fmt: skip
_INSERT = Statement(
    insert(schema.events).from_select(
        ["run_id", "seq", "tenant", "epoch", "append_id", "type", "time_ms", "data"],
        select(
            _batch.c.run_id,
            _batch.c.seq,
            _batch.c.tenant,
            _batch.c.epoch,
            _batch.c.append_id,
            _batch.c.type,
            _batch.c.time_ms,
            _batch.c.data,
        ).select_from(
            _batch.join(
                schema.runs,
                (_R.id == _batch.c.run_id)
                & (_R.tenant == _batch.c.tenant)
                & (_R.epoch == _batch.c.epoch)
                & (_R.status == _batch.c.status),
            )
        ),
    )
)

_changes = rows(
    "changes",
    "run_id", "tenant", "status", "waiting_for", "outcome", "resume_why",
    numbers=("epoch", "inbox_seen", "ended_ms", "crashes"),
)  # fmt: skip
_CHANGE = Statement(
    update(schema.runs)
    .where(
        _R.id == _changes.c.run_id,
        _R.tenant == _changes.c.tenant,
        _R.epoch == _changes.c.epoch,
        _R.status == word("running"),
        _R.inbox_seq == _changes.c.inbox_seen,
    )
    .values(
        status=_changes.c.status,
        owner=null(),
        waiting_for=_changes.c.waiting_for,
        outcome=_changes.c.outcome,
        resume_why=_changes.c.resume_why,
        ended_ms=_changes.c.ended_ms,
        run_at_ms=now_ms(),
        crashes=_changes.c.crashes,
        wake_at_ms=case(
            (_changes.c.ended_ms.is_not(None), null()),
            # Told to stop and not read yet: its time runs on, whoever has the run.
            (_R.cancel_ms.is_not(None), _R.wake_at_ms),
            else_=_R.deadline_ms,
        ),
        turn=case(
            (_changes.c.ended_ms.is_(None), null()),
            else_=select(schema.sessions.c.turns)
            .where(schema.sessions.c.id == _R.session_id)
            .scalar_subquery(),
        ),
    )
    .returning(_R.id)
)

_held = rows("held", "run_id", "tenant")
_HOLD = Statement(
    select(_R.id)
    .where(_R.id == _held.c.run_id, _R.tenant == _held.c.tenant)
    .order_by(_R.id)
    .with_for_update(of=schema.runs, key_share=True)
)

_ending = rows("ending", "session_id", "tenant", numbers=("now_ms",))
_S = schema.sessions.c
LOCK_SESSIONS = Statement(
    select(_S.id).where(_S.id.in_(select(_ending.c.session_id))).order_by(_S.id).with_for_update()
)
TURN_SESSIONS = Statement(
    update(schema.sessions)
    .where(_S.id == _ending.c.session_id, _S.tenant == _ending.c.tenant)
    .values(
        turns=_S.turns + 1,
        updated_ms=_ending.c.now_ms,
        expires_ms=_ending.c.now_ms + _S.ttl_ms,  # Of most sessions NULL, as it was.
    )
)
_ended = rows("ended", "run_id", "tenant", numbers=("now_ms",))
_A = schema.approvals.c
WITHDRAW = Statement(
    update(schema.approvals)
    .where(
        _A.run_id == _ended.c.run_id,
        _A.tenant == _ended.c.tenant,
        _A.status == word("pending"),
    )
    .values(
        status="withdrawn",
        decided_ms=_ended.c.now_ms,
        version=_A.version + 1,
        changed_ms=_ended.c.now_ms,
    )
)

_withdrawn = rows("withdrawn", "id", "tenant", numbers=("now_ms",))
_WITHDRAW_THESE = Statement(
    update(schema.approvals)
    .where(
        _A.id == _withdrawn.c.id,
        _A.tenant == _withdrawn.c.tenant,
        _A.status == word("pending"),
    )
    .values(
        status="withdrawn",
        decided_ms=_withdrawn.c.now_ms,
        version=_A.version + 1,
        changed_ms=_withdrawn.c.now_ms,
    )
)

_seen = rows("seen", "run_id", "tenant", numbers=("inbox_seen",))
_I = schema.inbox.c
_CONSUME = Statement(
    delete(schema.inbox).where(
        among(_I.run_id, select(_seen.c.run_id).scalar_subquery()),  # EXISTS would use no index
        exists().where(
            _seen.c.run_id == _I.run_id,
            _seen.c.tenant == _I.tenant,
            _seen.c.inbox_seen >= _I.seq,
        ),
    )
)
_heads = rows("heads", "run_id")
_log = schema.events.alias("log").c
_STANDING = Statement(
    select(
        packed(
            _R.id,
            _R.epoch,
            _R.status,
            _R.inbox_seq,
            select(func.max(_log.seq))
            .where(_log.run_id == _R.id, in_reach(_log.run_id))
            .scalar_subquery(),
        )
    ).where(_R.id.in_(select(_heads.c.run_id)))
)


def append(appends: Sequence[Append]) -> Work[list[tuple[int, tuple[str, ...]]]]:
    """Write each run's iteration; return its inbox's last number and the runs that it set free.

    All in one transaction. Raises `GroupSplitError` if any of several does not fit; of one alone
    `FencedError` (it is somebody else's now) or `InboxMovedError` (what it decides is stale).
    """
    calls = _calls(appends)
    answers = dict(zip(calls, (yield tuple(calls.values())), strict=True))
    changed = {row[0] for row in answers.get("change", ())}
    standing = {run_id: _Standing(*rest) for run_id, *rest in unpacked(answers["standing"])}
    for item in appends:
        is_changed = item.change is None or item.run_id in changed
        if not is_changed or not _fits(item, standing.get(item.run_id)):
            raise _refusal(appends, item, standing.get(item.run_id))
    for item in appends:
        if item.told_of:
            yield from untell_gone(item)
    freed = tuple(row[0] for row in answers.get("promote", ()))
    return [(standing[item.run_id].inbox_seq, freed) for item in appends]


class _Standing(NamedTuple):
    """How a run stands in the transaction that has appended to it; `head` is its last event."""

    epoch: int
    status: str
    inbox_seq: int
    head: int


def _fits(item: Append, standing: _Standing | None) -> bool:
    """Say whether all events were written: the log's end tells, for the price of one look.

    The guard of the insert held if epoch and status are what it asked for, since an epoch never
    comes back; and nobody else has written these numbers, or the insert would have collided.

    Who takes questions back, or skips calls of a client, holds the locks that an answer needs by
    now: it is in the inbox, or comes too late.
    """
    return (
        standing is not None
        and (standing.epoch, standing.status, standing.head)
        == (
            item.epoch,
            item.change.status if item.change else "running",
            item.head + len(item.entries),
        )
        and not ((item.withdrawn or item.skips) and standing.inbox_seq != item.inbox_seen)
    )


def _refusal(appends: Sequence[Append], item: Append, standing: _Standing | None) -> MilepostError:
    """Return why this append does not fit."""
    if len(appends) > 1:
        return GroupSplitError(f"run {item.run_id} was not written with its group")
    if item.asks_inbox and standing is not None and standing[:2] == (item.epoch, "running"):
        return InboxMovedError(f"run {item.run_id} has a message that was not read yet")
    return FencedError(f"run {item.run_id} was taken over; stop writing to it")


def _calls(appends: Sequence[Append]) -> dict[str, Call]:
    """Return the statements by name, in the order of the locks that they take.

    A change of status comes before the events that say so, whose guard is the status after it: its
    row lock is the same that a rival needs before it writes to the log.
    """
    calls: dict[str, Call] = {}
    ending = _ending_rows(appends)
    if ending:
        calls["lock"] = LOCK_SESSIONS(ending=rows_of(ending))
        calls["turn"] = TURN_SESSIONS(ending=rows_of(ending))
    if held := _held_rows(appends):
        calls["hold"] = _HOLD(held=rows_of(held))
    if changes := [_change_row(item) for item in appends if item.change]:
        calls["change"] = _CHANGE(changes=rows_of(changes))
    calls["insert"] = _INSERT(batch=rows_of(_event_rows(appends)))
    if ending:
        calls["promote"] = lines.PROMOTE(ending=rows_of(ending))
        calls["withdraw"] = WITHDRAW(ended=rows_of(_ended_rows(appends)))
    if withdrawn := [row for item in appends for row in _withdrawn_rows(item)]:
        calls["withdrawn"] = _WITHDRAW_THESE(withdrawn=rows_of(withdrawn))
    if seen := [_seen_row(item) for item in appends if item.inbox_consumed]:
        calls["consume"] = _CONSUME(seen=rows_of(seen))
    return {**calls, **alongside.calls(appends), "standing": _standing_of(appends)}


def _standing_of(appends: Sequence[Append]) -> Call:
    run_ids = [item.run_id for item in appends]
    return _STANDING(heads=_run_rows(run_ids), **reach(run_ids))


def _run_rows(run_ids: Iterable[str]) -> str:
    return rows_of({"run_id": run_id} for run_id in run_ids)


def _event_rows(appends: Sequence[Append]) -> Iterable[dict[str, Any]]:
    return (
        {
            "run_id": item.run_id,
            "tenant": item.tenant,
            "append_id": item.append_id,
            "status": item.change.status if item.change else "running",
            "type": entry.type,
            "data": entry.data,
            "epoch": item.epoch,
            "seq": seq,
            "time_ms": entry.time_ms,
        }
        for item in appends
        for seq, entry in enumerate(item.entries, start=item.head + 1)
    )


def _held_rows(appends: Sequence[Append]) -> list[dict[str, Any]]:
    """Return the runs to be locked before anything is done: several at once, and in their order.

    Who decides on questions of several runs locks these in the same. One that is changed alone is
    locked by its change.
    """
    held = [item for item in appends if item.skips or item.change]
    if len(held) == 1 and not held[0].skips:
        return []
    return [{"run_id": item.run_id, "tenant": item.tenant} for item in held]


def _change_row(item: Append) -> dict[str, Any]:
    change = item.change
    assert change is not None
    return {
        "run_id": item.run_id,
        "tenant": item.tenant,
        "status": change.status,
        "waiting_for": change.waiting_for,
        "outcome": change.outcome,
        "resume_why": change.resume_why,
        "epoch": item.epoch,
        "inbox_seen": item.inbox_seen,
        "ended_ms": change.ended_ms,
        "crashes": change.crashes,
    }


def _ending_rows(appends: Sequence[Append]) -> list[dict[str, Any]]:
    return [
        {"session_id": item.session_id, "tenant": item.tenant, "now_ms": item.change.ended_ms}
        for item in appends
        if item.change and item.change.ends
    ]


def _ended_rows(appends: Sequence[Append]) -> Iterable[dict[str, Any]]:
    return (
        {"run_id": item.run_id, "tenant": item.tenant, "now_ms": item.change.ended_ms}
        for item in appends
        if item.change and item.change.ends
    )


def _seen_row(item: Append) -> dict[str, Any]:
    return {"run_id": item.run_id, "tenant": item.tenant, "inbox_seen": item.inbox_seen}


def _withdrawn_rows(item: Append) -> Iterable[dict[str, Any]]:
    for approval_id in item.withdrawn:
        yield {"id": approval_id, "tenant": item.tenant, "now_ms": item.entries[-1].time_ms}


_READ = Statement(
    select(_E.seq, _E.type, _E.time_ms, _E.data)
    .where(_E.run_id == at_start(text("run_id")), _E.tenant == text("tenant"))
    .where(_E.seq > number("after"), _E.seq <= number("through"))
    .order_by(_E.seq)
    .limit(number("limit"))
)
_READ_TOGETHER = Statement(
    select(_E.run_id, _E.seq, _E.type, _E.time_ms, _E.data)
    .where(_E.run_id.in_(select(_heads.c.run_id)), in_reach(_E.run_id))
    .order_by(_E.run_id, _E.seq)
)
_HEAD = Statement(
    select(func.coalesce(func.max(_E.seq), 0)).where(
        _E.run_id == at_start(text("run_id")), _E.tenant == text("tenant")
    )
)
_HEADS = Statement(
    select(_E.run_id, func.max(_E.seq))
    .where(_E.run_id.in_(select(_heads.c.run_id)), in_reach(_E.run_id))
    .group_by(_E.run_id)
)
_MINE = Statement(
    select(_E.append_id).where(
        _E.run_id == at_start(text("run_id")),
        _E.tenant == text("tenant"),
        _E.seq == number("seq"),
    )
)
_INBOX_SEQ = Statement(
    select(_R.inbox_seq).where(_R.id == text("run_id"), _R.tenant == text("tenant"))
)
_INBOX = Statement(
    select(schema.inbox.c.seq, schema.inbox.c.kind, schema.inbox.c.data)
    .where(
        schema.inbox.c.run_id == text("run_id"),
        schema.inbox.c.tenant == text("tenant"),
        schema.inbox.c.seq > number("after"),
    )
    .order_by(schema.inbox.c.seq)
)
SEQ_MAX = 2**62


def read(
    tenant: str, run_id: str, *, after: int = 0, through: int = SEQ_MAX, limit: int = READ_MAX
) -> Work[list[LogEntry]]:
    """Return up to `limit` events behind `after`, up to and with `through`."""
    found = yield _READ(tenant=tenant, run_id=run_id, after=after, through=through, limit=limit)
    return [LogEntry(*row) for row in found]


def read_all(tenant: str, run_id: str, *, through: int = SEQ_MAX) -> Work[list[LogEntry]]:
    """Return the whole log up to and with `through`."""
    return (yield from read(tenant, run_id, through=through, limit=SEQ_MAX))


def read_together(run_ids: Collection[str]) -> Call:
    """Return the statement that reads several whole logs: rows of run, seq, type, time and data."""
    return _READ_TOGETHER(heads=_run_rows(run_ids), **reach(run_ids))


def head(tenant: str, run_id: str) -> Work[int]:
    """Return the seq of the run's last event."""
    ((seq,),) = yield _HEAD(tenant=tenant, run_id=run_id)
    return int(seq)


def heads(run_ids: Collection[str]) -> Work[dict[str, int]]:
    """Return the seq of the last event of each run that has one."""
    found = yield _HEADS(heads=_run_rows(run_ids), **reach(run_ids))
    return dict(found)


def landed(item: Append) -> Work[bool]:
    """Say whether this very append is in the log: after a broken connection nobody else knows."""
    found = yield _MINE(tenant=item.tenant, run_id=item.run_id, seq=item.head + 1)
    return bool(found) and found[0][0] == item.append_id


def inbox(tenant: str, run_id: str, after: int) -> Work[tuple[int, list[InboxMessage]]]:
    """Return the last number that the inbox gave out, and what came in behind `after`.

    The number is read first, so that it never stands for a message that was not read.
    """
    counted, found = yield (
        _INBOX_SEQ(tenant=tenant, run_id=run_id),
        _INBOX(tenant=tenant, run_id=run_id, after=after),
    )
    letters = [InboxMessage(*row) for row in found]
    seqs = [*(seq for (seq,) in counted), *(letter.seq for letter in letters)]
    return max(seqs, default=0), letters
