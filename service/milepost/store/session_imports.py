"""Sessions from elsewhere: their past as runs that are over, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import insert, select

from milepost.core.window import Place
from milepost.store import erasures, schema, sessions
from milepost.store.dialect import number, rows, rows_of, text, word
from milepost.store.entries import ENTRIES, NAMES, entry_row
from milepost.store.records import Entry
from milepost.store.sessions import NewSession, SessionRow
from milepost.store.work import Statement, Work

NO_AGENT = "agt_imported"
"""The agent of runs that were done elsewhere: there is no definition of it."""


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A run that was done elsewhere: its turn, what says so in its log, and how it is shown.

    `metadata` and `outcome` are encoded JSON.
    """

    id: str
    turn: int
    agent: str
    agent_version: int
    user: str | None
    metadata: str
    outcome: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ImportedSummary:
    """What is told of a stretch that is out of sight."""

    id: str
    first: Place
    last: Place
    content: str


@dataclass(frozen=True, slots=True)
class Imported:
    """A session from elsewhere, with all that is brought along."""

    session: NewSession
    runs: Sequence[ImportedRun]
    summaries: Sequence[ImportedSummary] = ()
    pins: Sequence[Place] = ()


_S = schema.sessions.c
_ADD_SESSION = Statement(
    insert(schema.sessions).values(
        **sessions.BEGINNING,
        turns=number("turns"),
        arrivals=number("arrivals"),
    )
)
_runs = rows(
    "imported", "id", "agent", "user_id", "metadata", "outcome",
    numbers=("agent_version", "turn", "place"),
)  # fmt: skip
_ADD_RUNS = Statement(
    insert(schema.runs).from_select(
        [
            "id", "tenant", "session_id", "agent_id", "agent", "agent_version", "user_id",
            "status", "run_at_ms", "created_ms", "ended_ms", "metadata", "outcome", "turn",
            "place",
        ],
        select(
            _runs.c.id,
            text("tenant"),
            text("session_id"),
            word(NO_AGENT),
            _runs.c.agent,
            _runs.c.agent_version,
            _runs.c.user_id,
            word("completed"),
            number("now_ms"),
            number("now_ms"),
            number("now_ms"),
            _runs.c.metadata,
            _runs.c.outcome,
            _runs.c.turn,
            _runs.c.place,
        ),
    )
)  # fmt: skip
_ADD_EVENTS = Statement(insert(schema.events).from_select(NAMES, ENTRIES))
_summaries = rows(
    "summaries", "id", "content", "run_id",
    numbers=("from_turn", "from_index", "through_turn", "through_index"),
)  # fmt: skip
_ADD_SUMMARIES = Statement(
    insert(schema.summaries).from_select(
        [
            "id", "tenant", "session_id", "content", "run_id", "from_turn", "from_index",
            "through_turn", "through_index", "created_ms",
        ],
        select(
            _summaries.c.id,
            text("tenant"),
            text("session_id"),
            _summaries.c.content,
            _summaries.c.run_id,
            _summaries.c.from_turn,
            _summaries.c.from_index,
            _summaries.c.through_turn,
            _summaries.c.through_index,
            number("now_ms"),
        ),
    )
)  # fmt: skip
_pins = rows("pins", numbers=("turn", "message_index"))
_ADD_PINS = Statement(
    insert(schema.pins).from_select(
        ["tenant", "session_id", "turn", "message_index", "created_ms"],
        select(
            text("tenant"),
            text("session_id"),
            _pins.c.turn,
            _pins.c.message_index,
            number("now_ms"),
        ),
    )
)


def create(imported: Imported) -> Work[SessionRow]:
    """Make the session with its past. Nothing of it is counted, or told to anybody.

    Raises `UserBeingErasedError` if any of it is of such a user.
    """
    session = imported.session
    whose = {session.user, *(run.user for run in imported.runs)}
    if users := {(session.tenant, user) for user in whose if user is not None}:
        _, erased = yield erasures.looking_for(users)
        for _, user in erased:
            raise erasures.refused(user)
    named = {
        "tenant": session.tenant,
        "session_id": session.id,
        "now_ms": session.created_ms,
    }
    last = imported.runs[-1] if imported.runs else None
    yield (
        _ADD_SESSION(
            **sessions.beginning_of(session),
            turns=last.turn if last else 0,
            arrivals=len(imported.runs),
        ),
        _ADD_RUNS(**named, imported=_run_rows(imported.runs)),
        _ADD_EVENTS(first=_event_rows(session.tenant, imported.runs)),
        _ADD_SUMMARIES(**named, summaries=_summary_rows(imported, last.id if last else "")),
        _ADD_PINS(
            **named,
            pins=rows_of({"turn": pin.turn, "message_index": pin.at} for pin in imported.pins),
        ),
    )
    return (yield from sessions.find(session.tenant, session.id))


def _run_rows(imported: Sequence[ImportedRun]) -> str:
    return rows_of(
        {
            "id": run.id,
            "agent": run.agent,
            "agent_version": run.agent_version,
            "user_id": run.user,
            "metadata": run.metadata,
            "outcome": run.outcome,
            "turn": run.turn,
            "place": place,
        }
        for place, run in enumerate(imported, start=1)
    )


def _event_rows(tenant: str, imported: Sequence[ImportedRun]) -> str:
    return rows_of(
        entry_row(run.id, tenant, run.id, epoch=0, seq=seq, entry=entry)
        for run in imported
        for seq, entry in enumerate(run.entries, start=1)
    )


def _summary_rows(imported: Imported, run_id: str) -> str:
    return rows_of(
        {
            "id": each.id,
            "content": each.content,
            "run_id": run_id,
            "from_turn": each.first.turn,
            "from_index": each.first.at,
            "through_turn": each.last.turn,
            "through_index": each.last.at,
        }
        for each in imported.summaries
    )
