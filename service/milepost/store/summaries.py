"""What was trimmed of sessions: each stretch with what is told of it, until somebody reverts it."""

from dataclasses import dataclass

from sqlalchemy import exists, select, update

from milepost.core.errors import ConflictError, NotFoundError
from milepost.core.window import Place
from milepost.store import schema
from milepost.store.dialect import number, text
from milepost.store.listing import Query, paged
from milepost.store.records import Page
from milepost.store.work import Row, Statement, Work

_M = schema.summaries.c


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A stretch that runs are not shown, and what they are told of it; `content` may be empty.

    `reverted_ms` says since when it is shown again; None: it is not.
    """

    id: str
    session_id: str
    first: Place
    last: Place
    content: str
    model: str | None
    run_id: str
    created_ms: int
    reverted_ms: int | None


_COLUMNS = (
    _M.id, _M.session_id, _M.from_turn, _M.from_index, _M.through_turn, _M.through_index,
    _M.content, _M.model, _M.run_id, _M.created_ms, _M.reverted_ms,
)  # fmt: skip
_of_session = (_M.session_id == text("session_id")) & (_M.tenant == text("tenant"))
_one = _of_session & (_M.id == text("summary_id"))
_FIND = Statement(select(*_COLUMNS).where(_one))
_newer = schema.summaries.alias("newer").c
_REVERT = Statement(
    update(schema.summaries)
    .where(
        _one,
        _M.reverted_ms.is_(None),
        ~exists().where(
            _newer.session_id == _M.session_id,
            _newer.reverted_ms.is_(None),
            (_newer.through_turn > _M.through_turn)
            | (
                (_newer.through_turn == _M.through_turn) & (_newer.through_index > _M.through_index)
            ),
        ),
    )
    .values(reverted_ms=number("now_ms"))
    .returning(_M.id)
)


class SummaryCoveredError(ConflictError):
    """What was trimmed later has to be reverted first."""

    code = "summary_covered"


def search(tenant: str, session_id: str, page: Page) -> Work[list[SummaryRow]]:
    """Return the session's summaries, one more than the page holds if there are more."""
    query: Query = select(*_COLUMNS).where(_M.tenant == tenant, _M.session_id == session_id)
    found = yield Statement(paged(query, _M.id, page))()
    return [_row(row) for row in found]


def revert(tenant: str, session_id: str, summary_id: str, now_ms: int) -> Work[None]:
    """Have the stretch shown again; nothing happens to one that is shown already.

    Raises `NotFoundError`, and `SummaryCoveredError` as long as a later one is out of sight.
    """
    named = {"tenant": tenant, "session_id": session_id, "summary_id": summary_id}
    if (yield _REVERT(**named, now_ms=now_ms)):
        return
    found = yield _FIND(**named)
    if not found:
        raise NotFoundError(
            f"session {session_id} has no summary {summary_id}", code="summary_not_found"
        )
    if _row(found[0]).reverted_ms is None:
        raise SummaryCoveredError(
            f"a later stretch than that of summary {summary_id} is out of sight; revert the newest"
            " summary first"
        )


def _row(row: Row) -> SummaryRow:
    row_id, session_id, turn, index, last_turn, last_index, *rest = row
    return SummaryRow(row_id, session_id, Place(turn, index), Place(last_turn, last_index), *rest)
