"""A reply as a cache keeps it, read back as strictly as a vendor's answer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import orjson

from milepost.core.json import UnencodableError, clean
from milepost.core.messages import Sealed
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Delta,
    Finished,
    ReasoningDelta,
    Reply,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import CALLS_MAX
from milepost.providers.payload import TOKENS_MAX

# A new form gets a new number: what an older or newer version wrote is a miss.
VERSION = 4
BYTES_MAX = 1_048_576
TIME_MS_MAX = 2**53

_TOKENS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A complete reply, and when (Unix time) a model made it."""

    reply: Reply
    made_ms: int


def encode(cached: CachedReply) -> bytes | None:
    """Return what to keep; None for a reply that is filtered, unusable, too long, or maybe cut.

    Nor is one kept that is no JSON, as a provider of one's own may give it. The vendor's
    call ids are left out: a replayed call is a new call. What it sealed is kept, since it wants
    that back with the calls.
    """
    reply = cached.reply
    if reply.assumed:
        return None
    fields = {
        "v": VERSION,
        "made_ms": cached.made_ms,
        "text": reply.text,
        "reasoning": reply.reasoning,
        "sealed": reply.sealed,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in reply.calls],
        "finish_reason": reply.finish_reason,
        "response_id": reply.response_id,
        "model": reply.model,
        "tokens": _tokens(reply.usage),
        "requests": [_tokens(each) for each in reply.requests],
    }
    try:
        value = orjson.dumps(fields)
    except orjson.JSONEncodeError:
        return None
    # What could not be read back is not worth keeping.
    return value if decode(value) is not None else None


def decode(value: bytes) -> CachedReply | None:
    """Return the reply, or None where `value` is anything but what `encode` wrote."""
    if len(value) > BYTES_MAX:
        return None
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    match fields:
        case {
            "v": version,
            "made_ms": int(made_ms),
            "text": str(text),
            "reasoning": str(reasoning),
            "sealed": list(seals),
            "calls": list(listed),
            "finish_reason": "stop" | "tool_calls" as reason,
            "response_id": str(response_id),
            "model": str(model),
            "tokens": dict(counts),
            "requests": list(each),
            **unknown,
        } if version == VERSION and not unknown:
            calls, sealed = _calls(listed), _sealed(seals)
            usage, requests = _usage(counts), _requests(each)
        case _:
            return None
    if calls is None or sealed is None or usage is None or requests is None:
        return None
    if not 0 <= made_ms <= TIME_MS_MAX:
        return None
    reply = Reply(
        text, reasoning, calls, reason, usage, response_id, model, sealed=sealed, requests=requests
    )
    return CachedReply(reply, made_ms) if _is_whole(reply) else None


def replay(cached: CachedReply, now_ms: int) -> Iterator[Delta]:
    """Return the deltas that stream a kept reply: its tokens are saved, none are spent.

    What its vendor read from a cache of its own is told besides: it cost less, so less is saved.
    """
    reply = cached.reply
    yield CacheHit(max(0, now_ms - cached.made_ms) / 1000)
    if reply.reasoning:
        yield ReasoningDelta(reply.reasoning)
    if reply.text:
        yield TextDelta(reply.text)
    for sealed in reply.sealed:
        yield SealedDelta(sealed)
    for index, call in enumerate(reply.calls):
        yield CallDelta(index, name=call.name, arguments=call.arguments)
    yield Finished(reply.finish_reason, reply.response_id, reply.model)
    saved = replace(
        reply.usage,
        input_tokens=0,
        output_tokens=0,
        saved_input_tokens=reply.usage.input_tokens,
        saved_output_tokens=reply.usage.output_tokens,
    )
    yield Spent(saved, reply.requests)


def _tokens(usage: Usage) -> dict[str, int]:
    return {name: getattr(usage, name) for name in _TOKENS}


def _requests(listed: list[object]) -> tuple[Usage, ...] | None:
    requests = []
    for counts in listed:
        if not isinstance(counts, dict) or (usage := _usage(counts)) is None:
            return None
        requests.append(usage)
    return tuple(requests)


def _usage(counts: dict[object, object]) -> Usage | None:
    if counts.keys() != set(_TOKENS):
        return None
    tokens = [counts[name] for name in _TOKENS]
    if not all(type(count) is int and 0 <= count <= TOKENS_MAX for count in tokens):
        return None
    return Usage(*cast("list[int]", tokens))


def _calls(listed: list[object]) -> tuple[RequestedCall, ...] | None:
    if len(listed) > CALLS_MAX:
        return None
    calls = []
    for item in listed:
        match item:
            case {"name": str(name), "arguments": str(arguments), **unknown} if not unknown:
                calls.append(RequestedCall("", name, arguments))
            case _:
                return None
    return tuple(calls)


def _sealed(listed: list[object]) -> tuple[Sealed, ...] | None:
    sealed = []
    for part in listed:
        match part:
            case {"wire": str(wire), "item": dict(item), **unknown} if not unknown:
                sealed.append(Sealed(wire, item))
            case _:
                return None
    return tuple(sealed) if _can_be_stored(listed) else None


def _can_be_stored(value: object) -> bool:
    try:
        return clean(value) == value
    except UnencodableError:
        return False


def _is_whole(reply: Reply) -> bool:
    """An answer, or usable calls: neither an empty reply nor a malformed one is worth repeating."""
    if not reply.calls:
        return reply.finish_reason == "stop" and bool(reply.text)
    return reply.finish_reason == "tool_calls" and all(map(_is_usable, reply.calls))


def _is_usable(call: RequestedCall) -> bool:
    try:
        return bool(call.name) and isinstance(orjson.loads(call.arguments), dict)
    except orjson.JSONDecodeError:
        return False
