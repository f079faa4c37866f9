"""To whom tenants permit which tools, as their own maps say."""

import orjson

from milepost.runtime.clock import Clock
from milepost.runtime.permits import Listed
from milepost.store import permissions
from milepost.store.store import Store

FRESH_MS = 1_000
TENANTS_MAX = 1_000


class TenantPermissions:
    """Tenants' own maps. A change is seen everywhere within `FRESH_MS`, and here at once."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, tuple[int, Listed]] = {}

    async def of(self, tenant: str) -> Listed:
        """Return the tenant's map."""
        now = self._clock()
        seen = self._known.get(tenant)
        if seen is not None and now - seen[0] < FRESH_MS:
            return seen[1]
        row = await self._store.read(permissions.get(tenant))
        listed: Listed = orjson.loads(row.permissions)
        self._known.pop(tenant, None)
        self._known[tenant] = (now, listed)
        if len(self._known) > TENANTS_MAX:
            del self._known[next(iter(self._known))]
        return listed

    def forget(self, tenant: str) -> None:
        """Look anew at what the tenant says."""
        self._known.pop(tenant, None)
