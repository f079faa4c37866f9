"""Building declared providers: each an endpoint over its wire, in the wrappers that it asks for."""

import hashlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis

from milepost.core.model import Provider
from milepost.providers.anthropic import anthropic
from milepost.providers.cache import ReplyCache
from milepost.providers.caching import Caching
from milepost.providers.catalog import Catalog
from milepost.providers.chains import Chains
from milepost.providers.circuits import Circuits, InProcessCircuits
from milepost.providers.circuits_redis import RedisCircuits
from milepost.providers.concurrency import Concurrent
from milepost.providers.declared import DeclaredProvider
from milepost.providers.fallback import OnFallback
from milepost.providers.gemini import gemini
from milepost.providers.http import Http
from milepost.providers.http_connections import Connections
from milepost.providers.openai import openai
from milepost.providers.rate_limits import RateLimited
from milepost.providers.redis_asking import OPERATION_S_MAX, Asking, unheard
from milepost.providers.responses import responses
from milepost.providers.text_tools import TextTools
from milepost.providers.windows import InProcessWindows, Windows
from milepost.providers.windows_redis import RedisWindows

_SCOPE_HEX_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Shared:
    """What providers have in common: the cache of their replies, and what counts their calls."""

    cache: ReplyCache
    windows: Windows
    circuits: Circuits


def share(
    cache: ReplyCache,
    redis: Redis | None = None,
    on_change: Callable[[Exception | None], None] = unheard,
    within_s: float = OPERATION_S_MAX,
) -> Shared:
    """Return what counts calls in Redis, if there is one, and else in this process.

    `on_change` is told when Redis does not answer within `within_s`, and when it does again.
    """
    windows, circuits = InProcessWindows(), InProcessCircuits()
    if redis is None:
        return Shared(cache, windows, circuits)
    asking = Asking(on_change=on_change, within_s=within_s)
    return Shared(
        cache, RedisWindows(redis, asking, windows), RedisCircuits(redis, asking, circuits)
    )


@dataclass(frozen=True, slots=True)
class Models:
    """Who answers for which models, and by which prices.

    `chains` finds who answers for several; `base_urls` tell whose prices hold, and the providers in
    `free` have none.
    """

    catalog: Catalog
    chains: Chains
    base_urls: Mapping[str, str]
    free: frozenset[str]


@asynccontextmanager
async def open_models(
    declared: Mapping[str, DeclaredProvider],
    shared: Shared,
    *,
    built_in: Mapping[str, Provider],
    unlisted: Mapping[str, Provider] | None = None,
    instructed: Collection[str] = (),
    on_fallback: OnFallback | None = None,
) -> AsyncIterator[Models]:
    """Build the declared providers, yield them with the built-in ones, and end their connections.

    `unlisted` and `instructed` are those of the catalog. Raises `ConfigurationError` for a key that
    cannot be sent.
    """
    with ExitStack() as held:
        connections = Connections()
        held.callback(connections.close)
        providers = dict(built_in)
        for name, each in declared.items():
            # Its headers are its own; the connections are everybody's.
            http = Http(each.headers, connections)
            providers[name] = _wrapped(name, each, _endpoint(name, each, http), shared)
        told = [name for name, each in declared.items() if not each.schemas]
        catalog = Catalog(providers, unlisted=unlisted, instructed=[*instructed, *told])
        yield Models(
            catalog,
            Chains(catalog, shared.circuits, on_fallback=on_fallback),
            {name: each.base_url for name, each in declared.items()},
            frozenset(name for name, each in declared.items() if each.free),
        )


def _endpoint(name: str, declared: DeclaredProvider, http: Http) -> Provider:
    match declared.wire:
        case "openai":
            return openai(
                http,
                base_url=declared.base_url,
                api_key=declared.api_key,
                name=name,
                tokens_field=declared.tokens_field,
                reasoning_field=declared.reasoning_field,
                patience=declared.patience,
            )
        case "responses":
            return responses(
                http,
                base_url=declared.base_url,
                api_key=declared.api_key,
                name=name,
                reasoning_summary=declared.reasoning_summary,
                patience=declared.patience,
            )
        case "anthropic":
            return anthropic(
                http,
                base_url=declared.base_url,
                api_key=declared.api_key,
                name=name,
                dialect=declared.dialect,
                patience=declared.patience,
            )
        case "gemini":
            return gemini(
                http,
                base_url=declared.base_url,
                api_key=declared.api_key,
                name=name,
                patience=declared.patience,
            )


def _wrapped(name: str, declared: DeclaredProvider, inner: Provider, shared: Shared) -> Provider:
    """Return `inner` as it is declared: a reply that is kept costs neither a place nor a quota."""
    scope = scope_of(declared)
    if declared.text_tools:
        inner = TextTools(inner, stops=declared.wire != "responses")
    quota = declared.quota
    if quota.requests or quota.tokens:
        inner = RateLimited(inner, shared.windows, quota, name=name, key=f"{name}:{_digest(scope)}")
    if declared.calls_max:
        inner = Concurrent(inner, calls_max=declared.calls_max, name=name, queue_s=declared.queue_s)
    return Caching(inner, shared.cache, scope=scope)


def scope_of(declared: DeclaredProvider) -> str:
    """Return who answers, for keys in a cache: credentials by their digest, never themselves."""
    secrets = [
        declared.api_key or "",
        *(f"{name}: {text}" for name, text in declared.headers.items()),
    ]
    credential = _digest("\n".join(secrets)) if any(secrets) else "none"
    how = [declared.reasoning_summary, declared.reasoning_field, declared.dialect]
    told = " text" if declared.text_tools else ""
    return f"{declared.wire} {declared.base_url} {credential}{told} {_digest(repr(how))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_SCOPE_HEX_DIGITS]
