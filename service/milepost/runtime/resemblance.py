"""Whether two events are the same move of the loop, whatever words go with it."""

from collections.abc import Mapping
from typing import cast

import orjson

from milepost.core.codec import encode
from milepost.core.events import Event
from milepost.core.json import Json

# What people and models read of a move, and what an agent's definition says anyway.
_WORDS: Mapping[str, frozenset[str]] = {
    "approval.requested": frozenset(
        {"approvers", "expires_at_ms", "on_timeout", "policy", "preview", "required"}
    ),
    "budget.exceeded": frozenset({"of", "spent"}),
    "budget.warning": frozenset({"of", "spent"}),
    "loop.detected": frozenset({"notice"}),
    "message.started": frozenset({"model"}),
    "model.retried": frozenset({"wait_ms"}),
    "policy.decided": frozenset({"reason"}),
    "structured.retried": frozenset({"error", "notice"}),
    "tool_call.denied": frozenset({"reason"}),
    "tool_call.failed": frozenset({"message"}),
    "tool_call.started": frozenset({"coerced"}),
    "tool_result.compressing": frozenset({"model"}),
}

# What became of what the loop had no hand in: it was in hand elsewhere, and stopped there.
_HAPPENED: Mapping[str, frozenset[str]] = {"run.cancelled": frozenset({"work"})}


def shown(event: Event) -> dict[str, Json]:
    """Return the event as clients read it."""
    return {"type": event.type, "data": _data(event)}


def is_same(one: Event, other: Event) -> bool:
    """Say whether both are the same move."""
    return one.type == other.type and (one == other or not differences(one, other, weighty=True))


def differences(one: Event, other: Event, *, weighty: bool = False) -> list[str]:
    """Return in which fields two events of a type differ: in words, or `weighty` in the move."""
    words = _WORDS.get(one.type, frozenset())
    before, after = _compared(one), _compared(other)
    return [
        name
        for name in before
        if before[name] != after.get(name) and (name not in words) == weighty
    ]


def _compared(event: Event) -> dict[str, Json]:
    """Return the fields that the loop decides on; of an error its code and its message apart."""
    happened = _HAPPENED.get(event.type, frozenset())
    data = {name: value for name, value in _data(event).items() if name not in happened}
    error = data.get("error")
    if event.type == "tool_call.failed" and isinstance(error, Mapping):
        return {**data, "error": error["code"], "message": error["message"]}
    return data


def _data(event: Event) -> dict[str, Json]:
    return cast("dict[str, Json]", orjson.loads(encode(event)))
