"""`client.approvals`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from milepost.client.shapes import (
    Approval,
    ApprovalKind,
    ApprovalStatus,
    Decision,
    Page,
    paged,
    shaped,
)
from milepost.client.transport import Transport, quoted


class ApprovalFilters(TypedDict, total=False):
    """Which approvals a list is to hold, and which stretch of it."""

    status: ApprovalStatus | None
    run_id: str | None
    agent: str | None
    tool: str | None
    session_id: str | None
    user: str | None
    kind: ApprovalKind | None
    created_after: str | None
    created_before: str | None
    older_than_s: int | None
    mine: bool | None
    limit: int | None
    after: str | None


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
        return [shaped(Approval, each["approval"]) for each in made["data"]]

    async def withdraw(self, approval_id: str, *, reason: str | None = None) -> Approval:
        """Take a question back, which means no."""
        path = f"/v1/approvals/{quoted(approval_id)}/withdraw"
        said = {} if reason is None else {"reason": reason}
        return shaped(Approval, await self._transport.post(path, said))
