"""Deciding approvals, withdrawing them, and what is written down about either."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import orjson
from starlette.requests import Request

from milepost.api.access import Principal
from milepost.api.acts import act_of
from milepost.api.approval_bodies import ApprovalDecision, NamedDecision
from milepost.api.approvals_shown import shown
from milepost.api.editing import Editing
from milepost.api.replays import Made, once
from milepost.core.approvers import Approver
from milepost.core.errors import ConflictError, MilepostError
from milepost.live.hub import OUTBOX_BELL, QUEUE_BELL, approvals_bell, inbox_bell
from milepost.runtime.journal import Ports
from milepost.runtime.judging import Judging
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.store import approvals, audit, erasures, withdrawals
from milepost.store.approvals import ApprovalRow, Decided, DecidedError, Decision, Remember
from milepost.store.audit import AuditFilter, AuditRow
from milepost.store.idempotency import Asked
from milepost.store.records import Page
from milepost.store.withdrawals import Withdrawal
from milepost.store.work import Work

USER_AGENT_CHARS_MAX = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """From where a request came: the address that we see, and what it calls itself."""

    address: str | None = None
    agent: str | None = None

    @classmethod
    def of(cls, request: Request) -> "Origin":
        """Return where the request came from."""
        agent = request.headers.get("user-agent")
        return cls(
            request.client.host if request.client else None,
            agent and agent[:USER_AGENT_CHARS_MAX],
        )


UNKNOWN_ORIGIN = Origin()


class LateDecisionError(ConflictError):
    """Another answer came first; `shown` carries it to the client."""

    code = "approval_decided"

    def __init__(self, error: DecidedError, approval: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.shown = {"approval": approval}


class NoneDecidedError(ConflictError):
    """Some of several decisions could not be made, and so none was; `problems` has their place."""

    code = "none_decided"

    def __init__(self, problems: Sequence[MilepostError | None]) -> None:
        count = sum(problem is not None for problem in problems)
        super().__init__(
            f"{count} of {len(problems)} decisions could not be made, and so none was made"
        )
        self.problems = problems
        self.shown: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class _Draft:
    """A decision about to be made, on an approval as it was read, and what is written down."""

    seen: ApprovalRow
    decision: Decision
    act: AuditRow

    def work(self) -> Work[Decided]:
        """Count the answer and write it into the audit trail."""
        seen, act = self.seen, self.act
        decided = yield from approvals.decide(seen.tenant, seen.id, self.decision, act.time_ms)
        if decided.repeated:
            yield from self._require_same_result(decided.approval)
            return decided
        is_vote = decided.approval.status == "pending"
        yield from audit.add(replace(act, action="approval.voted") if is_vote else act)
        return decided

    def _require_same_result(self, row: ApprovalRow) -> Work[None]:
        """Raise where the call is said to have brought something else than was said before."""
        result = self.decision.result
        if result is None:
            return
        wanted = AuditFilter(action="approval.decided", target=row.id)
        for act in (yield from audit.search(row.tenant, wanted, Page(1))):
            if orjson.loads(act.details)["result"] != orjson.loads(result):
                raise DecidedError(row)


class Deciding:
    """Decides as a principal, over a store, a hub and the rules that edited calls are judged by."""

    def __init__(self, ports: Ports, judging: Judging, policies: TenantPolicies) -> None:
        self._ports = ports
        self._editing = Editing(ports.store, judging)
        self._policies = policies

    async def decide(
        self,
        principal: Principal,
        approval_id: str,
        body: ApprovalDecision,
        wish: Asked | None,
        origin: Origin,
    ) -> Made[Decided]:
        """Decide and write down who did, in one transaction; then wake who waits for it."""
        draft = await self._drafted(principal, approval_id, body, origin)
        if isinstance(draft, MilepostError) and wish is None:
            raise draft
        tenant = principal.tenant
        try:
            made = await self._ports.store.write(
                once(
                    wish,
                    _unless_erased(principal, _done(draft)),
                    lambda earlier: _found(tenant, earlier),
                )
            )
        except DecidedError as error:
            raise await self._late(error) from error
        self._wake(made.resource)
        self._forget(principal, body)
        return made

    async def decide_all(
        self,
        principal: Principal,
        bodies: Sequence[NamedDecision],
        wish: Asked | None,
        origin: Origin,
    ) -> Made[list[Decided]]:
        """Make all of these decisions in one transaction, or none of them."""
        drafts = [await self._drafted(principal, body.approval_id, body, origin) for body in bodies]
        ids = [body.approval_id for body in bodies]
        effect = _unless_erased(principal, _all_or_none(principal.tenant, ids, drafts))
        try:
            made = await self._ports.store.write(
                once(wish, effect, lambda _: _all_found(principal.tenant, ids))
            )
        except NoneDecidedError as error:
            self._let_be_seen()
            problems = [
                await self._late(each) if isinstance(each, DecidedError) else each
                for each in error.problems
            ]
            raise NoneDecidedError(problems) from error
        for decided in made.resource:
            self._wake(decided)
        self._forget(principal, *bodies)
        return made

    async def withdraw(
        self,
        principal: Principal,
        approval_id: str,
        reason: str | None,
        wish: Asked | None,
        origin: Origin,
    ) -> Made[Decided]:
        """Take a question back; its run goes on without the call."""
        seen = await self._find(principal, approval_id)
        act = self._act(
            principal,
            "approval.withdrawn",
            seen,
            {"reason": reason, "seen": _seen(seen), "from": _shown_origin(origin)},
        )
        taking = Withdrawal(principal.id, reason, principal.name)
        try:
            made = await self._ports.store.write(
                once(
                    wish,
                    _unless_erased(principal, _withdrawn(seen, taking, act)),
                    lambda earlier: _found(seen.tenant, earlier),
                )
            )
        except DecidedError as error:
            raise await self._late(error) from error
        self._wake(made.resource)
        return made

    async def _late(self, error: DecidedError) -> LateDecisionError:
        self._let_be_seen()
        return LateDecisionError(error, await shown(self._ports.store, error.winner))

    def _wake(self, decided: Decided) -> None:
        row, hub = decided.approval, self._ports.hub
        if decided.repeated:
            self._let_be_seen()
            return
        if decided.run_status == "queued":
            hub.ring(QUEUE_BELL)
        if decided.run_status is not None:
            hub.ring(inbox_bell(row.run_id))
        else:
            hub.chime(OUTBOX_BELL)
        hub.ring(approvals_bell(row.tenant))

    def _let_be_seen(self) -> None:
        """Have looked again what changed nothing: it held the run's row while others looked.

        A claim passes over a row that is held, and the ring that it came for was the last.
        """
        self._ports.hub.ring(QUEUE_BELL)

    def _forget(self, principal: Principal, *bodies: ApprovalDecision) -> None:
        """Let what was granted hold here at once."""
        if any(body.remember for body in bodies):
            self._policies.forget(principal.tenant)

    async def _drafted(
        self, principal: Principal, approval_id: str, body: ApprovalDecision, origin: Origin
    ) -> "_Draft | MilepostError":
        try:
            return await self._draft(principal, approval_id, body, origin)
        except MilepostError as error:
            return error

    async def _draft(
        self, principal: Principal, approval_id: str, body: ApprovalDecision, origin: Origin
    ) -> _Draft:
        body.require_coherent()
        seen = await self._find(principal, approval_id)
        edit, digest, spelled = None, body.digest, None
        if body.arguments is not None and seen.kind == "call":
            edit = await self._editing.edit(seen, body.arguments)
            spelled = edit.digest
            if edit.digest == seen.digest:
                # Nothing was edited: it is a yes to exactly this call, and voids nobody's.
                edit, digest = None, digest or seen.digest
        decision = Decision(
            body.decision,
            principal.id,
            body.comment,
            digest,
            edit,
            name=principal.name,
            who=approver(principal),
            result=None if body.result is None else orjson.dumps(body.result).decode(),
            remember=self._remember(body),
            spelled=spelled,
        )
        details = {**_said(seen, decision), "from": _shown_origin(origin)}
        return _Draft(seen, decision, self._act(principal, "approval.decided", seen, details))

    def _remember(self, body: ApprovalDecision) -> Remember | None:
        wish = body.remember
        if wish is None:
            return None
        return Remember(
            self._ports.new_id("grt"), round(wish.ttl_s * 1000), wish.arguments == "same"
        )

    def _act(
        self, principal: Principal, action: str, seen: ApprovalRow, details: Mapping[str, Any]
    ) -> AuditRow:
        told = {**details, "run_id": seen.run_id, "call_id": seen.call_id}
        return act_of(self._ports, principal, action, seen.id, told)

    async def _find(self, principal: Principal, approval_id: str) -> ApprovalRow:
        return await self._ports.store.read(approvals.find(principal.tenant, approval_id))


def approver(principal: Principal) -> Approver:
    """Return the principal as terms know people."""
    return Approver(principal.id, principal.subject, principal.scopes)


def _said(seen: ApprovalRow, decision: Decision) -> dict[str, Any]:
    """Return what the audit trail keeps: what was said to which call, as it was then."""
    remember, result = decision.remember, decision.result
    return {
        "decision": decision.decision,
        "comment": decision.comment,
        "digest": decision.edit.digest if decision.edit else seen.digest,
        "seen": {"digest": decision.digest, **_seen(seen)},
        "edited_to": orjson.Fragment(decision.edit.arguments) if decision.edit else None,
        "result": None if result is None else orjson.Fragment(result),
        "grant_id": remember.grant_id if remember else None,
    }


def _seen(row: ApprovalRow) -> dict[str, Any]:
    return {
        "tool": row.tool,
        "arguments": orjson.Fragment(row.arguments),
        "preview": row.preview,
        "version": row.version,
    }


def _shown_origin(origin: Origin) -> dict[str, Any]:
    return {"address": origin.address, "user_agent": origin.agent}


def _unless_erased(principal: Principal, answer: Work[T]) -> Work[T]:
    """Give an answer, unless all that there is of who gives it is being erased.

    The name and the words would stay behind where the erasure has been already.
    """
    yield from erasures.require_none(principal.tenant, principal.subject)  # Before any row is held.
    return (yield from answer)


def _withdrawn(seen: ApprovalRow, taking: Withdrawal, act: AuditRow) -> Work[Decided]:
    taken = yield from withdrawals.withdraw(seen.tenant, seen.id, taking, act.time_ms)
    if not taken.repeated:
        yield from audit.add(act)
    return taken


def _done(draft: _Draft | MilepostError) -> Work[Decided]:
    """Make a decision, or raise why none could be drafted: whoever repeats one gets here never."""
    if isinstance(draft, MilepostError):
        raise draft
    return (yield from draft.work())


def _all_or_none(
    tenant: str, ids: Sequence[str], drafts: Sequence[_Draft | MilepostError]
) -> Work[list[Decided]]:
    """Make decisions in order; raise `NoneDecidedError` with what each would be refused for."""
    yield from approvals.lock_runs_of(tenant, ids)
    made: list[Decided] = []
    problems: list[MilepostError | None] = []
    for draft in drafts:
        try:
            made.append((yield from _done(draft)))
            problems.append(None)
        except MilepostError as error:
            problems.append(error)
    if len(made) < len(drafts):
        raise NoneDecidedError(problems)
    return made


def _found(tenant: str, approval_id: str) -> Work[Decided]:
    """Return the approval as an earlier request has decided it."""
    return Decided((yield from approvals.find(tenant, approval_id)), repeated=True)


def _all_found(tenant: str, ids: Sequence[str]) -> Work[list[Decided]]:
    found = []
    for approval_id in ids:
        row = yield from approvals.find(tenant, approval_id)
        found.append(Decided(row, repeated=True))
    return found
