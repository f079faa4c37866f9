"""What vendors send in a `data` line, read without trusting them with a single type."""

import json
from collections.abc import Mapping

import orjson

from milepost.core.json import clean
from milepost.providers.failures import Failures

TOKENS_MAX = 2**53


def parsed(payload: bytes, failures: Failures) -> dict[str, object]:
    """Return the JSON object of a `data` line. Raises `ProviderError` for anything else."""
    try:
        event = orjson.loads(payload)
    except orjson.JSONDecodeError:
        event = _parsed_leniently(payload, failures)
    if not isinstance(event, dict):
        raise failures.unreadable("an event that is no JSON object", payload)
    return event


def text(value: object) -> str:
    """Return `value` where it is text."""
    return value if isinstance(value, str) else ""


def count(usage: Mapping[str, object], *path: str) -> int:
    """Return the number of tokens at `path`, and none where there is no such number."""
    value: object = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else 0  # True is no count


def _parsed_leniently(payload: bytes, failures: Failures) -> object:
    """Some vendors cut text in the middle of a surrogate pair, which orjson refuses."""
    try:
        return clean(json.loads(payload))
    except (ValueError, RecursionError):
        raise failures.unreadable("an event that is no JSON", payload) from None
