"""Where a client is in a run's log, so that what it sees twice it takes once."""

import re
from dataclasses import replace
from typing import Any

import orjson
from httpx2 import ServerSentEvent

from milepost.client.members import made
from milepost.client.shapes import Event

_IN_A_MESSAGE = re.compile(r"[0-9]+~(?P<message_id>[^:]+):(?P<offset>[0-9]+)")
# Texts on their way, and the member of their data that says which text it is.
_TEXTS = {
    "message.delta": "message_id",
    "reasoning.delta": "message_id",
    "tool_call.progress": "call_id",
}
# Events after which nothing more comes of a text, and what they end.
_ENDS = {
    "message.completed": ("message.delta", "reasoning.delta"),
    "message.aborted": ("message.delta", "reasoning.delta"),
    "reasoning.completed": ("reasoning.delta",),
    "tool_call.completed": ("tool_call.progress",),
    "tool_call.failed": ("tool_call.progress",),
    "tool_call.interrupted": ("tool_call.progress",),
}


class Position:
    """The last id seen, the last event of the log, and how much is known of each open text.

    An id names the place in one message at most. Of every other text, and after an event in the
    middle of a message, a server that is asked again begins at the front: what is known is cut off.
    """

    def __init__(self, after: str | None = None) -> None:
        self.id = after
        self._seq = 0
        self._known: dict[tuple[str, str], int] = {}
        if named := _IN_A_MESSAGE.fullmatch(after or ""):
            self._known["message.delta", named["message_id"]] = int(named["offset"])

    def take(self, frame: ServerSentEvent) -> Event | None:
        """Return what is new in a frame, or None."""
        self.id = frame.id or self.id
        event = _event(frame, self.id or "")
        if event.seq is not None:
            return self._take_durable(event, event.seq)
        if event.type in _TEXTS:
            return self._take_text(event)
        return event

    def _take_durable(self, event: Event, seq: int) -> Event | None:
        if seq <= self._seq:
            return None
        self._seq = seq
        for kind in _ENDS.get(event.type, ()):
            self._known.pop((kind, event.data[_TEXTS[kind]]), None)
        return event

    def _take_text(self, event: Event) -> Event | None:
        key = (event.type, event.data[_TEXTS[event.type]])
        offset, text = event.data["offset"], event.data["text"]
        known = self._known.get(key, 0)
        if offset + len(text) <= known:
            return None
        self._known[key] = offset + len(text)
        if offset >= known:
            return event
        new = {**event.data, "offset": known, "text": text[known - offset :]}
        return replace(event, data=new)


def _event(frame: ServerSentEvent, place: str) -> Event:
    said: dict[str, Any] = orjson.loads(frame.data)
    told = {name: said.get(name) for name in ("type", "run_id", "data", "seq", "time")}
    return made(Event, {**told, "id": place})
