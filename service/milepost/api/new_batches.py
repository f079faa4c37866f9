"""Making batches: what `POST /v1/batches` takes, as one JSON body or as an upload of lines."""

import asyncio
from typing import Annotated, Any

import orjson
from pydantic import Field, ValidationError
from starlette.requests import Request

from milepost.api.accepting import JSON, LINES
from milepost.api.batch_acts import BatchActs
from milepost.api.batch_items import ITEMS_MAX, Items
from milepost.api.bodies import loads, parse, read_bytes, require_media
from milepost.api.known_agents import AgentVersion
from milepost.api.new_runs import AgentName, RunOptions, queued_event
from milepost.api.paging import allow, metadata, words
from milepost.api.replays import Made, asked, once
from milepost.api.requests import principal_of, trace_of
from milepost.api.uploads import Uploads, read_lines
from milepost.core.codec import encode
from milepost.core.errors import InvalidError
from milepost.runtime.journal import Ports
from milepost.runtime.spec import first_fault
from milepost.store import agents, batches, idempotency
from milepost.store.batches import BatchRow, NewBatch
from milepost.store.idempotency import Asked

CONCURRENCY_MAX = 1_000
CONCURRENCY_DEFAULT = 10
PRIORITY_DEFAULT = -10
"""Below a single run's, which is 0: whoever waits for one does not wait for thousands."""
# In a query; metadata stands there as `metadata[key]`, and what has no short form not at all.
_IN_QUERY = ("agent", "concurrency", "user", "deadline_s", "cache", "priority")


class BatchOptions(RunOptions):
    """What a batch is made of besides its items; each run option holds for each of its runs."""

    agent: AgentName
    concurrency: Annotated[int, Field(ge=1, le=CONCURRENCY_MAX)] = CONCURRENCY_DEFAULT
    priority: Annotated[int, Field(ge=-100, le=100)] = PRIORITY_DEFAULT


class BatchCreate(BatchOptions):
    """What `POST /v1/batches` takes as JSON. Items are checked one by one: see `BatchItem`."""

    items: Annotated[list[Any], Field(min_length=1, max_length=ITEMS_MAX)]


class NewBatches:
    """Makes batches. What takes long is done in a thread, so that nobody else waits for it."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._uploads = Uploads()

    async def create(self, request: Request) -> Made[BatchRow]:
        """Keep the batch that the request asks for, or find what made it before."""
        if require_media(request, JSON, LINES) == JSON:
            return await self._from_json(request)
        return await self._from_lines(request)

    async def _from_json(self, request: Request) -> Made[BatchRow]:
        allow(request)
        raw = await read_bytes(request)
        body = parse(BatchCreate, await asyncio.to_thread(loads, raw))
        items = Items(body.metadata)
        await asyncio.to_thread(items.add_all, body.items)
        return await self._made(request, body, items, raw)

    async def _from_lines(self, request: Request) -> Made[BatchRow]:
        allow(request, *_IN_QUERY, "metadata")
        options = _options_in_query(request)
        await self._refuse_early(request, options)
        items = Items(options.metadata)

        async def take(lines: list[bytes]) -> None:
            await asyncio.to_thread(items.add_lines, lines)

        with self._uploads.hold() as take_room:
            digest = await read_lines(request, take, take_room)
            # The query says what is to be done, too: with another one it is another request.
            raw = request.url.query.encode() + digest
            return await self._made(request, options, items, raw)

    async def _refuse_early(self, request: Request, options: BatchOptions) -> None:
        """Refuse what no item can mend before they are sent; but not what may be a repetition."""
        principal = principal_of(request)
        principal.acting_as(options.user)
        if "idempotency-key" not in request.headers:
            await self._ports.store.read(agents.find(principal.tenant, options.agent))

    async def _made(
        self, request: Request, options: BatchOptions, items: Items, raw: bytes
    ) -> Made[BatchRow]:
        principal, ports = principal_of(request), self._ports
        chunks = items.chunks()
        batch_id = ports.new_id("bat")
        wish = asked(request, raw, batch_id, ports.clock())
        if earlier := await self._earlier(wish):
            row = await ports.store.read(batches.find(principal.tenant, earlier))
            return Made(row, replayed=True)
        found = await ports.store.read(agents.find(principal.tenant, options.agent))
        agent = AgentVersion(found.id, found.name, found.version)
        batch = self._new_batch(request, options, batch_id, agent, items.total)
        return await ports.store.write(
            once(
                wish,
                BatchActs(ports, principal).create(batch, chunks),
                lambda earlier: batches.find(principal.tenant, earlier),
            )
        )

    async def _earlier(self, wish: Asked | None) -> str | None:
        """Return the batch that the same request made, maybe when its agent was still there."""
        return await self._ports.store.write(idempotency.recall(wish)) if wish else None

    def _new_batch(
        self,
        request: Request,
        options: BatchOptions,
        batch_id: str,
        agent: AgentVersion,
        total: int,
    ) -> NewBatch:
        principal = principal_of(request)
        user = principal.acting_as(options.user)
        deadline_s, trace = options.deadline_s, trace_of(request)
        return NewBatch(
            id=batch_id,
            tenant=principal.tenant,
            agent_id=agent.id,
            agent=agent.name,
            agent_version=agent.version,
            user=user,
            concurrency=options.concurrency,
            lane=options.priority,
            deadline_after_ms=None if deadline_s is None else round(deadline_s * 1000),
            metadata=orjson.dumps(options.metadata).decode(),
            scopes=orjson.dumps(sorted(principal.scopes)).decode(),
            trace_parent=trace.header() if trace else None,
            queued_event=encode(queued_event(options, agent, user)).decode(),
            total=total,
            created_ms=self._ports.clock(),
            made_by=principal.id,
        )


def _options_in_query(request: Request) -> BatchOptions:
    given = {name: said for name in _IN_QUERY if (said := words(request, name)) is not None}
    try:
        return BatchOptions.model_validate({**given, "metadata": metadata(request)}, strict=False)
    except ValidationError as error:
        where, fault = first_fault(error)
        raise InvalidError(f"{'.'.join(where)}: {fault}", code="bad_query") from error
