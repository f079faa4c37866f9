"""A model call as a line of a recording: the digest of its request, and what came of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from milepost.core.errors import ProviderError
from milepost.core.messages import Sealed
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Delta,
    FellBack,
    Finished,
    ModelRequest,
    ReasoningDelta,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.providers.cache_key import cache_key

VERSION = 1

_KINDS: dict[type[Delta], str] = {
    TextDelta: "text",
    ReasoningDelta: "reasoning",
    CallDelta: "call",
    SealedDelta: "sealed",
    Finished: "finished",
    Spent: "spent",
    CacheHit: "cache_hit",
    FellBack: "fell_back",
}


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What a provider said to the request with this digest, and the error that it ended with."""

    request: str
    model: str
    deltas: tuple[Delta, ...]
    error: ProviderError | None = None


def request_digest(request: ModelRequest) -> str:
    """Return what tells a request from others, whoever asks it: nothing of it can be read back."""
    return cache_key(replace(request, tenant=""), scope="recording").partition(":")[2]


def encode_call(call: RecordedCall) -> str:
    """Return the call as one line of JSON."""
    error = call.error
    fields = {
        "v": VERSION,
        "request": call.request,
        "model": call.model,
        "deltas": [_encode_delta(delta) for delta in call.deltas],
        "error": None
        if error is None
        else {
            "code": error.code,
            "message": str(error),
            "retryable": error.retryable,
            "retry_after_s": error.retry_after_s,
            "status": error.status,
        },
    }
    # Not orjson: a vendor may send half a surrogate pair, which is to come back as it came.
    return json.dumps(fields)


def decode_call(line: str) -> RecordedCall:
    """Return the call that a line tells of. Raises `ValueError` for anything else."""
    match json.loads(line):
        case {
            "v": 1,
            "request": str(request),
            "model": str(model),
            "deltas": list(deltas),
            "error": error,
            **unknown,
        } if not unknown:
            decoded = tuple(_decode_delta(each) for each in deltas)
            return RecordedCall(request, model, decoded, _decode_error(error))
        case _:
            raise ValueError(f"it is no call as version {VERSION} writes it")


def _encode_delta(delta: Delta) -> dict[str, Any]:
    fields = asdict(delta.sealed if isinstance(delta, SealedDelta) else delta)
    return {"type": _KINDS[type(delta)], **fields}


def _decode_delta(fields: object) -> Delta:
    match fields:
        case {"type": "sealed", "wire": str(wire), "item": dict(item), **unknown} if not unknown:
            return SealedDelta(Sealed(wire, item))
        case {"type": str(kind), **rest} if kind in _ADAPTERS:
            return _ADAPTERS[kind].validate_python(_plain(rest))
        case _:
            raise ValueError(f"it has a delta that is none: {fields!r}")


def _plain(fields: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in fields.items()}


def _decode_error(fields: object) -> ProviderError | None:
    match fields:
        case None:
            return None
        case {
            "code": str(code),
            "message": str(message),
            "retryable": bool(retryable),
            "retry_after_s": int() | float() | None as retry_after_s,
            "status": int() | None as status,
        }:
            return ProviderError(
                message,
                code=code,
                retryable=retryable,
                retry_after_s=retry_after_s,
                status=status,
            )
        case _:
            raise ValueError(f"it has an error that is none: {fields!r}")


_ADAPTERS: dict[str, TypeAdapter[Delta]] = {
    name: TypeAdapter(kind) for kind, name in _KINDS.items() if kind is not SealedDelta
}
