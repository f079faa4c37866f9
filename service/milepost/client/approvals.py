"""`client.approvals`."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypedDict, Unpack

from milepost.client.approval_changes import ChangePlace, Chosen
from milepost.client.following import Following
from milepost.client.foreign import listed, ours
from milepost.client.shapes import (
    Approval,
    ApprovalChange,
    ApprovalKind,
    ApprovalStatus,
    Decision,
    Page,
    paged,
    shaped,
)
from milepost.client.transport import Transport, quoted

REST_PAGE = 100


class FollowFilters(TypedDict, total=False):
    """Which approvals one is told of; `mine` are those that one may approve."""

    run_id: str | None
    agent: str | None
    tool: str | None
    session_id: str | None
    user: str | None
    kind: ApprovalKind | None
    created_after: str | None
    created_before: str | None
    mine: bool | None


class ApprovalFilters(FollowFilters, total=False):
    """Which approvals a list is to hold, and which stretch of it."""

    status: ApprovalStatus | None
    older_than_s: int | None
    limit: int | None
    after: str | None
    order: str | None


class DecisionOptions(TypedDict, total=False):
    """What a decision may say besides yes or no. `arguments` replace those that were asked for.

    `result` is what a call that happened has brought, and `remember` lets the tool be called
    without a question, such as `{"for": "session", "ttl_s": 3600, "arguments": "any"}`.
    """

    comment: str | None
    arguments: Mapping[str, Any] | None
    digest: str | None
    result: Any
    remember: Mapping[str, Any] | None


class Approvals:
    """The inbox of tool calls that wait for a person."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, **filters: Unpack[ApprovalFilters]) -> Page[Approval]:
        """Return approvals, the newest first."""
        return paged(Approval, await self._transport.get("/v1/approvals", filters))

    async def get(self, approval_id: str) -> Approval:
        """Return an approval as it is now."""
        return shaped(Approval, await self._transport.get(f"/v1/approvals/{quoted(approval_id)}"))

    async def follow(
        self, *, after: str | None = None, **filters: Unpack[FollowFilters]
    ) -> AsyncGenerator[ApprovalChange, None]:
        """Yield all that waits, and then each change, or what changed since `after`; without end.

        Broken connections are mended on the way: nothing is lost and nothing comes twice.
        """
        place = ChangePlace(after)
        stream = Following(self._transport, "/v1/approvals/events", Chosen(filters), place)
        async with aclosing(stream.events()) as frames:
            async for told in frames:
                for change in told.changes:
                    yield change
                if told.rest_after:
                    async with aclosing(self._rest(place, told.rest_after, filters)) as rest:
                        async for change in rest:
                            yield change

    async def decide(
        self, approval_id: str, decision: Decision, **options: Unpack[DecisionOptions]
    ) -> Approval:
        """Answer; the first answer counts, and a later one raises `ApiError` with it inside."""
        said = {name: value for name, value in options.items() if value is not None}
        path = f"/v1/approvals/{quoted(approval_id)}/decision"
        return shaped(Approval, await self._transport.post(path, {"decision": decision, **said}))

    async def decide_all(self, decisions: Sequence[Mapping[str, Any]]) -> Sequence[Approval]:
        """Make several decisions together, or none: then `ApiError` says why, place by place.

        Each is a mapping of `approval_id`, `decision`, and what else `decide` takes.
        """
        body = {"mode": "all", "decisions": [dict(each) for each in decisions]}
        made = await self._transport.post("/v1/approvals/decisions", body)
        return [shaped(Approval, ours(each, "approval")["approval"]) for each in listed(made)]

    async def withdraw(self, approval_id: str, *, reason: str | None = None) -> Approval:
        """Take a question back, which means no."""
        path = f"/v1/approvals/{quoted(approval_id)}/withdraw"
        said = {} if reason is None else {"reason": reason}
        return shaped(Approval, await self._transport.post(path, said))

    async def _rest(
        self, place: ChangePlace, after: str, filters: FollowFilters
    ) -> AsyncGenerator[ApprovalChange, None]:
        """Yield what waits besides, where it is more than a snapshot holds."""
        cursor: str | None = after
        while cursor is not None:
            page = await self.list(**filters, status="pending", limit=REST_PAGE, after=cursor)
            cursor = page.next_cursor
            for change in place.waiting(list(page.items), whole=cursor is None):
                yield change
