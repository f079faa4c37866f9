"""`client.policies`."""

from collections.abc import Mapping
from typing import Any

from milepost.client.shapes import PolicyVerdict, StandingPolicy, shaped
from milepost.client.transport import Transport, if_version, quoted

_TENANT = "/v1/policies/tenant"


class Policies:
    """Rules of the tenant and of sessions, besides those of agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, session_id: str | None = None) -> StandingPolicy:
        """Return a session's policy, or the tenant's; it is None where there is none."""
        return shaped(StandingPolicy, await self._transport.get(_path(session_id)))

    async def put(
        self,
        policy: Mapping[str, Any],
        session_id: str | None = None,
        *,
        if_still: int | None = None,
    ) -> StandingPolicy:
        """Put another policy in its place; with `if_still`, only in that of this version."""
        answer = await self._transport.request(
            "PUT", _path(session_id), body={"policy": policy}, headers=if_version(if_still)
        )
        return shaped(StandingPolicy, answer)

    async def delete(self, session_id: str | None = None, *, if_still: int | None = None) -> None:
        """Remove the policy; with `if_still`, only in that version."""
        await self._transport.change("DELETE", _path(session_id), headers=if_version(if_still))

    async def check(
        self,
        agent: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        user: str | None = None,
        session_id: str | None = None,
    ) -> PolicyVerdict:
        """Return what would become of a call, and why; it is neither made nor counted."""
        body = {"agent": agent, "tool": tool, "arguments": dict(arguments or {})}
        asked = {**body, "user": user, "session_id": session_id}
        return shaped(PolicyVerdict, await self._transport.post("/v1/policies/check", asked))


def _path(session_id: str | None) -> str:
    return _TENANT if session_id is None else f"/v1/policies/sessions/{quoted(session_id)}"
