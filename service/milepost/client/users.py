"""`client.users`: taking along and erasing all that there is of people, and how long it stays."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypedDict, Unpack

from milepost.client.foreign import ours
from milepost.client.shapes import Erasure, Page, RetentionRules, paged, shaped
from milepost.client.transport import Transport, if_version, quoted

POLL_S = 0.5


class KeptFor(TypedDict, total=False):
    """How many seconds things are kept; what is not named is kept for good."""

    runs_s: int | None
    events_s: int | None
    artifacts_s: int | None
    traces_s: int | None
    memories_s: int | None


class Users:
    """What is kept of people. All of it takes a key with the scope admin."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def erase(self, user: str, *, timeout_s: float | None = None) -> Erasure:
        """Erase all that there is of a user; with `timeout_s`, wait so long until it is gone.

        Raises `TimeoutError` where it is not: the erasure goes on.
        """
        begun = await self._transport.request("DELETE", f"/v1/users/{quoted(user)}")
        erasure = shaped(Erasure, begun)
        if timeout_s is None:
            return erasure
        async with asyncio.timeout(timeout_s):
            while erasure.status == "running":
                await asyncio.sleep(POLL_S)
                erasure = await self.erasure(erasure.id)
        return erasure

    def export(self, user: str) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield all that there is of a user, thing by thing: each has its `kind` and its `data`.

        Raises `UnavailableError` where the connection breaks: only from the beginning it is whole.
        """
        return self._transport.lines(f"/v1/users/{quoted(user)}/export")

    async def erasure(self, erasure_id: str) -> Erasure:
        """Return how far an erasure has come."""
        return shaped(Erasure, await self._transport.get(f"/v1/erasures/{quoted(erasure_id)}"))

    async def erasures(
        self, *, limit: int | None = None, after: str | None = None
    ) -> Page[Erasure]:
        """Return erasures, the newest first."""
        params = {"limit": limit, "after": after}
        return paged(Erasure, await self._transport.get("/v1/erasures", params))

    async def retention(self) -> RetentionRules:
        """Return how long things are kept."""
        return shaped(RetentionRules, await self._transport.get("/v1/retention"))

    async def keep(self, *, if_still: int | None = None, **kept: Unpack[KeptFor]) -> RetentionRules:
        """Say how long things are kept; with `if_still`, only if that is still the version."""
        answer = await self._transport.request(
            "PUT", "/v1/retention", body=kept, headers=if_version(if_still)
        )
        return shaped(RetentionRules, answer)

    async def storage(self) -> Mapping[str, Any]:
        """Return what takes the space, as the server tells it."""
        return ours(await self._transport.get("/v1/admin/storage"), "tables")
