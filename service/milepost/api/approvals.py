"""`/v1/approvals`: what waits for a person, and the answers that people give."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.access import Principal
from milepost.api.approvals_shown import names_of, show_approval
from milepost.api.bodies import Body, read_body
from milepost.api.paging import allow, choice, json_response, listed, page, words
from milepost.api.problems import problem_body
from milepost.api.replays import Made, asked, once
from milepost.api.requests import caller, principal_of
from milepost.core.canonical import call_digest
from milepost.core.errors import ConflictError, InvalidError, MilepostError
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.rulings import Ask, Refuse, Reject, Run
from milepost.live.hub import QUEUE_BELL, inbox_bell
from milepost.runtime.child_runs import with_agents
from milepost.runtime.definitions import Definitions
from milepost.runtime.journal import Ports
from milepost.runtime.permits import Identity, Permits
from milepost.runtime.rules import rules_for
from milepost.runtime.toolsets import Toolsets
from milepost.store import approvals, audit, permissions, runs
from milepost.store.approvals import (
    ApprovalFilter,
    ApprovalRow,
    Decided,
    DecidedError,
    Decision,
    Edit,
)
from milepost.store.audit import AuditRow
from milepost.store.idempotency import Asked
from milepost.store.work import Work
from milepost.tools import preview

DECISIONS_MAX = 100
STATUSES = ("pending", "approved", "denied", "expired", "withdrawn", "superseded")

Comment = Annotated[str, Field(max_length=10_000)]
Digest = Annotated[str, Field(min_length=1, max_length=100)]


class ApprovalId(Convertor[str]):
    """An approval's id in a path, by its shape: `decisions` is none, whatever the method."""

    regex = "apr_[0-9A-Za-z]+"

    def convert(self, value: str) -> str:
        """Return it as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return it as it is."""
        return value


register_url_convertor("approval_id", ApprovalId())


class ApprovalDecision(Body):
    """What `POST /v1/approvals/{id}/decision` takes."""

    decision: Literal["approve", "deny"]
    comment: Comment | None = None
    digest: Digest | None = None
    arguments: dict[str, Any] | None = None


class NamedDecision(ApprovalDecision):
    """One of many decisions, with the approval that it is about."""

    approval_id: Annotated[str, Field(min_length=1, max_length=64)]


class ApprovalDecisions(Body):
    """What `POST /v1/approvals/decisions` takes."""

    decisions: Annotated[list[NamedDecision], Field(min_length=1, max_length=DECISIONS_MAX)]


class LateDecisionError(ConflictError):
    """Another answer came first; `shown` carries it to the client."""

    code = "approval_decided"

    def __init__(self, error: DecidedError, approval: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.shown = {"approval": approval}


class Approvals:
    """Approvals, over a store, a hub and the tools whose calls they are about."""

    def __init__(self, ports: Ports, toolsets: Toolsets) -> None:
        self._ports = ports
        self._toolsets = toolsets
        self._definitions = Definitions(ports.store)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/approvals", self.search, methods=["GET"]),
            Route("/v1/approvals/decisions", self.decide_many, methods=["POST"]),
            Route("/v1/approvals/{approval_id:approval_id}", self.get, methods=["GET"]),
            Route(
                "/v1/approvals/{approval_id:approval_id}/decision", self.decide, methods=["POST"]
            ),
        ]

    async def search(self, request: Request) -> Response:
        """List approvals, the newest first; `status=pending` is the inbox."""
        allow(
            request, "limit", "after", "order", "status", "agent", "tool", "session_id", "run_id",
            "user",
        )  # fmt: skip
        principal = _reader(request)
        wanted = ApprovalFilter(
            status=choice(request, "status", STATUSES),
            agent=words(request, "agent"),
            tool=words(request, "tool"),
            session_id=words(request, "session_id"),
            run_id=words(request, "run_id"),
            user=words(request, "user"),
        )
        stretch = page(request)
        found = await self._ports.store.read(approvals.search(principal.tenant, wanted, stretch))
        names = await names_of(self._ports.store, found)
        return listed(found, stretch, lambda row: show_approval(row, names), lambda row: row.id)

    async def get(self, request: Request) -> Response:
        """Show one approval."""
        allow(request)
        row = await self._find(_reader(request), request.path_params["approval_id"])
        return json_response(await self._shown(row))

    async def decide(self, request: Request) -> Response:
        """Answer one question. The first answer counts; repeating one's own changes nothing."""
        allow(request)
        principal = caller(request, "approvals:decide")
        body, raw = await read_body(request, ApprovalDecision)
        approval_id = request.path_params["approval_id"]
        wish = asked(request, raw, approval_id, self._ports.clock())
        made = await self._decide(principal, approval_id, body, wish)
        shown = await self._shown(made.resource.approval)
        return json_response(shown, headers=made.headers())

    async def decide_many(self, request: Request) -> Response:
        """Answer many questions, each for itself; what became of each stands in its place.

        A repeated request goes on with what an interrupted one left undone, since a decision that
        was made already is simply shown again.
        """
        allow(request)
        principal = caller(request, "approvals:decide")
        body, raw = await read_body(request, ApprovalDecisions)
        wish = asked(request, raw, "decisions", self._ports.clock())
        made = await self._ports.store.write(once(wish, _nothing(), lambda _: _nothing()))
        data = [await self._placed(request, principal, each) for each in body.decisions]
        return json_response({"data": data}, headers=made.headers())

    async def _placed(
        self, request: Request, principal: Principal, named: NamedDecision
    ) -> dict[str, Any]:
        """Return the approval as it was decided, or the problem, in one place of many."""
        try:
            made = await self._decide(principal, named.approval_id, named, None)
        except MilepostError as error:
            state = request.scope["state"]
            told = problem_body(
                error,
                instance=f"/v1/approvals/{named.approval_id}/decision",
                request_id=state["request_id"],
            )
            return {"approval_id": named.approval_id, "approval": None, "problem": told}
        shown = await self._shown(made.resource.approval)
        return {"approval_id": named.approval_id, "approval": shown, "problem": None}

    async def _decide(
        self, principal: Principal, approval_id: str, body: ApprovalDecision, wish: Asked | None
    ) -> Made[Decided]:
        """Decide and write down who did, in one transaction; then wake who waits for it."""
        seen = await self._find(principal, approval_id)
        edit = None
        if body.arguments is not None:
            if body.decision == "deny":
                raise InvalidError(
                    "arguments go with an approval; a denied call has none", pointer="/arguments"
                )
            edit = await self._edited(seen, body.arguments)
        decision = Decision(
            body.decision, principal.id, body.comment, body.digest, edit, name=principal.name
        )
        act = self._act(principal, seen, decision)
        try:
            made = await self._ports.store.write(
                once(wish, _decided(seen, decision, act), lambda _: _found(seen))
            )
        except DecidedError as error:
            raise LateDecisionError(error, await self._shown(error.winner)) from error
        if made.resource.run_status == "queued":
            self._ports.hub.ring(QUEUE_BELL)
        if made.resource.run_status is not None:
            self._ports.hub.ring(inbox_bell(seen.run_id))
        return made

    async def _edited(self, row: ApprovalRow, arguments: Mapping[str, Json]) -> Edit:
        """Return the edited call, if the tool takes it and the agent's rules don't forbid it."""
        run = await self._ports.store.read(runs.find(row.tenant, row.run_id))
        agent = await self._definitions.get(row.tenant, run.agent_id, run.agent_version)
        own = await self._toolsets.of(row.tenant)
        tools = await with_agents(own, agent, row.tenant, self._ports.store)
        if row.tool not in tools:
            raise ConflictError(
                f"tool {row.tool!r} is not loaded in this process, so the edited arguments cannot"
                " be checked; approve the call as it is, or ask a server that has the tool",
                code="tool_not_loaded",
            )
        call = ToolCall(id=row.call_id, name=row.tool, arguments=dict(arguments))
        kept = await self._ports.store.read(permissions.get(row.tenant))
        permits = Permits(Identity.of(run.user, run.scopes), orjson.loads(kept.permissions))
        match rules_for(agent, tools, permits).judge(call):
            case Run(fitting, _) | Ask(fitting, _, _):
                return Edit(
                    orjson.dumps(fitting).decode(),
                    call_digest(row.tool, fitting),
                    preview(row.tool, fitting),
                )
            case Refuse(_, reason):
                raise ConflictError(f"{row.tool} is denied: {reason}", code="policy_denied")
            case Reject(failure):
                raise InvalidError(failure.message, code=failure.code, pointer="/arguments")

    def _act(self, principal: Principal, seen: ApprovalRow, decision: Decision) -> AuditRow:
        """Return what the audit trail keeps: who said what to which call, as it was then."""
        details = {
            "decision": decision.decision,
            "comment": decision.comment,
            "digest": decision.edit.digest if decision.edit else seen.digest,
            "seen": {
                "digest": decision.digest,
                "tool": seen.tool,
                "arguments": orjson.Fragment(seen.arguments),
                "preview": seen.preview,
            },
            "edited_to": orjson.Fragment(decision.edit.arguments) if decision.edit else None,
            "run_id": seen.run_id,
            "call_id": seen.call_id,
        }
        return AuditRow(
            id=self._ports.new_id("aud"),
            tenant=principal.tenant,
            actor=principal.id,
            action="approval.decided",
            target=seen.id,
            details=orjson.dumps(details).decode(),
            time_ms=self._ports.clock(),
        )

    async def _shown(self, row: ApprovalRow) -> dict[str, Any]:
        return show_approval(row, await names_of(self._ports.store, [row]))

    async def _find(self, principal: Principal, approval_id: str) -> ApprovalRow:
        return await self._ports.store.read(approvals.find(principal.tenant, approval_id))


def _reader(request: Request) -> Principal:
    """Return who reads: whoever decides may, and whoever reads runs."""
    principal = principal_of(request)
    if "approvals:decide" not in principal.scopes:
        principal.require("runs:read")
    return principal


def _decided(seen: ApprovalRow, decision: Decision, act: AuditRow) -> Work[Decided]:
    """Count the answer and write it into the audit trail."""
    decided = yield from approvals.decide(seen.tenant, seen.id, decision, act.time_ms)
    if not decided.repeated:
        yield from audit.add(act)
    return decided


def _found(seen: ApprovalRow) -> Work[Decided]:
    """Return the approval as an earlier request has decided it."""
    return Decided((yield from approvals.find(seen.tenant, seen.id)), repeated=True)


def _nothing() -> Work[None]:
    """Do nothing, in a transaction whose only effect is to keep a request's key."""
    yield from ()
