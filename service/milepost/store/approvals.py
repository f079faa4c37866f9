"""Approvals: questions to people, and the one answer that each of them gets.

Whatever changes an approval holds the lock of its run first, as everywhere. How they are found is
in `approval_rows`, and what time makes of them in `approval_times`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson
from sqlalchemy import func, select, update

from milepost.core.approvers import UNKNOWN, Approver, has_asked, is_asked
from milepost.core.errors import ConflictError, ForbiddenError, InvalidError
from milepost.store import grants, keys, outbox, runs, schema, votes
from milepost.store.approval_rows import (
    COLUMNS,
    FIND,
    IS_PENDING,
    ApprovalFilter,
    ApprovalRow,
    find,
    only,
    search,
)
from milepost.store.dialect import now_ms, number, rows, rows_of_ids, text
from milepost.store.grants import GrantRow
from milepost.store.runs import Letter
from milepost.store.votes import VoteRow
from milepost.store.work import Statement, Work

__all__ = [
    "ANSWERS", "REFUSALS", "Answer", "ApprovalFilter", "ApprovalRow", "Decided", "DecidedError",
    "Decision", "Edit", "Remember", "decide", "find", "lock_runs_of", "search",
]  # fmt: skip

_A = schema.approvals.c
_R = schema.runs.c

Answer = Literal["approve", "deny", "happened", "not_happened", "stop"]
ANSWERS: dict[str, tuple[Answer, ...]] = {
    "call": ("approve", "deny"),
    "outcome": ("happened", "not_happened", "stop"),
}
"""What may be answered to each kind of question."""

REFUSALS = frozenset({"deny", "stop"})
_BECOMES = {"approve": "approved", "deny": "denied"}


@dataclass(frozen=True, slots=True)
class Edit:
    """The call as its approver wants it; `arguments` is encoded JSON."""

    arguments: str
    digest: str
    preview: str


@dataclass(frozen=True, slots=True)
class Remember:
    """A yes that is to hold for the session, to the tool or to `same` arguments only."""

    grant_id: str
    ttl_ms: int
    same: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """One principal's answer. `digest` is that of the call it saw, if it says so.

    `spelled` is that of the call with the arguments that came along, edited or not. `by` is who
    decided, `name` what the run's log calls them, and `who` the person whose voice it is: nobody
    votes twice. `result` is encoded JSON, and what a call that happened has brought.
    """

    decision: Answer
    by: str
    comment: str | None = None
    digest: str | None = None
    edit: Edit | None = None
    name: str | None = None
    who: Approver = UNKNOWN
    result: str | None = None
    remember: Remember | None = None
    spelled: str | None = None

    @property
    def voter(self) -> str:
        """Whose voice it is."""
        return self.who.person or self.by


@dataclass(frozen=True, slots=True)
class Decided:
    """What a decision made of its approval; still pending where more votes are required.

    `run_status` is that of the run which has been told, None where nothing was to be told.
    `repeated` says that this principal had answered the same before.
    """

    approval: ApprovalRow
    run_status: str | None = None
    repeated: bool = False


class DecidedError(ConflictError):
    """Somebody else was faster; `winner` is the approval with their answer."""

    code = "approval_decided"

    def __init__(self, winner: ApprovalRow) -> None:
        super().__init__(f"approval {winner.id} was {winner.status} by {winner.decided_by}")
        self.winner = winner


LOCK_RUN = Statement(
    select(_R.id)
    .where(
        _R.tenant == text("tenant"),
        _R.id
        == select(_A.run_id)
        .where(_A.id == text("approval_id"), _A.tenant == text("tenant"))
        .scalar_subquery(),
    )
    .with_for_update()
)
_asked = rows("asked", "id")
_LOCK_RUNS = Statement(
    select(_R.id)
    .where(
        _R.tenant == text("tenant"),
        _R.id.in_(
            select(_A.run_id).where(_A.id.in_(select(_asked.c.id)), _A.tenant == text("tenant"))
        ),
    )
    .order_by(_R.id)
    .with_for_update()
)
_SETTLE = Statement(
    update(schema.approvals)
    .where(
        _A.id == text("approval_id"),
        _A.tenant == text("tenant"),
        IS_PENDING,
        _A.digest == text("seen"),
        _A.expires_ms > now_ms(),
    )
    .values(
        status=text("status"),
        decided_by=text("decided_by"),
        decision=text("decision"),
        comment=text("comment"),
        decided_ms=number("decided_ms"),
        version=_A.version + 1,
        changed_ms=number("changed_ms"),
        change=text("change"),
        original=text("original"),
        arguments=func.coalesce(text("arguments"), _A.arguments),
        digest=func.coalesce(text("digest"), _A.digest),
        preview=func.coalesce(text("preview"), _A.preview),
    )
    .returning(*COLUMNS)
)


def lock_runs_of(tenant: str, approval_ids: Iterable[str]) -> Work[None]:
    """Lock the runs of several approvals, in the one order that everybody locks them in."""
    yield _LOCK_RUNS(tenant=tenant, asked=rows_of_ids(approval_ids))


def decide(tenant: str, approval_id: str, decision: Decision, now_ms: int) -> Work[Decided]:
    """Count an answer, and tell the run if that settles the question.

    Raises `DecidedError` with the winning answer, a `ConflictError` that says what else came before
    this one, or a `ForbiddenError` where the answer is not theirs to give.
    """
    named = {"tenant": tenant, "approval_id": approval_id}
    _, found, cast = yield LOCK_RUN(**named), FIND(**named), votes.of(**named)
    row = only(found, approval_id)
    given = [vote for vote in (VoteRow(*each) for each in cast) if not row.has_lost(vote)]
    if any(_is_same(vote, row, decision) for vote in given) and (
        # A yes that is to hold on says more than the one before, if that did not.
        decision.remember is None
        or (yield from grants.came_of(tenant, row.session_id, approval_id))
    ):
        return Decided(row, repeated=True)
    require_open(row)
    _require_fitting(row, decision)
    yield from _require_theirs(row, decision)
    _require_same_call(row, decision)
    yield from _vote(row, decision, now_ms)
    decided = yield from _settle(row, decision, _status_after(row, decision, given), now_ms)
    if decided.status == "pending":
        yield from _tell_of_vote(decided, decision, now_ms)
        return Decided(decided)
    if decision.remember:
        yield from grants.add(_grant(decided, decision, decision.remember, now_ms))
    letter = Letter("approval", _letter(decided, decision), "approval", now_ms)
    status = yield from runs.deliver(tenant, row.run_id, letter)
    if status is None:
        raise fell_away(row)
    return Decided(decided, run_status=status)


def _is_same(vote: VoteRow, row: ApprovalRow, decision: Decision) -> bool:
    said = (decision.voter, decision.decision, _digest_meant(row, decision))
    return (vote.voter, vote.decision, vote.digest) == said


def _digest_meant(row: ApprovalRow, decision: Decision) -> str:
    if decision.edit:
        return decision.edit.digest
    return decision.spelled or decision.digest or row.digest


def require_open(row: ApprovalRow) -> None:
    """Raise what has come before, if anything has."""
    match row.status:
        case "pending":
            return
        case "approved" | "denied" | "answered":
            raise DecidedError(row)
        case "expired":
            raise expired(row)
        case _:
            raise fell_away(row)


def expired(row: ApprovalRow) -> ConflictError:
    """Return the error for an answer that is too late."""
    return ConflictError(
        f"approval {row.id} expired before it was decided, which means no", code="approval_expired"
    )


def fell_away(row: ApprovalRow) -> ConflictError:
    """Return the error for a question that nobody asks any more."""
    why = f"it was {row.status} by {row.decided_by}"
    if row.decided_by is None or row.status == "pending":
        why = f"its run {row.run_id} is over"
    return ConflictError(f"approval {row.id} fell away: {why}", code="approval_withdrawn")


def _require_fitting(row: ApprovalRow, decision: Decision) -> None:
    """Raise where this is no answer to such a question."""
    possible = ANSWERS[row.kind]
    if decision.decision not in possible:
        asks = "may be made" if row.kind == "call" else "has happened"
        raise InvalidError(
            f"approval {row.id} asks whether a call {asks}; answer {' or '.join(possible)},"
            f" not {decision.decision}",
            code="wrong_decision",
            pointer="/decision",
        )
    if decision.remember and row.required > 1:
        raise ConflictError(
            f"approval {row.id} needs {row.required} votes, and one of them cannot allow more than"
            " this call",
            code="not_rememberable",
        )
    terms = row.terms_shown()
    chosen = terms.get("approvers") or not terms.get("self_approval", True)
    if decision.remember and not decision.remember.same and chosen:
        raise ConflictError(
            f"approval {row.id} is not for anybody to answer, and so a yes to it allows no calls"
            ' with other arguments; remember it with "arguments": "same"',
            code="not_rememberable",
        )


def _require_theirs(row: ApprovalRow, decision: Decision) -> Work[None]:
    """Raise where the answer is not theirs to give; a no of whoever asked is."""
    who, terms = decision.who, row.terms_shown()
    if not is_asked(terms.get("approvers", ()), who):
        raise ForbiddenError(
            f"approval {row.id} is to be answered by {', '.join(terms['approvers'])}",
            code="not_an_approver",
        )
    if terms.get("self_approval", True) or decision.decision in REFUSALS:
        return
    own_keys = who.own_keys
    if who.subject is not None:
        own_keys |= yield from keys.of_subject(row.tenant, who.subject)
    known = Approver(who.key, who.subject, who.scopes, own_keys)
    if has_asked(row.made_by, row.requester, terms.get("speakers", ()), known):
        raise ForbiddenError(
            f"approval {row.id} needs somebody else's yes than that of whoever has asked for run"
            f" {row.run_id}, or told it something, and nobody can say that this is not they",
            code="self_approval",
        )


def _require_same_call(row: ApprovalRow, decision: Decision) -> None:
    if decision.digest is None and row.required > 1:
        raise InvalidError(
            f"approval {row.id} needs {row.required} votes for one call; send its digest along",
            code="digest_required",
            pointer="/digest",
        )
    meant = {decision.digest, None if decision.edit else decision.spelled}
    if meant - {None, row.digest}:
        raise ConflictError(
            f"approval {row.id} is now about another call, with digest {row.digest};"
            " look at it again",
            code="digest_mismatch",
        )


def _vote(row: ApprovalRow, decision: Decision, now_ms: int) -> Work[None]:
    vote = VoteRow(
        row.id,
        decision.voter,
        decision.by,
        decision.decision,
        _digest_meant(row, decision),
        decision.comment,
        now_ms,
    )
    yield from votes.cast(row.tenant, vote, alone=decision.edit is not None)


def _status_after(row: ApprovalRow, decision: Decision, given: Sequence[VoteRow]) -> str:
    """Return what the vote makes of the question: one no is no, a yes may need others."""
    if decision.decision != "approve":
        return _BECOMES.get(decision.decision, "answered")
    others = {
        vote.voter
        for vote in given
        if (vote.decision, vote.digest) == ("approve", row.digest) and not decision.edit
    }
    return "approved" if len(others | {decision.voter}) >= row.required else "pending"


def _settle(row: ApprovalRow, decision: Decision, status: str, now_ms: int) -> Work[ApprovalRow]:
    """Change the approval if it is still pending, in time, and about the same call."""
    open_still = status == "pending"
    edit = decision.edit
    found = yield _SETTLE(
        tenant=row.tenant,
        approval_id=row.id,
        seen=row.digest,
        status=status,
        decided_by=None if open_still else decision.by,
        decision=None if open_still else decision.decision,
        comment=None if open_still else decision.comment,
        decided_ms=None if open_still else now_ms,
        changed_ms=now_ms,
        change="voted" if open_still else "decided",
        original=row.original or (row.arguments if edit else None),
        arguments=edit.arguments if edit else None,
        digest=edit.digest if edit else None,
        preview=edit.preview if edit else None,
    )
    if not found:
        require_open((yield from find(row.tenant, row.id)))
        raise expired(row)
    return ApprovalRow(*found[0])


def _tell_of_vote(row: ApprovalRow, decision: Decision, now_ms: int) -> Work[None]:
    """Webhooks hear of votes; the run only hears what they lead to."""
    said = {
        "approval_id": row.id,
        "call_id": row.call_id,
        "decision": decision.decision,
        "by": decision.name or decision.by,
    }
    told = orjson.dumps(said).decode()
    yield from outbox.add(row.tenant, "approval.voted", row.run_id, None, told, now_ms)


def _grant(row: ApprovalRow, decision: Decision, wish: Remember, now_ms: int) -> GrantRow:
    return GrantRow(
        id=wish.grant_id,
        tenant=row.tenant,
        session_id=row.session_id,
        tool=row.tool,
        digest=row.digest if wish.same else None,
        approval_id=row.id,
        granted_by=decision.by,
        created_ms=now_ms,
        expires_ms=now_ms + wish.ttl_ms,
    )


def _letter(row: ApprovalRow, decision: Decision) -> str:
    """Return what the run is told; arguments and digest only where the call was edited.

    Whoever edited it need not be the last whose yes was needed: the approval has the call as it is.
    """
    result = decision.result
    told = row.original is not None and decision.decision == "approve"
    said = {
        "approval_id": row.id,
        "call_id": row.call_id,
        "decision": decision.decision,
        "by": decision.name or decision.by,
        "comment": decision.comment,
        "arguments": orjson.Fragment(row.arguments) if told else None,
        "digest": row.digest if told else None,
        "result": None if result is None else orjson.Fragment(result),
    }
    return orjson.dumps(said).decode()
