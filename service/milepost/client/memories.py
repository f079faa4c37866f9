"""`client.memories`."""

from collections.abc import AsyncGenerator, Mapping
from typing import TypedDict, Unpack

from milepost.client.foreign import ours
from milepost.client.shapes import Memory, Page, paged, shaped
from milepost.client.transport import Transport, filtered, if_version, quoted


class MemoryFields(TypedDict, total=False):
    """What a memory says."""

    subject: str
    predicate: str
    object: str
    content: str
    attributes: Mapping[str, str]


class NewMemoryFields(MemoryFields, total=False):
    """What a new memory says, and whose it is."""

    scope: str
    owner: str | None
    kind: str


class MemoryFilters(TypedDict, total=False):
    """Which memories a list is to hold, and which stretch of it; with `q` the best for words."""

    q: str | None
    scope: str | None
    owner: str | None
    kind: str | None
    user: str | None
    run_id: str | None
    session_id: str | None
    limit: int | None
    after: str | None
    order: str | None


class Memories:
    """What was learned of conversations."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[NewMemoryFields]) -> Memory:
        """Keep something in mind; what is known already is a person's word from then on."""
        return shaped(Memory, await self._transport.post("/v1/memories", fields))

    async def get(self, memory_id: str) -> Memory:
        """Return a memory."""
        return shaped(Memory, await self._transport.get(f"/v1/memories/{quoted(memory_id)}"))

    async def list(self, **filters: Unpack[MemoryFilters]) -> Page[Memory]:
        """Return memories, the newest first, or the best first where words are looked for."""
        return paged(Memory, await self._transport.get("/v1/memories", filtered(filters)))

    async def of_user(self, user: str) -> AsyncGenerator[Memory, None]:
        """Yield all that is known about a user, the newest first."""
        after = None
        while True:
            page = await self.list(user=user, limit=100, after=after)
            for memory in page.items:
                yield memory
            if (after := page.next_cursor) is None:
                return

    async def put(
        self, memory_id: str, *, if_still: int | None = None, **said: Unpack[MemoryFields]
    ) -> Memory:
        """Correct a memory; with `if_still`, only if that is still its version."""
        answer = await self._transport.request(
            "PUT", f"/v1/memories/{quoted(memory_id)}", body=said, headers=if_version(if_still)
        )
        return shaped(Memory, answer)

    async def delete(self, memory_id: str, *, if_still: int | None = None) -> None:
        """Forget a memory; with `if_still`, only in that version."""
        path = f"/v1/memories/{quoted(memory_id)}"
        await self._transport.change("DELETE", path, headers=if_version(if_still))

    async def erase(self, user: str) -> int:
        """Forget all that is known about a user; return how much that was."""
        answer = await self._transport.request("DELETE", "/v1/memories", params={"user": user})
        return int(ours(answer, "deleted")["deleted"])
