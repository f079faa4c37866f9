"""`client.approvals`."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from milepost.client.shapes import Approval, ApprovalStatus, Decision, Page, paged, shaped
from milepost.client.transport import Transport, quoted


class ApprovalFilters(TypedDict, total=False):
    """Which approvals a list is to hold, and which stretch of it."""

    status: ApprovalStatus | None
    run_id: str | None
    agent: str | None
    tool: str | None
    session_id: str | None
    user: str | None
    limit: int | None
    after: str | None


class DecisionOptions(TypedDict, total=False):
    """What a decision may say besides yes or no. `arguments` replace those that were asked for."""

    comment: str | None
    arguments: Mapping[str, Any] | None
    digest: str | None


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
