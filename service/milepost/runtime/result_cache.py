"""Results of tools that may be told again: by tenant, tool, arguments and, if need be, user.

What the cache cannot be asked is a miss.
"""

import functools
import hashlib
import inspect
import secrets
import sys
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
    """Yield where its function is from, its source, and what was bound to it when it was made.

    So too of what is wrapped around that.
    """
    layers = [*_layers(tool.function)]
    bound = [*tool.inject.values(), *tool.signature.secrets.values()]
    for layer in layers:
        if isinstance(layer, functools.partial):
            bound += [*layer.args, *layer.keywords, *layer.keywords.values()]
            continue
        yield f"{getattr(layer, '__module__', '')}.{getattr(layer, '__qualname__', type(layer))}"
        code = getattr(layer, "__code__", None)
        try:
            yield inspect.getsource(code or layer)
        except (OSError, TypeError):
            yield repr(getattr(code, "co_code", b""))
        held = (*_enclosed(layer), *_private(layer))
        bound += [each for each in held if not any(each is known for known in layers)]
        bound += _instance(layer)
    yield from map(_word, bound)


def _layers(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the function, and what each of these calls in its place, from the outside in."""
    inner: Any = function
    while inner is not None:
        yield inner
        is_partial = isinstance(inner, functools.partial)
        inner = inner.func if is_partial else getattr(inner, "__wrapped__", None)


def _instance(function: Callable[..., Any]) -> list[object]:
    """Return the object that a method belongs to, or that is called like a function."""
    if inspect.ismethod(function):
        return [function.__self__]
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return [] if is_plain else [function]


def _enclosed(function: Callable[..., Any]) -> Iterator[object]:
    for cell in getattr(function, "__closure__", None) or ():
        with suppress(ValueError):  # of a name that has no value yet
            yield cell.cell_contents


def _private(function: Callable[..., Any]) -> list[object]:
    """Return the defaults of what no model fills: those of others are in the schema."""
    try:
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return []  # of something that is not written in Python
    return [
        each.default
        for each in parameters
        if each.name.startswith("_") and each.default is not each.empty
    ]


def _word(value: object) -> str:
    """Return what tells a value from others; of what cannot be read, a word that no other has."""
    if _is_plain(value):
        return repr(value)
    if inspect.ismodule(value):
        return value.__name__
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str) and _is_named(value, name):
        return f"{getattr(value, '__module__', '')}.{name}"
    return secrets.token_hex(16)


def _is_named(value: object, name: str) -> bool:
    """Say whether it is what its module has under its name: of that there is one."""
    found: object = sys.modules.get(str(getattr(value, "__module__", "")))
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
