"""`/v1/cache`: what the cache of replies and results has spared, and forgetting it all."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from milepost.api.acts import act_of
from milepost.api.paging import allow, json_response
from milepost.api.requests import caller
from milepost.core.codec import dollars
from milepost.core.usage import NANOS_PER_MICRO
from milepost.providers.cache import ReplyCache
from milepost.providers.cache_key import tenant_prefix
from milepost.runtime.journal import Ports
from milepost.store import audit, usage


class Cache:
    """The cache, over a store that knows what it has spared whom."""

    def __init__(self, ports: Ports, cache: ReplyCache) -> None:
        self._ports = ports
        self._cache = cache

    @property
    def routes(self) -> list[Route]:
        """What is served."""
        return [
            Route("/v1/cache", self.get, methods=["GET"]),
            Route("/v1/cache", self.purge, methods=["DELETE"]),
        ]

    async def get(self, request: Request) -> Response:
        """Show what the caller's runs were spared, and how this process has fared in all."""
        allow(request)
        principal = caller(request, "runs:read")
        saved = await self._ports.store.read(usage.saved(principal.tenant))
        stats = await self._cache.stats()
        return json_response(
            {
                "saved": {
                    "replies": saved.replies,
                    "input_tokens": saved.input_tokens,
                    "output_tokens": saved.output_tokens,
                    "cost_usd_micros": round(saved.cost_nanos / NANOS_PER_MICRO),
                    "cost_usd": dollars(saved.cost_nanos),
                },
                "process": {
                    "hits": stats.hits,
                    "misses": stats.misses,
                    "hit_rate": round(stats.hit_rate, 4),
                    "evictions": stats.evictions,
                    "failures": stats.failures,
                    "entries": stats.entries,
                },
            }
        )

    async def purge(self, request: Request) -> Response:
        """Forget all that is kept for the caller's tenant."""
        allow(request)
        principal = caller(request, "agents:write")
        purged = await self._cache.clear(tenant_prefix(principal.tenant))
        act = act_of(self._ports, principal, "cache.purged", "cache", {"purged": purged})
        await self._ports.store.write(audit.add(act))
        return json_response({"purged": purged})
