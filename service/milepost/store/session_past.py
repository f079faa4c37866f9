"""What of a session a run is shown: its last turns, what tells of those before, and what is pinned.

A session that was forked goes on from the turns of the one that it was forked off, and so on.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Select, Text, cast, func, null, select, union_all

from milepost.core.context import SUMMARIES_MAX
from milepost.core.window import Place, Trimmed
from milepost.store import schema
from milepost.store.dialect import among, number, rows, rows_of, rows_of_ids, text, word
from milepost.store.work import Rows, Statement, Work

PINS_MAX = 50
FORKS_MAX = 32
"""So many forks deep a session's past is looked up."""

_ALL = 2**31 - 1
_END = Place(_ALL, _ALL)

_S = schema.sessions.c
_R = schema.runs.c
_M = schema.summaries.c
_P = schema.pins.c


@dataclass(frozen=True, slots=True)
class Past:
    """A part of a session, the oldest first: turns with their runs, stretches out of sight, pins.

    Of the turns in `ends` only what stands up to this message belongs to the session. `more` says
    that there may be earlier turns; `lines` are the sessions that all of it is from, each with its
    last turn.
    """

    turns: tuple[tuple[int, str], ...] = ()
    trimmed: tuple[Trimmed, ...] = ()
    pins: tuple[Place, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    lines: tuple[tuple[str, int], ...] = ()
    more: bool = False

    @property
    def out_of_sight(self) -> Place:
        """The last message that is."""
        return self.trimmed[-1].last if self.trimmed else Place(0, 0)


_of_session = (_M.session_id == text("session_id")) & (_M.tenant == text("tenant"))
_stands = _M.reverted_ms.is_(None) & (
    (_M.through_turn < number("through"))
    | ((_M.through_turn == number("through")) & (_M.through_index <= number("end")))
)
_last_trimmed = select(func.max(_M.through_turn)).where(_of_session, _stands).scalar_subquery()
_NUMBER, _WORD = cast(null(), BigInteger), cast(null(), Text)


def _part(kind: str, found: Select[Any], columns: tuple[Any, ...]) -> Select[Any]:
    """Return a part of one answer, of which all parts have four numbers and two texts."""
    part = found.subquery(kind)
    fillers = (*(_NUMBER,) * 4, *(_WORD,) * 2)
    named = (
        part.c[name] if name else filler for name, filler in zip(columns, fillers, strict=True)
    )
    return select(word(kind), *named)


# One statement, since its parts are of no use alone, and each would cost as much as all of them.
_PAST = Statement(
    union_all(
        _part(
            "turn",
            select(_R.turn, _R.id)
            .where(
                _R.tenant == text("tenant"),
                _R.session_id == text("session_id"),
                _R.turn <= number("through"),
                _R.turn < number("before"),
                _R.turn >= func.coalesce(number("since"), _last_trimmed, 0),
                _R.rolled_back_by.is_(None),
            )
            .order_by(_R.turn.desc())
            .limit(number("limit")),
            ("turn", None, None, None, "id", None),
        ),
        _part(
            "trimmed",
            select(
                _M.from_turn, _M.from_index, _M.through_turn, _M.through_index, _M.id, _M.content
            )
            .where(_of_session, _stands)
            .order_by(_M.through_turn.desc(), _M.through_index.desc())
            .limit(SUMMARIES_MAX),
            ("from_turn", "from_index", "through_turn", "through_index", "id", "content"),
        ),
        _part(
            "pin",
            select(_P.turn, _P.message_index)
            .where(_P.session_id == text("session_id"), _P.tenant == text("tenant"))
            .order_by(_P.turn, _P.message_index)
            .limit(PINS_MAX),
            ("turn", "message_index", None, None, None, None),
        ),
        _part(
            "fork",
            select(_S.forked_turn, _S.forked_index, _S.forked_from).where(
                _S.id == text("session_id"),
                _S.tenant == text("tenant"),
                _S.forked_from.is_not(None),
            ),
            ("forked_turn", "forked_index", None, None, "forked_from", None),
        ),
    )
)
_turns = rows("wanted", numbers=("turn",))
_RUNS_AT = Statement(
    select(_R.turn, _R.id).where(
        _R.tenant == text("tenant"),
        _R.session_id == text("session_id"),
        _R.turn <= number("through"),
        among(_R.turn, select(_turns.c.turn).scalar_subquery()),
        _R.rolled_back_by.is_(None),
    )
)
_TRIMMED = Statement(
    select(_M.id, _M.content).where(
        _M.tenant == text("tenant"),
        among(_M.id, select(rows("wanted", "id").c.id).scalar_subquery()),
    )
)


def past(
    tenant: str,
    session_id: str,
    through: int,
    *,
    limit: int,
    before: int = _ALL,
    since: int | None = None,
) -> Work[Past]:
    """Return the session's last turns up to and with `through`, and before turn `before`.

    They begin where something was trimmed last, or with turn `since`. It is one statement, and one
    more for each fork that they reach back beyond.
    """
    found = Past()
    end = _ALL
    for _ in range(FORKS_MAX):
        # What was trimmed further up is told all the same, if there is room for no more turns.
        here = yield _PAST(
            tenant=tenant,
            session_id=session_id,
            through=through,
            end=end,
            before=before,
            since=since,
            limit=limit - len(found.turns),
        )
        parts = _sorted(here)
        found = _joined(found, parts, session_id, through, end, limit)
        if not parts["fork"]:
            break
        (turn, index, _, __, parent_id, ___) = parts["fork"][0]
        if found.trimmed and since is None:
            since = found.out_of_sight.turn
        session_id = parent_id
        # A fork may begin in what its parent shares itself, and then it shares less of that.
        through, end = min((through, end), (turn or 0, _ALL if index is None else index))
    return found


def _sorted(here: Rows) -> dict[str, list[tuple[Any, ...]]]:
    parts: dict[str, list[tuple[Any, ...]]] = {"turn": [], "trimmed": [], "pin": [], "fork": []}
    for kind, *values in here:
        parts[kind].append(tuple(values))
    return parts


def _joined(
    found: Past, parts: dict[str, list[tuple[Any, ...]]], session_id: str, through: int, end: int,
    limit: int,
) -> Past:  # fmt: skip
    """Return what was found with what an earlier session adds to it."""
    turns = sorted((turn, run_id) for turn, _, _, _, run_id, _ in parts["turn"])
    trimmed = sorted(
        (Place(turn, index), Place(last, last_index), row_id, content)
        for turn, index, last, last_index, row_id, content in parts["trimmed"]
    )
    # What both have trimmed since they parted, the fork tells itself.
    begins = found.trimmed[0].first if found.trimmed else _END
    above = [Trimmed(row_id, first, last, told) for first, last, row_id, told in trimmed]
    told = (*(each for each in above if each.last < begins), *found.trimmed)
    reach = (through, end)
    shared = {Place(turn, index) for turn, index, *_ in parts["pin"] if (turn, index) <= reach}
    return Past(
        turns=(*turns, *found.turns),
        trimmed=told[-SUMMARIES_MAX:],
        pins=_pins(shared, found.pins),
        # A fork of a fork may end earlier in the same turn.
        ends=found.ends if end == _ALL else {through: end, **found.ends},
        lines=((session_id, through), *found.lines),
        more=len(turns) + len(found.turns) >= limit,
    )


def _pins(shared: Collection[Place], own: Collection[Place]) -> tuple[Place, ...]:
    """Return what is pinned in their order, the fork's own before what it shares if not all can."""
    others = sorted({*shared} - {*own})
    return tuple(sorted((*others[max(0, len(others) + len(own) - PINS_MAX) :], *own)))


def runs_at(
    tenant: str, lines: Collection[tuple[str, int]], turns: Collection[int]
) -> Work[dict[int, str]]:
    """Return the runs of these turns, in the sessions that a past is from."""
    wanted = rows_of({"turn": turn} for turn in turns)
    found: dict[int, str] = {}
    for session_id, through in lines:
        here = yield _RUNS_AT(tenant=tenant, session_id=session_id, through=through, wanted=wanted)
        found |= dict(here)
    return found


def told(tenant: str, summary_ids: Collection[str]) -> Work[list[str]]:
    """Return what these summaries tell, in this order, whether they stand still or not.

    One that tells of what was erased meanwhile tells nothing.
    """
    found = dict((yield _TRIMMED(tenant=tenant, wanted=rows_of_ids(summary_ids))))
    return [found[each] for each in summary_ids if found.get(each)]
