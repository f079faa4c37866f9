"""The events of the Messages wire, and whole replies in them."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

Event = dict[str, Any]
MESSAGE: Mapping[str, Any] = {
    "id": "msg_stub",
    "type": "message",
    "role": "assistant",
    "model": "claude-stub",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
}
USAGE: Mapping[str, Any] = {"input_tokens": 50, "output_tokens": 1}
PING: Event = {"type": "ping"}
STOP: Event = {"type": "message_stop"}


def start(usage: Mapping[str, Any] = USAGE) -> Event:
    """Return the event that a reply begins with."""
    return {"type": "message_start", "message": {**MESSAGE, "usage": usage}}


def begin(index: int, block: Mapping[str, Any]) -> Event:
    """Return the event that a block begins with."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **told: str) -> Event:
    """Return a piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **told}}


def end(index: int) -> Event:
    """Return the event that a block ends with."""
    return {"type": "content_block_stop", "index": index}


def conclusion(reason: str | None, usage: Mapping[str, Any] | None = None, **told: Any) -> Event:
    """Return the event that says why the model stopped, and what the reply took."""
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None, **told},
        "usage": usage or {"output_tokens": 15},
    }


def text(index: int, *pieces: str) -> list[Event]:
    """Return a block of text."""
    said = [delta(index, "text_delta", text=piece) for piece in pieces]
    return [begin(index, {"type": "text", "text": ""}), *said, end(index)]


def thinking(index: int, *pieces: str, signature: str = "c2lnbmVk") -> list[Event]:
    """Return a block of thinking, signed."""
    said = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
    signed = [delta(index, "signature_delta", signature=signature)] if signature else []
    block = {"type": "thinking", "thinking": "", "signature": ""}
    return [begin(index, block), *said, *signed, end(index)]


def redacted(index: int, hidden: str) -> list[Event]:
    """Return a block of thinking that is not shown."""
    return [begin(index, {"type": "redacted_thinking", "data": hidden}), end(index)]


def call(index: int, call_id: str, name: str, *pieces: str) -> list[Event]:
    """Return a call, its arguments in pieces."""
    said = [delta(index, "input_json_delta", partial_json=piece) for piece in ("", *pieces)]
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return [begin(index, block), *said, end(index)]


def whole(
    blocks: Iterable[list[Event]], reason: str, usage: Mapping[str, Any] | None = None
) -> list[Event]:
    """Return all events of a reply."""
    said = [event for block in blocks for event in block]
    return [start(usage or USAGE), PING, *said, conclusion(reason), STOP]


def framed(event: Event) -> bytes:
    """Return `event` as the vendor sends it."""
    return f"event: {event['type']}\ndata: ".encode() + orjson.dumps(event) + b"\n\n"
