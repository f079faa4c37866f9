"""`/v1/approvals`: what waits for a person, and the answers that people give."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.accepting import EVENTS, accepted, headers_of_a_stream
from milepost.api.access import Principal
from milepost.api.approval_bodies import (
    ApprovalDecision,
    ApprovalDecisions,
    ApprovalWithdrawal,
    NamedDecision,
)
from milepost.api.approval_context import context_of
from milepost.api.approval_feed import OVERLAP_MS, ApprovalFeeds
from milepost.api.approval_stream import ApprovalTail
from milepost.api.approvals_shown import showing, shown
from milepost.api.bodies import read_body, read_optional
from milepost.api.cursors import left_at
from milepost.api.deciding import (
    UNKNOWN_ORIGIN,
    Deciding,
    NoneDecidedError,
    Origin,
    approver,
)
from milepost.api.paging import (
    allow,
    choice,
    flag,
    integer,
    json_response,
    moment_ms,
    page,
    shown_page,
    words,
)
from milepost.api.problems import problem_body
from milepost.api.replays import Made, asked, keeping
from milepost.api.requests import approvals_reader, caller, principal_of
from milepost.api.stream import Streams, TailResponse
from milepost.core.approvers import Approver
from milepost.core.errors import InvalidError, MilepostError
from milepost.runtime.journal import Ports
from milepost.runtime.judging import Judging
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.store import approvals, keys, log
from milepost.store.approvals import ANSWERS, REFUSALS, ApprovalFilter, ApprovalRow, Decided
from milepost.store.idempotency import Asked
from milepost.store.work import Work

__all__ = ["ApprovalDecision", "Approvals"]

STATUSES = (
    "pending", "approved", "denied", "answered", "expired", "withdrawn", "superseded",
)  # fmt: skip
KINDS = ("call", "outcome")
AGE_S_MAX = 10**9
ON_LOOP_MAX = 200
"""How long a log may be that is read without letting others go on."""
FILTERS = (
    "agent", "tool", "session_id", "run_id", "user", "kind", "created_after", "created_before",
    "mine",
)  # fmt: skip

_SEQ = re.compile(r"[0-9]{1,15}")


class Approvals:
    """Approvals, over a store, a hub and what decides them."""

    def __init__(
        self, ports: Ports, judging: Judging, policies: TenantPolicies, streams: Streams
    ) -> None:
        self._ports = ports
        self._streams = streams
        self._feeds = ApprovalFeeds(ports.store, ports.hub)
        self._deciding = Deciding(ports, judging, policies)

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        one = "/v1/approvals/{approval_id:approval_id}"
        return [
            Route("/v1/approvals", self.search, methods=["GET"]),
            Route("/v1/approvals/events", self.follow, methods=["GET"]),
            Route("/v1/approvals/decisions", self.decide_many, methods=["POST"]),
            Route(one, self.get, methods=["GET"]),
            Route(f"{one}/decision", self.decide, methods=["POST"]),
            Route(f"{one}/withdraw", self.withdraw, methods=["POST"]),
        ]

    async def search(self, request: Request) -> Response:
        """List approvals, the newest first; `status=pending` is the inbox."""
        allow(request, "limit", "after", "order", "status", "older_than_s", *FILTERS)
        principal = approvals_reader(request)
        wanted = replace(
            await wanted_by(request, self._ports), status=choice(request, "status", STATUSES)
        )
        if older_s := integer(request, "older_than_s", 0, low=0, high=AGE_S_MAX):
            bound = self._ports.clock() - older_s * 1000
            before = wanted.created_before_ms
            wanted = replace(
                wanted, created_before_ms=bound if before is None else min(before, bound)
            )
        stretch = page(request, of="apr")
        found = await self._ports.store.read(approvals.search(principal.tenant, wanted, stretch))
        listed = shown_page(found, stretch, lambda row: row, lambda row: row.id)
        listed["data"] = await self._ports.store.read(showing(listed["data"]))
        return json_response(listed)

    async def follow(self, request: Request) -> Response:
        """Stream what waits and then what changes, or what changed since an earlier stream."""
        allow(request, "after", *FILTERS)
        principal = approvals_reader(request)
        wanted = await wanted_by(request, self._ports)
        media = accepted(request, EVENTS)
        seq = self._parsed(left_at(request))
        if request.method == "HEAD":
            return headers_of_a_stream(media)
        tail = ApprovalTail(self._ports.store, self._feeds, principal.tenant, wanted, seq)
        return TailResponse(tail, self._streams).response

    def _parsed(self, text: str | None) -> int:
        """Return the time of the last change that a client has seen, 0 if it begins."""
        if not text:
            return 0
        if not _SEQ.fullmatch(text):
            raise InvalidError(
                f"{text[:100]!r} is no position in this stream; send the id of the last event that"
                " you got, such as 1767225600000",
                code="bad_cursor",
            )
        if int(text) > self._ports.clock() + OVERLAP_MS:
            raise InvalidError(f"{text} has not come yet; it is a time", code="cursor_ahead")
        return int(text)

    async def get(self, request: Request) -> Response:
        """Show one approval, with what was said before it, and what the caller may answer."""
        allow(request)
        principal = approvals_reader(request)
        row = await self._ports.store.read(
            approvals.find(principal.tenant, request.path_params["approval_id"])
        )
        approval, entries = await self._ports.store.read(_beside(row))
        who = await known_approver(self._ports, principal)
        answers = _answers_of(row, principal, who)
        read = partial(context_of, entries, row.id)
        return json_response(
            {
                **approval,
                "context": read() if len(entries) <= ON_LOOP_MAX else await asyncio.to_thread(read),
                "answers": answers,
                "can_decide": bool(answers),
            }
        )

    async def decide(self, request: Request) -> Response:
        """Answer one question. The first answer counts; repeating one's own changes nothing."""
        allow(request)
        principal = caller(request, "approvals:decide")
        body, raw = await read_body(request, ApprovalDecision)
        approval_id = request.path_params["approval_id"]
        wish = asked(request, raw, approval_id, self._ports.clock(), personal=True)
        made = await self._deciding.decide(principal, approval_id, body, wish, Origin.of(request))
        return await self._response(made)

    async def withdraw(self, request: Request) -> Response:
        """Take a question back, which means no; twice changes nothing."""
        allow(request)
        principal = principal_of(request)
        if "approvals:decide" not in principal.scopes:
            principal.require("runs:write")
        body, raw = await read_optional(request, ApprovalWithdrawal)
        approval_id = request.path_params["approval_id"]
        wish = asked(request, raw, approval_id, self._ports.clock())
        made = await self._deciding.withdraw(
            principal, approval_id, body.reason, wish, Origin.of(request)
        )
        return await self._response(made)

    async def decide_many(self, request: Request) -> Response:
        """Answer many questions; what became of each stands in its place.

        Each for itself: then a repeated request goes on with what an interrupted one left undone,
        since a decision that was made already is simply shown again. Or all or none.
        """
        allow(request)
        principal = caller(request, "approvals:decide")
        body, raw = await read_body(request, ApprovalDecisions)
        wish = asked(request, raw, "decisions", self._ports.clock(), personal=True)
        if body.mode == "all":
            return await self._decide_all(request, principal, body, wish)
        made = await self._ports.store.write(keeping(wish))
        data = [await self._placed(request, principal, each) for each in body.decisions]
        return json_response({"data": data}, headers=made.headers())

    async def answer(
        self,
        principal: Principal,
        approval_id: str,
        body: ApprovalDecision,
        wish: Asked | None,
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> Made[Decided]:
        """Decide as this principal, who may have come without a key."""
        return await self._deciding.decide(principal, approval_id, body, wish, origin)

    async def _decide_all(
        self, request: Request, principal: Principal, body: ApprovalDecisions, wish: Asked | None
    ) -> Response:
        try:
            made = await self._deciding.decide_all(
                principal, body.decisions, wish, Origin.of(request)
            )
        except NoneDecidedError as error:
            error.shown = {
                "data": [
                    _place(each, problem=None if said is None else _told(request, each, said))
                    for each, said in zip(body.decisions, error.problems, strict=True)
                ]
            }
            raise
        rows = [decided.approval for decided in made.resource]
        approvals_shown = await self._ports.store.read(showing(rows))
        data = [
            _place(each, approval=approval)
            for each, approval in zip(body.decisions, approvals_shown, strict=True)
        ]
        return json_response({"data": data}, headers=made.headers())

    async def _placed(
        self, request: Request, principal: Principal, named: NamedDecision
    ) -> dict[str, Any]:
        """Return the approval as it was decided, or the problem, in one place of many."""
        try:
            made = await self._deciding.decide(
                principal, named.approval_id, named, None, Origin.of(request)
            )
        except MilepostError as error:
            return _place(named, problem=_told(request, named, error))
        return _place(named, approval=await shown(self._ports.store, made.resource.approval))

    async def _response(self, made: Made[Decided]) -> Response:
        approval = await shown(self._ports.store, made.resource.approval)
        return json_response(approval, headers=made.headers())


def _place(
    named: NamedDecision,
    *,
    approval: dict[str, Any] | None = None,
    problem: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {"approval_id": named.approval_id, "approval": approval, "problem": problem}


def _told(request: Request, named: NamedDecision, error: MilepostError) -> dict[str, Any]:
    """Return the problem that a request of its own would have been answered with."""
    return problem_body(
        error,
        instance=f"/v1/approvals/{named.approval_id}/decision",
        request_id=request.scope["state"]["request_id"],
    )


async def known_approver(ports: Ports, principal: Principal) -> Approver:
    """Return the principal as terms know people, with all keys of that person."""
    who = approver(principal)
    if who.subject is None:
        return who
    own_keys = await ports.store.read(keys.of_subject(principal.tenant, who.subject))
    return replace(who, own_keys=own_keys)


async def wanted_by(request: Request, ports: Ports) -> ApprovalFilter:
    """Return which approvals the query is after, whatever their status."""
    mine = flag(request, "mine", default=False)
    return ApprovalFilter(
        agent=words(request, "agent"),
        tool=words(request, "tool"),
        session_id=words(request, "session_id"),
        run_id=words(request, "run_id"),
        user=words(request, "user"),
        kind=choice(request, "kind", KINDS),
        created_after_ms=moment_ms(request, "created_after"),
        created_before_ms=moment_ms(request, "created_before"),
        mine=await known_approver(ports, principal_of(request)) if mine else None,
    )


def _answers_of(row: ApprovalRow, principal: Principal, who: Approver) -> list[str]:
    """Return what the caller may answer: a question of one's own has only a no, if so ruled."""
    may = bool({"approvals:decide", "admin"} & principal.scopes)
    if not may or row.status != "pending" or not row.asks(who):
        return []
    own = row.is_own(who)
    return [answer for answer in ANSWERS[row.kind] if not own or answer in REFUSALS]


def _beside(row: ApprovalRow) -> Work[tuple[dict[str, Any], list[Any]]]:
    (approval,) = yield from showing([row])
    entries = yield from log.read_all(row.tenant, row.run_id)
    return approval, entries
