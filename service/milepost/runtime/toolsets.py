"""Which tools a tenant has: those of the installation, and those that it declared itself."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary

from milepost.core.errors import ConflictError, MilepostError
from milepost.runtime.recent import Recent
from milepost.runtime.stored_secrets import StoredSecrets
from milepost.runtime.tool_source import (
    McpSource,
    Source,
    decode_listing,
    decode_source,
    references_of,
    tools_from,
)
from milepost.store import tool_sources
from milepost.store.store import Store
from milepost.store.tool_sources import ToolSourceRow
from milepost.telemetry.logs import logger
from milepost.tools import Registry, Tool
from milepost.tools.egress import Egress
from milepost.tools.mcp.listing import ListedTool, Server
from milepost.tools.mcp.opening import connect
from milepost.tools.references import Reference, Secrets, limited
from milepost.tools.secret import FindSecret

if TYPE_CHECKING:
    from milepost.tools.mcp.server import McpServer

FRESH_MS = 1_000
TENANTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class _Built:
    """One source, ready to be called."""

    tools: tuple[Tool, ...]
    server: "McpServer | None" = None


@dataclass(slots=True)
class _Toolset:
    """A tenant's tools: made of `code` and of the sources `built`, which are those of `ids`."""

    ids: tuple[str, ...] | None
    code: tuple[Tool, ...]
    built: dict[str, _Built]
    registry: Registry


class Toolsets:
    """Tools by tenant. What a tenant declares is seen everywhere within `FRESH_MS`.

    A tenant's tool never takes the place of the installation's, nor a later source's of an
    earlier's.
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        egress: Egress,
        secrets: StoredSecrets,
        *,
        clock: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._store = store
        self._egress = egress
        self._secrets = secrets
        self._ids: Recent[str, tuple[str, ...]] = Recent(
            lambda tenant: store.read(tool_sources.ids(tenant)), clock=clock, fresh_ms=FRESH_MS
        )
        self._sets: OrderedDict[str, _Toolset] = OrderedDict()
        self._building: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._retired: WeakSet[McpServer] = WeakSet()  # One with a connection is held by it.

    @property
    def installed(self) -> Registry:
        """The installation's own tools, which every tenant has."""
        return self._registry

    def install(self, registry: Registry) -> None:
        """Put other tools in the place of the installation's; runs in hand keep what they have."""
        self._registry = registry
        for known in self._sets.values():
            known.ids = None

    async def of(self, tenant: str) -> Registry:
        """Return the tenant's tools."""
        ids = await self._ids.of(tenant)
        known = self._sets.get(tenant)
        if known is not None and known.ids is ids:  # This very look at them was for it.
            return known.registry
        if (known := self._present(tenant, ids)) is None:
            async with self._building.setdefault(tenant, asyncio.Lock()):
                known = self._present(tenant, ids) or await self._rebuilt(tenant, ids)
        known.ids = ids
        return known.registry

    def forget(self, tenant: str) -> None:
        """Look anew at what the tenant has declared."""
        self._ids.forget(tenant)

    async def trial(self, tenant: str, source: Source) -> tuple[list[ListedTool], list[Tool]]:
        """Return what a source that is not kept yet offers, with its server asked if it has one.

        Raises `MilepostError` for one that cannot be used.
        """
        secrets = _secrets_of(tenant, source, self._secrets.find)
        if not isinstance(source, McpSource):
            return [], await self._tools(source, [], None, secrets)
        server = connect(source.server, self._egress.guard, secrets)
        try:
            listed = await server.listing()
        finally:
            await server.close()
        return listed, await self._tools(source, listed, server, secrets)

    def require_free(self, name: str) -> None:
        """Raise `ConflictError` if the installation has a tool of that name."""
        if name in self._registry:
            raise ConflictError(
                f"the installation has a tool {name!r}; call yours otherwise", code="tool_exists"
            )

    async def close(self) -> None:
        """End the connections to tenants' servers."""
        for known in self._sets.values():
            self._retire_all(known.built.values())
        self._sets.clear()
        await asyncio.gather(*(server.close() for server in self._retired))

    def _present(self, tenant: str, ids: tuple[str, ...]) -> _Toolset | None:
        """Return what was built if it still stands."""
        known = self._sets.get(tenant)
        if known is None or tuple(known.built) != ids or known.code != tuple(self._registry):
            return None
        self._sets.move_to_end(tenant)
        return known

    async def _rebuilt(self, tenant: str, ids: tuple[str, ...]) -> _Toolset:
        """Return the tenant's tools anew; sources that are still there keep their connections."""
        known = self._sets.get(tenant)
        before = known.built if known else {}
        rows = await self._store.read(tool_sources.all_of(tenant)) if ids else []
        built = {row.id: before.get(row.id) or await self._build(row) for row in rows}
        self._retire_all(each for source_id, each in before.items() if source_id not in built)
        self._sets[tenant] = toolset = self._joined(built)
        if len(self._sets) > TENANTS_MAX:
            _, forgotten = self._sets.popitem(last=False)
            self._retire_all(forgotten.built.values())
        return toolset

    def _joined(self, built: dict[str, _Built]) -> _Toolset:
        code = tuple(self._registry)
        if not built:
            return _Toolset(None, code, built, self._registry)
        registry = Registry(code)
        for tool in (tool for source in built.values() for tool in source.tools):
            if tool.name not in registry:
                registry.add(tool)
        return _Toolset(None, code, built, registry)

    async def _build(self, row: ToolSourceRow) -> _Built:
        """Return a source's tools; one that cannot be used any more has none, and says so."""
        server = None
        try:
            source = decode_source(row)
            secrets = _secrets_of(row.tenant, source, self._store.outlasting(self._secrets.find))
            if isinstance(source, McpSource):
                server = connect(source.server, self._egress.guard, secrets)
            tools = await self._tools(source, decode_listing(row), server, secrets)
        except (MilepostError, ValueError) as error:
            logger("tools").warning(f"tool source {row.id} cannot be used", error=str(error))
            return _Built(())
        return _Built(tuple(tools), server)

    async def _tools(
        self, source: Source, listed: list[ListedTool], server: Server | None, secrets: Secrets
    ) -> list[Tool]:
        """Return the source's tools, made where nobody waits for it: documents may be long."""
        return await asyncio.to_thread(tools_from, source, listed, server, self._egress, secrets)

    def _retire_all(self, built: Iterable[_Built]) -> None:
        """Have the servers' connections ended, but under no call: it may be acting already."""
        for each in built:
            if each.server is not None:
                each.server.retire()
                self._retired.add(each.server)


def _secrets_of(tenant: str, source: Source, find: FindSecret) -> Secrets:
    async def secrets(reference: Reference) -> str:
        return await find(tenant, reference.name)

    return limited(secrets, references_of(source))
