"""`client.batches`."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import httpx2
import orjson

from milepost.client.following import Following
from milepost.client.members import made
from milepost.client.shapes import (
    Batch,
    BatchProgress,
    BatchResult,
    BatchStatus,
    Page,
    paged,
    shaped,
)
from milepost.client.transport import Params, Transport, as_json, filtered, quoted

RESULTS_PAGE = 100
_LAST = frozenset({"batch.completed", "batch.cancelled"})

Item = str | Mapping[str, Any]
"""A run's input, or a mapping of `input`, and `metadata` and `custom_id` where there are any."""


class UploadOptions(TypedDict, total=False):
    """What a batch may be given besides its agent and its items."""

    concurrency: int
    metadata: Mapping[str, str]
    user: str
    priority: int
    deadline_s: float
    cache: bool


class BatchOptions(UploadOptions, total=False):
    """What only a batch in one body may be given."""

    response_format: Mapping[str, Any]


class BatchFilters(TypedDict, total=False):
    """Which batches a list is to hold, and which stretch of it."""

    status: BatchStatus | None
    agent: str | None
    user: str | None
    made_by: str | None
    metadata: Mapping[str, str]
    created_after: str | None
    created_before: str | None
    limit: int | None
    after: str | None
    order: str | None


class Batches:
    """Make many runs at once, follow how far they are, read what became of each."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self, agent: str, items: Sequence[Item], **options: Unpack[BatchOptions]
    ) -> Batch:
        """Make a batch of an agent, by name or id, in one body of at most 1 MiB; see `upload`."""
        body = {"agent": agent, "items": [_whole(item) for item in items], **options}
        return shaped(Batch, await self._transport.post("/v1/batches", body))

    async def upload(
        self, agent: str, items: Iterable[Item], **options: Unpack[UploadOptions]
    ) -> Batch:
        """Make a batch of an agent, by name or id, of as many items as a batch may have."""
        lines = b"".join(as_json(_whole(item)) + b"\n" for item in items)
        query = filtered({"agent": agent, **options})
        answer = await self._transport.request("POST", "/v1/batches", params=query, lines=lines)
        return shaped(Batch, answer)

    async def get(self, batch_id: str) -> Batch:
        """Return a batch as it is now."""
        return shaped(Batch, await self._transport.get(f"/v1/batches/{quoted(batch_id)}"))

    async def list(self, **filters: Unpack[BatchFilters]) -> Page[Batch]:
        """Return batches, the newest first."""
        return paged(Batch, await self._transport.get("/v1/batches", filtered(filters)))

    async def cancel(self, batch_id: str, reason: str | None = None) -> Batch:
        """Let no other item begin, and stop those under way; what is over stays as it is."""
        path = f"/v1/batches/{quoted(batch_id)}/cancel"
        return shaped(Batch, await self._transport.post(path, {"reason": reason}))

    async def delete(self, batch_id: str) -> None:
        """Erase a batch that is over; its runs stay."""
        await self._transport.change("DELETE", f"/v1/batches/{quoted(batch_id)}")

    def stream(
        self, batch_id: str, *, after: str | None = None
    ) -> AsyncGenerator[BatchProgress, None]:
        """Yield how far a batch is, now and whenever that changes, until it is over.

        Broken connections are mended on the way.
        """
        path = f"/v1/batches/{quoted(batch_id)}/events"
        return Following(self._transport, path, _Progress(), _Place(after)).events()

    async def wait(self, batch_id: str, *, timeout_s: float | None = None) -> Batch:
        """Return the batch once it is over. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_s):
            async for _ in self.stream(batch_id):
                pass
            return await self.get(batch_id)

    async def results(
        self, batch_id: str, *, done: bool = False
    ) -> AsyncGenerator[BatchResult, None]:
        """Yield what became of each item, in their order; with `done` only of those over."""
        path = f"/v1/batches/{quoted(batch_id)}/results"
        after: str | None = None
        while True:
            params = {"limit": RESULTS_PAGE, "after": after, "done": done}
            page = paged(BatchResult, await self._transport.get(path, params))
            for result in page.items:
                yield result
            if not page.has_more:
                return
            after = page.next_cursor


class _Progress:
    """All of a batch's stream."""

    @property
    def params(self) -> Params:
        return {}

    def has(self, _: BatchProgress) -> bool:
        return True

    def ends_at(self, progress: BatchProgress) -> bool:
        return progress.type in _LAST


class _Place:
    """The last id seen: each is a higher number than the one before."""

    def __init__(self, after: str | None) -> None:
        self.id = after

    def take(self, frame: httpx2.ServerSentEvent) -> BatchProgress | None:
        if not frame.id or int(frame.id) <= int(self.id or 0):
            return None
        self.id = frame.id
        said = orjson.loads(frame.data)
        data = said["data"]
        told = {name: said.get(name) for name in ("type", "batch_id", "time")}
        far = {name: data.get(name) for name in ("status", "done", "counts", "usage")}
        total = data["counts"]["total"]
        return made(BatchProgress, {**told, **far, "total": total, "id": frame.id})


def _whole(item: Item) -> Mapping[str, Any]:
    return {"input": item} if isinstance(item, str) else item
