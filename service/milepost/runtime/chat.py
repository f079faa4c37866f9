"""One message of a chat: what waits for its user, and what the message makes of that.

All of it is one transaction, which begins with the message's own id: whoever delivers the message
again finds what it did.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import orjson

from milepost.core.approvers import Approver
from milepost.core.confirmations import ConfirmationParser
from milepost.core.errors import ConflictError, InvalidError, NotFoundError
from milepost.core.json import Json
from milepost.core.pending import (
    APPROVAL_KIND,
    IGNORED_S,
    Move,
    Offer,
    Said,
    Shown,
    meaning_of,
    move,
)
from milepost.runtime.clock import Clock, NewId
from milepost.store import (
    approvals,
    audit,
    chat_approvals,
    conversations,
    log,
    new_runs,
    pending,
    runs,
)
from milepost.store.approvals import ApprovalRow, Decision
from milepost.store.audit import AuditRow
from milepost.store.conversations import ConversationRow, Delivery, ScopeKey
from milepost.store.lines import GRACE_MS
from milepost.store.pending import PendingRow
from milepost.store.records import NewRun
from milepost.store.runs import Letter, RunRow, StaleError
from milepost.store.work import Work

SUPERSEDED = "the user went on with another message"
_IGNORED_MS = round(IGNORED_S * 1000)

Place = Callable[[str, bool], NewRun]
"""Returns the run to be queued, in that session, which may be new."""


class Drafts(Protocol):
    """Makes the runs that a message may lead to."""

    def answer(self) -> Place:
        """Return the run that answers the message. Raises `MilepostError` where nobody can."""

    def execution(self, row: PendingRow, asker: RunRow) -> Place | None:
        """Return the run that executes an action which the run `asker` has put off.

        None if nothing here executes actions of its kind.
        """


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came in. `actor` is the key that brought it."""

    id: str
    scope: ScopeKey
    said: Said
    hash: str
    actor: str

    @property
    def by(self) -> str:
        """The user, as whoever reads logs is told of them."""
        return f"channel:{self.scope.channel}:{self.scope.user}"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a message did. `told` are runs to be woken; `queued` says that a worker has to look.

    `made` is the run that it has made, if it made one.
    """

    delivery: Delivery
    replayed: bool = False
    told: tuple[str, ...] = ()
    queued: bool = False
    made: NewRun | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a message is taken in with."""

    parser: ConfirmationParser
    clock: Clock
    new_id: NewId
    queue_max: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What waits for the user: the first of them is offered, the rest come after it."""

    actions: Sequence[PendingRow | ApprovalRow] = ()

    @property
    def first(self) -> PendingRow | ApprovalRow | None:
        """What is offered."""
        return self.actions[0] if self.actions else None


def standing(scope: ScopeKey, session_id: str) -> Work[Standing]:
    """Return what waits for the user, the oldest first."""
    stashed = yield from pending.open_in(scope)
    asked = yield from chat_approvals.waiting_in(scope.tenant, session_id)
    theirs = [row for row in asked if may_answer(row, scope)]
    if stashed is None:
        return Standing(theirs)
    before = [row for row in theirs if row.created_ms < stashed.requested_ms]
    return Standing([*before, stashed, *theirs[len(before) :]])


def may_answer(row: ApprovalRow, scope: ScopeKey) -> bool:
    """Say whether the terms of an approval let the user of the chat answer."""
    who = approver_at(scope)
    return row.asks(who) and not row.is_own(who)


def approver_at(scope: ScopeKey) -> Approver:
    """Return the user of the chat as one who answers."""
    return Approver(subject=scope.user, channel=f"channel:{scope.channel}:{scope.user}")


def offer_of(row: PendingRow | ApprovalRow) -> Offer:
    """Return what waits, as answers are weighed against it."""
    if isinstance(row, ApprovalRow):
        return Offer(row.id, APPROVAL_KIND, row.digest)
    return Offer(row.id, row.kind, row.digest, row.is_intact)


def take_in(message: Message, drafts: Drafts, around: Surroundings) -> Work[Turn]:
    """Take a message in, once; return what it did now, or did when it came before.

    Raises `StaleError` if something changed meanwhile: nothing was written then; try again.
    """
    now, scope = around.clock(), message.scope
    before = yield from conversations.take(scope, message.id, message.hash, now)
    if before is not None:
        return Turn(before, replayed=True)
    row, is_new = yield from conversations.enter(scope, around.new_id("ses"), now)
    yield from pending.expire_in(scope)
    waits = yield from standing(scope, row.session_id)
    shown = yield from _shown(row, scope.tenant)
    meaning = meaning_of(message.said, around.parser)
    offer = offer_of(waits.first) if waits.first else None
    taking = _Taking(message, drafts, around, row, is_new)
    turn = yield from taking.make(move(message.said, meaning, offer, shown), waits)
    yield from conversations.note(scope, message.id, turn.delivery)
    yield from conversations.show(scope, None, None)
    return turn


def _shown(row: ConversationRow, tenant: str) -> Work[Shown | None]:
    if row.shown_id is None:
        return None
    expired = yield from pending.is_past(tenant, row.shown_id)
    return Shown(row.shown_id, row.shown_digest or "", expired)


@dataclass(frozen=True, slots=True)
class _Taking:
    """One message being taken in."""

    message: Message
    drafts: Drafts
    around: Surroundings
    row: ConversationRow
    is_new: bool

    @property
    def _done(self) -> Delivery:
        """What was done before anything was."""
        message = self.message
        # Who was never answered has no session yet.
        session_id = self.row.session_id if self.row.agent else None
        return Delivery(message.scope.user, message.hash, "", session_id, None, 0, None)

    def make(self, what: Move, waits: Standing) -> Work[Turn]:
        """Make the move, and say what it did."""
        first = waits.first
        if what == "start":
            return (yield from self._start("started"))
        if first is None:
            return self._nothing(what, None)
        match what:
            case "supersede":
                return (yield from self._supersede(waits))
            case "confirm" | "cancel" if isinstance(first, ApprovalRow):
                return (yield from self._decide(first, approve=what == "confirm"))
            case "confirm" if isinstance(first, PendingRow):
                return (yield from self._confirm(first))
            case "cancel" if isinstance(first, PendingRow):
                yield from self._answer(first, "cancelled")
                return self._nothing("cancelled", first.id)
            case "ignore":
                yield from self._tighten(first)
                return self._nothing("ignored", first.id)
            case "digest_mismatch" if isinstance(first, PendingRow):
                yield from self._answer(first, "consumed")
        return self._nothing(what, first.id)

    def _nothing(self, outcome: str, pending_id: str | None) -> Turn:
        return Turn(replace(self._done, outcome=outcome, pending_id=pending_id))

    def _start(self, outcome: str, told: tuple[str, ...] = ()) -> Work[Turn]:
        place = self.drafts.answer()
        made, status = yield from self._queue(place)
        scope, now = self.message.scope, self.around.clock()
        yield from conversations.go_on(scope, made.session_id, made.agent, now)
        done = replace(self._done, outcome=outcome, run_id=made.id, session_id=made.session_id)
        return Turn(done, told=told, queued=bool(told) or status == "queued", made=made)

    def _queue(self, place: Place) -> Work[tuple[NewRun, str]]:
        """Queue a run in the conversation's session, or in a new one if that was erased."""
        run = place(self.row.session_id, self.is_new)
        (outcome,) = yield from new_runs.create([run], queue_max=self.around.queue_max)
        if isinstance(outcome, NotFoundError):
            run = place(self.around.new_id("ses"), True)
            (outcome,) = yield from new_runs.create([run], queue_max=self.around.queue_max)
        if isinstance(outcome, Exception):
            raise outcome
        return run, outcome.status

    def _supersede(self, waits: Standing) -> Work[Turn]:
        """Drop all that waits, stop the run that asked, and answer the message."""
        stopped: set[str] = set()
        for each in waits.actions:
            if isinstance(each, PendingRow):
                yield from self._answer(each, "superseded")
                continue
            held = yield from chat_approvals.supersede(
                each, self.row.session_id, self.message.by, self.around.clock()
            )
            if held:
                stopped.add(held)
                yield from self._write_down("approval.superseded", each.id, {})
        for run_id in stopped:
            yield from self._stop(run_id)
        return (yield from self._start("superseded", tuple(sorted(stopped))))

    def _stop(self, run_id: str) -> Work[None]:
        said = orjson.dumps({"by": self.message.by, "reason": SUPERSEDED}).decode()
        letter = Letter("cancel", said, "cancel", self.around.clock(), GRACE_MS)
        yield from runs.deliver(self.message.scope.tenant, run_id, letter)

    def _confirm(self, row: PendingRow) -> Work[Turn]:
        """Queue the run that executes exactly what was previewed."""
        asked = yield from runs.find(row.tenant, row.run_id)
        place = self.drafts.execution(row, asked)
        if place is None:
            yield from self._answer(row, "consumed")
            return self._nothing("no_executor", row.id)
        made, status = yield from self._queue(place)
        yield from self._answer(row, "confirmed", made.id)
        done = replace(
            self._done,
            outcome="confirmed",
            run_id=made.id,
            session_id=made.session_id,
            pending_id=row.id,
        )
        return Turn(done, queued=status == "queued", made=made)

    def _answer(
        self, row: PendingRow, status: pending.Answer, executed_by: str | None = None
    ) -> Work[None]:
        message = self.message
        parser = None if message.said.intent else self.around.parser.version
        answered = yield from pending.answer(
            row, status, by=message.by, parser=parser, executed_by=executed_by
        )
        if answered is None:
            raise StaleError(f"{row.id} was answered meanwhile, or is over; look again")
        seen: dict[str, Json] = {
            "kind": row.kind,
            "preview": row.preview,
            "args": orjson.loads(row.args),
            "digest": row.digest,
            "run_id": executed_by,
            "parser": parser,
        }
        yield from self._write_down(f"pending_action.{status}", row.id, seen)

    def _decide(self, row: ApprovalRow, *, approve: bool) -> Work[Turn]:
        """Answer the question as its user did; the run goes on with it."""
        by, now = self.message.by, self.around.clock()
        who = approver_at(self.message.scope)
        answer: approvals.Answer = "approve" if approve else "deny"
        decision = Decision(answer, by, digest=row.digest, name=by, who=who)
        awaited = yield from chat_approvals.run_of(row.tenant, self.row.session_id)
        run_id = awaited or row.run_id
        after_seq = yield from log.head(row.tenant, run_id)
        try:
            decided = yield from approvals.decide(row.tenant, row.id, decision, now)
        except (ConflictError, InvalidError) as error:
            raise StaleError(f"{row.id} changed meanwhile: {error}") from error
        seen: dict[str, Json] = {
            "decision": decision.decision,
            "tool": row.tool,
            "arguments": orjson.loads(row.arguments),
            "digest": row.digest,
            "preview": row.preview,
            "run_id": row.run_id,
            "call_id": row.call_id,
        }
        if not decided.repeated:
            is_vote = decided.approval.status == "pending"
            act = "approval.voted" if is_vote else "approval.decided"
            yield from self._write_down(act, row.id, seen)
        done = replace(
            self._done,
            outcome="confirmed" if approve else "cancelled",
            run_id=run_id,
            after_seq=after_seq,
            pending_id=row.id,
        )
        told = (row.run_id,) if decided.run_status else ()
        return Turn(done, told=told, queued=decided.run_status == "queued")

    def _tighten(self, row: PendingRow | ApprovalRow) -> Work[None]:
        if isinstance(row, ApprovalRow):
            yield from chat_approvals.tighten(row, _IGNORED_MS, self.around.clock())
        else:
            yield from pending.tighten(row.tenant, row.id, _IGNORED_MS)

    def _write_down(self, action: str, target: str, details: dict[str, Json]) -> Work[None]:
        """Write into the audit trail who said what to what."""
        message = self.message
        told: dict[str, Json] = {"by": message.by, "message_id": message.id, **details}
        act = AuditRow(
            id=self.around.new_id("aud"),
            tenant=message.scope.tenant,
            actor=message.actor,
            action=action,
            target=target,
            details=orjson.dumps(told).decode(),
            time_ms=self.around.clock(),
        )
        yield from audit.add(act)
