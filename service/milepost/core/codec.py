"""Events to the bytes of the log, and back, whatever version wrote them.

Unknown types decode to None and unknown fields are dropped, so that a log of a later version still
folds; a missing field takes its default.
"""

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, get_args

import orjson

from milepost.core.agents import Bounds, StructuredOutput
from milepost.core.events import (
    Channel,
    Event,
    Failure,
    ForkedCall,
    ForkPoint,
    InputMessage,
    Output,
    Parent,
    RunWaiting,
    StoppedWork,
    Stretch,
)
from milepost.core.messages import Image, Message, Sealed, ToolCall
from milepost.core.usage import NANOS_PER_MICRO, Usage

NANOS_PER_DOLLAR = 1_000_000_000


def _members(union: Any) -> list[type[Any]]:
    return [member for arg in get_args(union) for member in (_members(arg) or [arg])]


EVENTS: Mapping[str, type[Any]] = {member.type: member for member in _members(Event)}
_FIELDS = {
    member: frozenset(field.name for field in dataclasses.fields(member))
    for member in EVENTS.values()
}
_USED = {
    member: tuple(name for name in ("usage", "below") if name in fields)
    for member, fields in _FIELDS.items()
}
# A getter for all fields at once takes a third of what one for each of them does.
_READ = {
    member: (names := tuple(field.name for field in dataclasses.fields(member)), attrgetter(*names))
    for member, used in _USED.items()
    if used
}
_USAGE_FIELDS = tuple(field.name for field in dataclasses.fields(Usage))
_usage_values = attrgetter(*_USAGE_FIELDS)


def encode(event: Event) -> bytes:
    """Return the event's `data` as JSON: what is stored, and what clients are sent."""
    if isinstance(event, RunWaiting):
        return orjson.dumps({"for": event.cause, "pending": event.pending})
    if used := _USED[type(event)]:
        names, values = _READ[type(event)]
        shown = dict(zip(names, values(event), strict=True))
        for name in used:
            shown[name] = usage_shown(shown[name])
        return orjson.dumps(shown)
    return orjson.dumps(event)


def decode(type_name: str, data: str | bytes) -> Event | None:
    """Return the event, or None if this version does not know its type."""
    member = EVENTS.get(type_name)
    if member is None:
        return None
    payload = orjson.loads(data)
    if member is RunWaiting:
        payload["cause"] = payload.pop("for")
    known = _FIELDS[member]
    fields = {
        name: _revive(name, value) if name in _REVIVED else value
        for name, value in payload.items()
        if name in known
    }
    event: Event = member(**fields)
    return event


def usage_shown(usage: Usage) -> dict[str, int | str]:
    """Return usage as clients read it: money also in micro-dollars and as an exact decimal."""
    shown: dict[str, int | str] = dict(zip(_USAGE_FIELDS, _usage_values(usage), strict=True))
    shown["cost_usd_micros"] = round(usage.cost_nanos / NANOS_PER_MICRO)
    shown["cost_usd"] = dollars(usage.cost_nanos)
    return shown


def usage_read(shown: Mapping[str, Any]) -> Usage:
    """Return what `usage_shown` showed."""
    return Usage(**{name: shown[name] for name in _USAGE_FIELDS if name in shown})


def dollars(nanos: int) -> str:
    """Return nano-dollars as an exact decimal string of dollars."""
    sign = "-" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), NANOS_PER_DOLLAR)
    decimals = f"{rest:09d}".rstrip("0")
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"


def _record(record: type[Any]) -> Callable[[Any], Any]:
    names = frozenset(field.name for field in dataclasses.fields(record))

    def revive(value: Any) -> Any:
        if value is None:
            return None
        return record(**{name: item for name, item in value.items() if name in names})

    return revive


_input_message = _record(InputMessage)
_image = _record(Image)
_structured = _record(StructuredOutput)
_parent = _record(Parent)
_channel = _record(Channel)
_bounds = _record(Bounds)
_sealed = _record(Sealed)
_forked_call = _record(ForkedCall)
_message = _record(Message)
_call = _record(ToolCall)
_work = _record(StoppedWork)
_REVIVED: Mapping[str, Callable[[Any], Any]] = {
    "usage": usage_read,
    "below": usage_read,
    "error": _record(Failure),
    "output": _record(Output),
    "input": lambda value: None if value is None else tuple(map(_said, value)),
    "response_format": _structured,
    "parent": _parent,
    "channel": _channel,
    "bounds": _bounds,
    "tools": tuple,
    "sealed": lambda value: tuple(map(_sealed, value)),
    "images": lambda value: tuple(map(_image, value)),
    "message_ids": tuple,
    "replaces": tuple,
    "speakers": tuple,
    "work": lambda value: tuple(map(_work, value)),
    "pending": tuple,
    "stopped": tuple,
    "coerced": tuple,
    "approvers": tuple,
    "summaries": tuple,
    "pins": tuple,
    "trimmed": _record(Stretch),
    "forked_from": _record(ForkPoint),
    "conversation": lambda value: tuple(map(_turn, value)),
    "calls": lambda value: tuple(map(_forked, value)),
}


def message_read(shown: Mapping[str, Any]) -> Message:
    """Return the message that was written as JSON, field by field."""
    message: Message = _turn(shown)
    return message


def _said(value: Any) -> Any:
    return _input_message({**value, "images": tuple(map(_image, value.get("images", ())))})


def _turn(value: Any) -> Any:
    message = _message(value)
    return dataclasses.replace(
        message,
        calls=tuple(map(_call, message.calls)),
        images=tuple(map(_image, message.images)),
        sealed=tuple(map(_sealed, message.sealed)),
    )


def _forked(value: Any) -> Any:
    forked = _forked_call(value)
    return dataclasses.replace(forked, call=_call(forked.call))


def _revive(name: str, value: Any) -> Any:
    return _REVIVED[name](value)
