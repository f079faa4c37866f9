"""What vendors send in a `data` line, read without trusting them with a single type."""

import json
from collections.abc import Mapping
from typing import TypeGuard

import orjson

from milepost.core.json import clean
from milepost.providers.failures import Failures

# More than any reply takes; at the highest price there is, what it costs is still a number of 64
# bits, the largest that is kept.
TOKENS_MAX = 1_000_000_000


def parsed(payload: bytes, failures: Failures) -> dict[str, object]:
    """Return the JSON object of a `data` line. Raises `ProviderError` for anything else."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        event = _parsed_leniently(payload, failures)
    if not isinstance(event, dict):
        raise failures.unreadable("an event that is no JSON object", payload)
    return event


def written(arguments: object, failures: Failures) -> str:
    """Return a call's arguments, which came as an object, as the text that they are here."""
    try:
        return orjson.dumps(arguments).decode()
    except orjson.JSONEncodeError:
        raise failures.unreadable("arguments nested too deep", b"") from None


def text(value: object) -> str:
    """Return `value` where it is text."""
    return value if isinstance(value, str) else ""


def count(usage: Mapping[str, object], *path: str) -> int:
    """Return the number of tokens at `path`, and none where there is no such number."""
    value: object = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if _is_count(value) else 0


def counts(usage: Mapping[str, object], *keys: str) -> bool:
    """Say whether there is a number of tokens at each of the keys."""
    return all(_is_count(usage.get(key)) for key in keys)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= TOKENS_MAX  # True is no count


def _parsed_leniently(payload: bytes, failures: Failures) -> object:
    """Some vendors cut text in the middle of a surrogate pair, which orjson refuses."""
    try:
        return clean(json.loads(payload))
    except (ValueError, RecursionError):
        raise failures.unreadable("an event that is no JSON", payload) from None
