"""Results of tools that may be told again: by tenant, tool, arguments and, if need be, user.

What the cache cannot be asked is a miss.
"""

import functools
import hashlib
import inspect
import secrets
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from milepost.core.canonical import digest
from milepost.core.json import Json
from milepost.providers.cache import ReplyCache
from milepost.providers.cache_key import owner_key, tenant_prefix
from milepost.store.records import Claim
from milepost.tools import Tool

TOOLS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """A result that is kept, which may well be null."""

    result: Json


class ResultCache:
    """Keeps results of tools that are `cacheable`, and what was made of the long ones."""

    def __init__(self, cache: ReplyCache) -> None:
        self._cache = cache

    async def find(self, key: str, owner: str | None, ttl_s: float) -> Found | None:
        """Return the result that is kept under the key, which is the owner's from now on, too."""
        value = await self._cache.get(key)
        if value is None:
            return None
        if owner is not None:
            await self._cache.mark(key, owner, ttl_s)
        try:
            return Found(orjson.loads(value))
        except orjson.JSONDecodeError:
            await self._cache.delete(key)
            return None

    async def keep(self, key: str, result: Json, ttl_s: float, owner: str | None) -> None:
        """Keep a result for so long, unless its owner is erased before."""
        await self._cache.set(key, orjson.dumps(result), ttl_s, owner)


def owner_of(claim: Claim) -> str | None:
    """Return whose results a run's are, as caches know them."""
    return None if claim.user is None else owner_key(claim.tenant, claim.user)


def key_of(tool: Tool, arguments: Mapping[str, Json], claim: Claim) -> str | None:
    """Return the key of the tool's result, None if it may not be kept.

    It is the user's own where the tool knows who that is, or is given what might; without a user
    nobody knows whose it is.
    """
    personal = bool(tool.signature.context or tool.signature.injected)
    if not tool.cacheable or (personal and claim.user is None):
        return None
    shape: dict[str, Json] = {
        "tenant": claim.tenant,
        "tool": tool.name,
        "schema": digest(dict(tool.schema.parameters)),
        "function": _identity(tool),
        "arguments": dict(arguments),
        "user": [claim.user] if personal else [],
    }
    return f"{tenant_prefix(claim.tenant)}tool:{digest(shape)}"


def summary_key(key: str, model: str, threshold_chars: int, content: str) -> str:
    """Return the key of the shorter form that `model` makes of exactly this result."""
    shape: dict[str, Json] = {"of": content, "model": model, "threshold_chars": threshold_chars}
    return f"{key}:{digest(shape)}"


@functools.lru_cache(maxsize=TOOLS_MAX)
def _identity(tool: Tool) -> str:
    """Return what tells this version of the tool from the last one, and from its namesakes."""
    return hashlib.sha256("\n".join(_marks(tool)).encode()).hexdigest()


def _marks(tool: Tool) -> Iterator[str]:
    """Yield where its function is from, its source, and what was bound to it when it was made."""
    inner, bound = inspect.unwrap(tool.function), [*tool.inject.values()]
    bound += _instance(tool.function)
    if isinstance(inner, functools.partial):
        bound += [*inner.args, *inner.keywords, *inner.keywords.values(), *_instance(inner.func)]
        inner = inner.func
    yield f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner))}"
    try:
        yield inspect.getsource(inner)
    except (OSError, TypeError):
        yield repr(getattr(getattr(inner, "__code__", None), "co_code", b""))
    for cell in getattr(inner, "__closure__", None) or ():
        with suppress(ValueError):  # of a name that has no value yet
            bound.append(cell.cell_contents)
    yield from map(_word, bound)


def _instance(function: Callable[..., Any]) -> list[object]:
    """Return the object that a method belongs to, or that is called like a function."""
    if inspect.ismethod(function):
        return [function.__self__]
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return [] if is_plain or isinstance(function, functools.partial) else [function]


def _word(value: object) -> str:
    """Return what tells a value from others; of what cannot be read, a word that no other has."""
    if _is_plain(value):
        return repr(value)
    named = inspect.unwrap(value) if inspect.isroutine(value) else value
    if inspect.ismodule(named) or inspect.isclass(named) or _holds_nothing(named):
        return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', named)}"
    return secrets.token_hex(16)


def _holds_nothing(value: object) -> bool:
    return isinstance(value, types.FunctionType) and value.__closure__ is None


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
