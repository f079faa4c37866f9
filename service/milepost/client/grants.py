"""`client.grants`."""

from milepost.client.shapes import Grant, Page, paged, shaped
from milepost.client.transport import Transport, quoted


class Grants:
    """What people have allowed for a session."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        session_id: str | None = None,
        tool: str | None = None,
        active: bool | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[Grant]:
        """Return grants, the newest first; `active` ones hold just now."""
        params = {
            "session_id": session_id,
            "tool": tool,
            "active": None if active is None else str(active).lower(),
            "limit": limit,
            "after": after,
        }
        return paged(Grant, await self._transport.get("/v1/grants", params))

    async def get(self, grant_id: str) -> Grant:
        """Return a grant as it is now."""
        return shaped(Grant, await self._transport.get(f"/v1/grants/{quoted(grant_id)}"))

    async def revoke(self, grant_id: str) -> Grant:
        """Take a grant back: people are asked again. Twice changes nothing."""
        answer = await self._transport.request("DELETE", f"/v1/grants/{quoted(grant_id)}")
        return shaped(Grant, answer)
