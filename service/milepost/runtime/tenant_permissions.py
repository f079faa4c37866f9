"""To whom tenants permit which tools, as their own maps say."""

import orjson

from milepost.runtime.clock import Clock
from milepost.runtime.permits import Listed
from milepost.runtime.recent import Recent
from milepost.store import permissions
from milepost.store.store import Store

FRESH_MS = 1_000


class TenantPermissions:
    """Tenants' own maps. A change is seen everywhere within `FRESH_MS`, and here at once."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._maps: Recent[str, Listed] = Recent(self._read, clock=clock, fresh_ms=FRESH_MS)

    async def of(self, tenant: str, /, *, fresh: bool = False) -> Listed:
        """Return the tenant's map; a `fresh` one is as it is just now."""
        return await (self._maps.anew(tenant) if fresh else self._maps.of(tenant))

    def forget(self, tenant: str) -> None:
        """Look anew at what the tenant says."""
        self._maps.forget(tenant)

    async def _read(self, tenant: str) -> Listed:
        row = await self._store.read(permissions.get(tenant))
        listed: Listed = orjson.loads(row.permissions)
        return listed
