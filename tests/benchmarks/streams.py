"""What a run's stream must look like, whoever served it."""

from collections import defaultdict
from collections.abc import Mapping

import orjson

TERMINAL = frozenset(
    {"run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired"}
)
SUM = 42

_EPHEMERAL = frozenset({"message.delta", "reasoning.delta", "tool_call.progress"})


class BadStreamError(Exception):
    """A stream that no client should have been sent."""


def check(response: bytes) -> int:
    """Return how many durable events the HTTP response holds. Raises `BadStreamError`.

    Their ids must be 1..N; the tool's result and a text that the deltas add up to must be among
    them; and the only terminal event must be the last one.
    """
    types: list[str] = []
    texts: dict[str, str] = defaultdict(str)
    for frame in _frames(_body(response)):
        kind = frame.get(b"event", b"").decode()
        if kind in _EPHEMERAL:
            piece = orjson.loads(frame[b"data"])["data"]
            if kind == "message.delta":
                texts[piece["message_id"]] += piece["text"]
            continue
        types.append(kind)
        if frame.get(b"id") != str(len(types)).encode():
            raise BadStreamError(f"event {len(types)} has the id {frame.get(b'id')!r}")
        _check_event(kind, frame[b"data"], texts)
    _check_order(types)
    return len(types)


def _check_event(kind: str, data: bytes, texts: Mapping[str, str]) -> None:
    match kind:
        case "message.completed":
            message = orjson.loads(data)["data"]
            said = texts.get(message["message_id"], "")
            if said != message["content"]:
                raise BadStreamError(f"the deltas say {said!r}, and not {message['content']!r}")
        case "tool_call.completed":
            result = orjson.loads(data)["data"]["result"]
            if result != SUM:
                raise BadStreamError(f"the tool's result is {result!r}, and not {SUM}")
        case _:
            pass


def _check_order(types: list[str]) -> None:
    if not types or types[-1] != "run.completed":
        raise BadStreamError(f"the last event is {types[-1:]}, and not run.completed")
    if not TERMINAL.isdisjoint(types[:-1]):
        raise BadStreamError(f"a terminal event has others behind it: {types}")
    if types.count("message.completed") != 2 or types.count("tool_call.completed") != 1:
        raise BadStreamError(f"these are not two messages and a tool call: {types}")


def _frames(body: bytes) -> list[dict[bytes, bytes]]:
    *frames, rest = body.split(b"\n\n")
    if rest:
        raise BadStreamError(f"the stream breaks off: {rest[-200:]!r}")
    return [dict(line.split(b": ", 1) for line in frame.split(b"\n")) for frame in frames]


def _body(response: bytes) -> bytes:
    """Return what a chunked response carries."""
    head, _, chunks = response.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 ") or b"text/event-stream" not in head:
        raise BadStreamError(f"the answer is no stream: {response[:2000]!r}")
    pieces, at = [], 0
    while size := int(chunks[at : (line_end := chunks.index(b"\r\n", at))], 16):
        at = line_end + 2 + size + 2
        pieces.append(chunks[line_end + 2 : at - 2])
    return b"".join(pieces)
