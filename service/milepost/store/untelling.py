"""What runs that are erased leave in words about them: it goes with them, and its place stays.

A stretch that fell out of sight goes on being out of sight; nothing is told of it any more.
"""

from collections.abc import Collection

from sqlalchemy import exists, select, update

from milepost.core.events import MemorySummarized
from milepost.store import schema
from milepost.store.dialect import among, in_reach, reach, rows, rows_of, rows_of_ids, text
from milepost.store.records import Append
from milepost.store.retelling import retell
from milepost.store.work import Statement, Work

_R = schema.runs.c
_S = schema.sessions.c
_M = schema.summaries.c
_E = schema.events.c

_gone = rows("gone", "id")
_gone_ids = select(_gone.c.id).scalar_subquery()
_TURNS = Statement(
    select(_R.session_id, _R.turn).where(
        among(_R.id, _gone_ids), _R.tenant == text("tenant"), _R.turn.is_not(None)
    )
)
_turns = rows("turns", "session_id", numbers=("turn",))
_UNTELL = Statement(
    update(schema.summaries)
    .where(
        _M.tenant == text("tenant"),
        among(_M.session_id, select(_turns.c.session_id).scalar_subquery()),
        exists().where(
            _turns.c.session_id == _M.session_id,
            _turns.c.turn >= _M.from_turn,
            _turns.c.turn <= _M.through_turn,
        ),
        _M.content != "",
    )
    .values(content="")
    .returning(_M.id, _M.run_id)
)
# A fork counts its turns on from those that it shares, and may tell of these itself.
_SHARED_BY = Statement(
    select(_S.id, _turns.c.turn).where(
        _S.forked_from.is_not(None),
        _S.forked_from == _turns.c.session_id,
        _S.forked_turn >= _turns.c.turn,
        _S.tenant == text("tenant"),
    )
)
_told_of = rows("told_of", "id")
_told_of_ids = select(_told_of.c.id).scalar_subquery()
# Whoever erases one of them waits, or leaves it for later, and finds what is told then.
_HOLD = Statement(
    select(_R.id)
    .where(among(_R.id, _told_of_ids), _R.tenant == text("tenant"))
    .order_by(_R.id)
    .with_for_update(read=True, key_share=True)
)
_WITH_LOGS = Statement(
    select(_E.run_id)
    .where(among(_E.run_id, _told_of_ids), in_reach(_E.run_id), _E.tenant == text("tenant"))
    .distinct()
)
_told = rows("told", "id")
_SILENCE = Statement(
    update(schema.summaries)
    .where(_M.tenant == text("tenant"), among(_M.id, select(_told.c.id).scalar_subquery()))
    .values(content="")
)


def untell(tenant: str, run_ids: Collection[str]) -> Work[None]:
    """Have nothing told of these runs any more: in summaries, nor in the logs that these are from.

    It is for the transaction in which they go, or their logs do, before these are gone.
    """
    gone = rows_of_ids(run_ids)
    turns = [(session_id, turn) for session_id, turn in (yield _TURNS(gone=gone, tenant=tenant))]
    makers: dict[str, str] = {}
    while turns:
        these = rows_of({"session_id": session_id, "turn": turn} for session_id, turn in turns)
        untold, shared = yield (
            _UNTELL(turns=these, tenant=tenant),
            _SHARED_BY(turns=these, tenant=tenant),
        )
        makers |= dict(untold)
        turns = [(session_id, turn) for session_id, turn in shared]
    yield from retell(
        tenant,
        set(makers.values()) - set(run_ids),
        [MemorySummarized.type],
        lambda _, said: {**said, "content": ""} if said["id"] in makers else said,
    )


def untell_gone(item: Append) -> Work[None]:
    """Have nothing told by what is appended if some of what it tells of is gone by now.

    It is for the transaction of the append. A model takes its time to tell, and whoever erased a
    run meanwhile found nothing that was told of it yet.
    """
    told_of = rows_of_ids(item.told_of)
    held = yield _HOLD(told_of=told_of, tenant=item.tenant)
    logged = yield _WITH_LOGS(told_of=told_of, tenant=item.tenant, **reach(item.told_of))
    if len(held) == len(logged) == len(item.told_of):
        return
    ids = {each.id for each in item.summaries}
    yield _SILENCE(told=rows_of_ids(ids), tenant=item.tenant)
    yield from retell(
        item.tenant,
        [item.run_id],
        [MemorySummarized.type],
        lambda _, said: {**said, "content": ""} if said["id"] in ids else said,
    )
