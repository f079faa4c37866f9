"""The one place that builds things."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from milepost.api.access import (
    DEFAULT_TENANT,
    LOOPBACK_HOSTS,
    Access,
    KeyAccess,
    OpenUntilKeyed,
)
from milepost.api.approvals_shown import shown
from milepost.api.request_limit import RequestLimit
from milepost.api.service import Api, ApiParts, contract
from milepost.api.stream import Streams
from milepost.console.console import Console
from milepost.core.errors import ConfigurationError, ToolValidationError
from milepost.declarations import (
    declare_tools,
    listed,
    load_agents,
    load_prices,
    load_providers,
    load_tools,
    tell_unwatched,
    watched_files,
)
from milepost.guardrails.verdicts import Rail
from milepost.live.hub import Hub
from milepost.live.redis_link import RedisLink
from milepost.providers import direct
from milepost.providers.building import Models, open_models, share
from milepost.providers.cache import ReplyCache
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.cache_redis import RedisCache
from milepost.providers.cache_redis import connect as connect_redis
from milepost.providers.cache_signed import SignedCache
from milepost.providers.caching import Caching
from milepost.providers.demo import Demo
from milepost.providers.direct import Direct
from milepost.providers.embeddings import open_embeddings
from milepost.providers.pricing import FREE, Pricing
from milepost.providers.redis_asking import Asking
from milepost.providers.windows import InProcessWindows
from milepost.providers.windows_redis import RedisWindows
from milepost.runtime import notices
from milepost.runtime.agents_file import apply_agents
from milepost.runtime.artifacts import Shelf
from milepost.runtime.background import Background, end
from milepost.runtime.budgets import TenantBudgets
from milepost.runtime.clock import Ids, now_ms
from milepost.runtime.confirmation_parser import load_parser
from milepost.runtime.embedding_bills import EmbeddingBills
from milepost.runtime.journal import Ports, no_export
from milepost.runtime.links import Links
from milepost.runtime.means import Lease, Means
from milepost.runtime.poll import Poller
from milepost.runtime.python_rails import load_rails
from milepost.runtime.recalling import StoredRecall
from milepost.runtime.result_cache import ResultCache
from milepost.runtime.secrets import Vault
from milepost.runtime.stored_children import StoredChildren
from milepost.runtime.stored_lessons import StoredLessons
from milepost.runtime.stored_notes import StoredNotes
from milepost.runtime.stored_rates import StoredRates
from milepost.runtime.stored_secrets import StoredSecrets
from milepost.runtime.stored_stashes import StoredStashes
from milepost.runtime.stored_transactions import StoredTransactions
from milepost.runtime.tenant_permissions import TenantPermissions
from milepost.runtime.tenant_policies import TenantPolicies
from milepost.runtime.toolsets import Toolsets
from milepost.runtime.vectors import Vectors
from milepost.runtime.webhook_messages import Messages
from milepost.settings import Settings, flag, variable
from milepost.store import keys, lockfile, migrate
from milepost.store.address import Address, SqliteAddress, parse_address
from milepost.store.blobs import DirectoryBlobs
from milepost.store.opening import open_stores, open_thread_store
from milepost.store.store import Store
from milepost.telemetry.database_up import DatabaseUp
from milepost.telemetry.export import Exporter
from milepost.telemetry.logs import mask
from milepost.telemetry.metrics import Metrics
from milepost.telemetry.redis_up import RedisUp
from milepost.telemetry.temporal_up import TemporalUp
from milepost.tools import Invoker, ToolProcesses, ToolThreads
from milepost.tools.egress import open_egress
from milepost.tools.reload import ReloadedTools
from milepost.tools.toolbox.choosing import toolbox
from milepost.tools.toolbox.remembering import Notes
from milepost.tools.tools_file import Outside
from milepost.worker.courier import Courier, Post
from milepost.worker.embedder import Embedder
from milepost.worker.eraser import Eraser
from milepost.worker.keeper import Keeper
from milepost.worker.pump import Pump
from milepost.worker.scheduler import Scheduler
from milepost.worker.scribe import Scribe
from milepost.worker.shifts import BY_SQL, Dispatch, Shifts, Terms
from milepost.worker.slices import slice_of


@dataclass(frozen=True, slots=True)
class Process:
    """A running process: what it serves, what it works on, and how it is told to stop.

    `died` is done when a part that the process cannot do without has ended by itself.
    """

    app: Api
    shifts: Shifts
    streams: Streams
    address: Address
    open_mode: bool
    died: asyncio.Future[str]

    def drain(self) -> None:
        """Take nothing new, end the streams, and hand back what is in hand."""
        self.app.drain()
        self.streams.drain()
        self.shifts.drain()


@asynccontextmanager
async def process(settings: Settings) -> AsyncIterator[Process]:
    """Build a process, keep it running, and take it down in order.

    Raises `ConfigurationError` for settings that cannot work, and if it would serve other machines
    without knowing its callers.
    """
    address = parse_address(settings.database_url)
    async with AsyncExitStack() as stack:
        stack.enter_context(lockfile.held(address))
        await asyncio.to_thread(migrate.prepare, address, may_migrate=settings.migrate)
        hub, metrics = Hub(), Metrics()
        asking, store = await stack.enter_async_context(
            open_stores(
                address,
                pool_max=settings.pool_max,
                queue_max=settings.queue_max,
                told=DatabaseUp(metrics),
            )
        )
        redis_up = RedisUp(metrics) if settings.redis_url else None
        background = Background()
        stack.push_async_callback(background.close)
        background.keep(*_tasks(asking, store, hub, _link(settings, hub, redis_up), address))
        exporter = _exporter(settings, metrics)
        if exporter:
            stack.push_async_callback(asyncio.to_thread, exporter.close)
        blobs = DirectoryBlobs(Path(settings.artifacts_dir))
        if settings.slots:  # Who drives no runs keeps nothing: it may only read there.
            await asyncio.to_thread(blobs.require_writable)
        export = exporter.export if exporter else no_export
        ports = Ports(store, hub, now_ms, Ids(), metrics, Shelf(store, blobs), export)
        equipment = await stack.enter_async_context(
            _equipment(settings, ports, background, redis_up)
        )
        known = load_agents(
            settings, equipment.toolsets.installed, equipment.models.catalog, equipment.rails
        )
        await apply_agents(DEFAULT_TENANT, known, ports)
        access = await _access(settings, asking)
        shifts = Shifts(
            _terms(settings, address),
            ports,
            partial(_means, settings, ports, equipment),
            lambda: open_thread_store(address),
            dispatch=await stack.enter_async_context(_dispatch(settings, ports)),
        )
        asked = replace(ports, store=asking, shelf=Shelf(asking, blobs))
        limit = await stack.enter_async_context(_request_limit(settings, redis_up))
        parts = replace(
            _api_parts(settings, asked, equipment, shifts, access, exporter), limit=limit
        )
        working = asyncio.create_task(shifts.run(), name="the worker")
        background.keep(
            working, _pump(settings, ports), _scheduler(settings, ports),
            _courier(ports, equipment.post), _scribe(settings, ports),
            *_keepers(settings, ports, equipment.cache),
        )  # fmt: skip
        yield Process(
            Api(parts),
            shifts,
            parts.streams,
            address,
            open_mode=isinstance(access, OpenUntilKeyed),
            died=background.died,
        )
        shifts.drain()
        await asyncio.wait({working}, timeout=settings.drain_s + 5)


@dataclass(frozen=True, slots=True)
class _Equipment:
    """What a process's worker and its API both work with."""

    vault: Vault
    secrets: StoredSecrets
    post: Post
    budgets: TenantBudgets
    cache: ReplyCache
    models: Models
    pricing: Pricing
    vectors: Vectors | None
    toolsets: Toolsets
    permissions: TenantPermissions
    policies: TenantPolicies
    threads: ToolThreads
    processes: ToolProcesses
    rails: Mapping[str, Rail]


@asynccontextmanager
async def _equipment(
    settings: Settings, ports: Ports, background: Background, redis_up: RedisUp | None
) -> AsyncIterator[_Equipment]:
    store, vault = ports.store, _vault(settings)
    secrets = StoredSecrets(store, vault)
    budgets = TenantBudgets(store, clock=now_ms, new_id=ports.new_id)
    async with AsyncExitStack() as stack:
        post = await stack.enter_async_context(_post(settings, store, vault))
        cache = await stack.enter_async_context(_cache(settings, redis_up))
        models = await stack.enter_async_context(_models(settings, cache, redis_up))
        pricing = await _pricing(settings, models)
        bills = EmbeddingBills(store, now_ms, pricing, budgets)
        vectors = await stack.enter_async_context(_vectors(settings, store, bills))
        notes = StoredNotes(store, now_ms, Ids(), vectors)
        toolsets = await stack.enter_async_context(
            _toolsets(settings, store, secrets, background, notes)
        )
        threads, processes = await stack.enter_async_context(_rooms(settings.tool_threads))
        yield _Equipment(
            vault=vault,
            secrets=secrets,
            post=post,
            budgets=budgets,
            cache=cache,
            models=models,
            pricing=pricing,
            vectors=vectors,
            toolsets=toolsets,
            permissions=TenantPermissions(store, clock=now_ms),
            policies=TenantPolicies(store, clock=now_ms),
            threads=threads,
            processes=processes,
            rails=load_rails(listed(settings.guardrails), threads),
        )


def _means(settings: Settings, ports: Ports, equipment: _Equipment, lease: Lease) -> Means:
    """Return what a worker drives runs with while it holds the lease."""
    return Means(
        ports=ports,
        providers=equipment.models.catalog,
        tools=equipment.toolsets.installed,
        invoker=Invoker(
            equipment.threads,
            may_start=lease.check,
            on_left=notices.tool_left,
            processes=equipment.processes,
            find_secret=ports.store.outlasting(equipment.secrets.find),
        ),
        pricing=equipment.pricing,
        lease=lease,
        drain_s=settings.drain_s,
        content=settings.capture_content,
        tools_of=equipment.toolsets.of,
        permissions_of=ports.store.outlasting(equipment.permissions.of),
        results=ResultCache(equipment.cache),
        budgets=equipment.budgets,
        chains=equipment.models.chains,
        children=StoredChildren(ports),
        stashes=StoredStashes(ports.store),
        rails=equipment.rails,
        standing_of=ports.store.outlasting(equipment.policies.of),
        rates=StoredRates(ports.store),
        transactions=StoredTransactions(ports.store),
        recall=StoredRecall(ports.store, now_ms, equipment.vectors),
        lessons=StoredLessons(ports.store, now_ms, ports.new_id),
    )


def _api_parts(
    settings: Settings,
    ports: Ports,
    equipment: _Equipment,
    shifts: Shifts,
    access: Access,
    exporter: Exporter | None,
) -> ApiParts:
    return ApiParts(
        ports=ports,
        streams=Streams(),
        toolsets=equipment.toolsets,
        permissions=equipment.permissions,
        budgets=equipment.budgets,
        providers=equipment.models.catalog,
        cache=equipment.cache,
        rails=frozenset(equipment.rails),
        access=access,
        vault=equipment.vault,
        pricing=equipment.pricing,
        policies=equipment.policies,
        links=equipment.post.messages.links,
        guard=equipment.post.egress.guard,
        slots=settings.slots,
        busy=lambda: shifts.busy,
        leased=lambda: shifts.leased,
        parser=load_parser(settings.confirmations),
        exporter=exporter,
        vectors=equipment.vectors,
        service_name=settings.otel_service_name,
        kept_max_s=settings.kept_max_s,
        pages=Console(contract).routes if settings.console else (),
    )


@asynccontextmanager
async def _vectors(
    settings: Settings, store: Store, bills: EmbeddingBills
) -> AsyncIterator[Vectors | None]:
    """Yield what finds memories by their meaning, where a model for that is named."""
    declared = load_providers(settings) if settings.embeddings else {}
    async with open_embeddings(settings.embeddings, declared) as embeddings:
        if embeddings is None:
            yield None
            return
        vectors = Vectors(store, embeddings, bills)
        embedding = asyncio.create_task(
            Embedder(vectors, embeddings.model).run(), name="the embedder"
        )
        try:
            yield vectors
        finally:
            await end(embedding)


@asynccontextmanager
async def _toolsets(
    settings: Settings, store: Store, secrets: StoredSecrets, background: Background, notes: Notes
) -> AsyncIterator[Toolsets]:
    """Yield the tools of everybody, and end what they hold open."""
    async with (
        open_egress(listed(settings.egress_allow)) as egress,
        AsyncExitStack() as held,
    ):
        registry = load_tools(settings)
        root = Path(settings.files_root) if settings.files_root else None
        try:
            registry.add(*toolbox(listed(settings.toolbox), egress, root, notes))
        except ToolValidationError as error:
            raise ConfigurationError(f"the toolbox: {error}") from error
        await declare_tools(settings, registry, Outside(egress, os.environ, held))
        tell_unwatched(settings)
        toolsets = Toolsets(registry, store, egress, secrets, clock=now_ms)
        held.push_async_callback(toolsets.close)
        if specs := watched_files(settings):
            reloaded = ReloadedTools(specs, registry)
            toolsets.install(reloaded.load())
            watching = asyncio.create_task(reloaded.watch(toolsets.install), name="the watch")
            background.keep(watching)
        yield toolsets


def _vault(settings: Settings) -> Vault:
    key = settings.secret_key
    return Vault(key.get_secret_value() if key else None)


async def _access(settings: Settings, store: Store) -> Access:
    """Ask for keys as soon as there are any; without, serve nobody but this machine."""
    if await store.read(keys.exist()):
        return KeyAccess(store, now_ms)
    if settings.host not in LOOPBACK_HOSTS:
        raise ConfigurationError(
            f"{settings.host} is open to other machines, and there are no API keys: create one"
            " with `milepost keys create`, or bind to 127.0.0.1",
            code="no_keys",
        )
    return OpenUntilKeyed(store, now_ms)


def _tasks(
    asking: Store, store: Store, hub: Hub, link: RedisLink | None, address: Address
) -> Iterator[asyncio.Task[None]]:
    for each in {asking, store}:  # One and the same where there is one connection.
        yield asyncio.create_task(each.run(), name="the store")
    if link:
        yield asyncio.create_task(link.run(), name="the link to Redis")
    if not isinstance(address, SqliteAddress):
        poller = Poller(store, hub, lambda: link is not None and link.alive)
        yield asyncio.create_task(poller.run(), name="the poller")


def _pump(settings: Settings, ports: Ports) -> asyncio.Task[None]:
    pump = Pump(ports, queue_max=settings.queue_max)
    return asyncio.create_task(pump.run(), name="the pump")


def _scheduler(settings: Settings, ports: Ports) -> asyncio.Task[None]:
    scheduler = Scheduler(ports, queue_max=settings.queue_max)
    return asyncio.create_task(scheduler.run(), name="the scheduler")


@asynccontextmanager
async def _post(settings: Settings, store: Store, vault: Vault) -> AsyncIterator[Post]:
    """Give what webhooks are told with: what an endpoint keeps open, no tool has to wait for."""
    links = Links(vault, settings.public_url)
    messages = Messages(store, links, partial(shown, store), settings.public_url)
    async with open_egress(listed(settings.egress_allow)) as egress:
        yield Post(messages, vault, egress)


def _terms(settings: Settings, address: Address) -> Terms:
    alone = isinstance(address, SqliteAddress)
    return Terms(settings.slots, settings.lease_s, settings.sweep_s, alone)


@asynccontextmanager
async def _dispatch(settings: Settings, ports: Ports) -> AsyncIterator[Dispatch]:
    """Yield who says which run is next."""
    if settings.dispatcher == "sql":
        yield BY_SQL
        return
    try:
        from milepost.dispatch.temporal import (  # noqa: PLC0415 - optional
            Room,
            Temporal,
            TemporalAddress,
        )
    except ModuleNotFoundError as error:
        if error.name != "temporalio":
            raise
        raise ConfigurationError(
            "the dispatcher 'temporal' needs its SDK, which is not installed:"
            " pip install 'milepost[temporal]'"
        ) from error
    temporal = Temporal(
        TemporalAddress(
            settings.temporal_address, settings.temporal_namespace, settings.temporal_task_queue
        ),
        Room(settings.slots, settings.drain_s, settings.temporal_grace_s),
        partial(slice_of, ports),
        chime=ports.hub.chime,
        on_change=TemporalUp(ports.metrics),
    )
    async with temporal.connected():
        yield Dispatch(temporal, temporal.announce)


async def _pricing(settings: Settings, models: Models) -> Pricing:
    own = load_prices(settings, models.catalog)
    pricing = Pricing(models.base_urls, own=own, free=FREE | models.free)
    await asyncio.to_thread(pricing.load)
    return pricing


def _courier(ports: Ports, post: Post) -> asyncio.Task[None]:
    return asyncio.create_task(Courier(ports, post).run(), name="the courier")


def _scribe(settings: Settings, ports: Ports) -> asyncio.Task[None]:
    scribe = Scribe(ports, queue_max=settings.queue_max)
    return asyncio.create_task(scribe.run(), name="the scribe")


def _keepers(settings: Settings, ports: Ports, cache: ReplyCache) -> Iterator[asyncio.Task[None]]:
    kept_max_s = settings.kept_max_s
    kept_max_ms = None if kept_max_s is None else round(kept_max_s * 1000)
    keeper = Keeper(ports, kept_max_ms=kept_max_ms)
    yield asyncio.create_task(Eraser(ports, cache).run(), name="the eraser")
    yield asyncio.create_task(keeper.run(), name="the keeper")


@asynccontextmanager
async def _rooms(threads_max: int) -> AsyncIterator[tuple[ToolThreads, ToolProcesses]]:
    """Give the threads and the processes in which tools run."""
    threads, processes = ToolThreads(threads_max), ToolProcesses()
    try:
        yield threads, processes
    finally:
        threads.close()
        await processes.close()


def _link(settings: Settings, hub: Hub, redis_up: RedisUp | None) -> RedisLink | None:
    if settings.redis_url is None or redis_up is None:
        return None
    try:
        hub.link = link = RedisLink(settings.redis_url, hub, on_change=redis_up.link)
    except ValueError as error:
        raise ConfigurationError(
            f"{flag('redis_url')} ({variable('redis_url')}) cannot be {mask(settings.redis_url)!r}:"
            f" {error}; write it as redis://host:port/0"
        ) from error
    return link


def _exporter(settings: Settings, metrics: Metrics) -> Exporter | None:
    if settings.otlp_endpoint is None:
        return None
    return Exporter(
        settings.otlp_endpoint,
        service_name=settings.otel_service_name,
        content=settings.capture_content,
        on_dropped=metrics.count_dropped_spans,
    )


@asynccontextmanager
async def _cache(settings: Settings, redis_up: RedisUp | None) -> AsyncIterator[ReplyCache]:
    if settings.redis_url is None or redis_up is None:
        yield InProcessCache()
        return
    redis, key = connect_redis(settings.redis_url), settings.secret_key
    try:
        shared = RedisCache(redis, on_change=redis_up.cache)
        yield SignedCache(shared, key.get_secret_value()) if key else shared
    finally:
        await redis.aclose()


@asynccontextmanager
async def _request_limit(
    settings: Settings, redis_up: RedisUp | None
) -> AsyncIterator[RequestLimit | None]:
    """Yield what counts the requests of keys, all processes together where there is a Redis."""
    if settings.requests_per_minute is None:
        yield None
        return
    counting = InProcessWindows()
    if settings.redis_url is None or redis_up is None:
        yield RequestLimit(counting, settings.requests_per_minute)
        return
    redis = connect_redis(settings.redis_url)
    try:
        shared = RedisWindows(redis, Asking(on_change=redis_up.requests), counting)
        yield RequestLimit(shared, settings.requests_per_minute)
    finally:
        await redis.aclose()


@asynccontextmanager
async def _models(
    settings: Settings, cache: ReplyCache, redis_up: RedisUp | None
) -> AsyncIterator[Models]:
    """Yield the providers: those of the file, of vendors with a key, and our own."""
    demo = Caching(Demo(settings.demo_word_delay_s), cache, scope="demo")
    shared = share(cache)
    async with AsyncExitStack() as held:
        if settings.redis_url is not None and redis_up is not None:
            redis = connect_redis(settings.redis_url)
            held.push_async_callback(redis.aclose)
            shared = share(cache, redis, redis_up.limits)
        opened = open_models(
            load_providers(settings),
            shared,
            built_in={"demo": demo} if settings.demo else {},
            unlisted={direct.NAME: Direct()},
            instructed=("demo",),
            on_fallback=notices.model_fell_back,
        )
        yield await held.enter_async_context(opened)
