"""The chunks of a streamed Chat Completions reply as deltas, however odd the vendor."""

import json
from collections.abc import Mapping

import orjson

from milepost.core.json import clean
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.failures import Failures

DONE = b"[DONE]"
TOKENS_MAX = 2**53

_UNKNOWN = object()

# What a vendor says beyond these is a stop: the reply is there, only its reason is news to us.
_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


class Chunks:
    """Decodes one reply's chunks, and knows whether the reply has come to its end."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._calls = _Calls()
        self._reason: FinishReason | None = None
        self._response_id = ""
        self._model = ""
        self._choice: object = _UNKNOWN
        self.done = False
        self.spent = False
        self.said_chars = 0

    @property
    def finished(self) -> bool:
        """Whether the vendor has said why it stopped, or that it is done."""
        return self.done or self._reason is not None

    def decode(self, payload: bytes) -> list[Delta]:
        """Return the deltas of one `data` line. Raises `ProviderError` for an error inside."""
        if payload == DONE or self.done:
            self.done = True
            return []
        chunk = self._parse(payload)
        if error := chunk.get("error"):
            raise self._failures.inside(error)
        deltas: list[Delta] = []
        choices = chunk.get("choices")
        if choices and isinstance(choices, list) and isinstance(choices[0], dict):
            self._read_choice(choices[0], deltas)
        usage = chunk.get("usage")
        if usage and isinstance(usage, dict):
            self.spent = True
            deltas.append(Spent(_usage(usage)))
        if not self._response_id:
            self._read_names(chunk)
        return deltas

    def finish(self) -> Finished:
        """Return the last delta. Small servers say `stop` although they ask for calls."""
        assert self.finished
        reason = self._reason or "stop"
        if reason == "stop" and self._calls.count:
            reason = "tool_calls"
        return Finished(reason, self._response_id, self._model)

    def _parse(self, payload: bytes) -> dict[str, object]:
        try:
            chunk = orjson.loads(payload)
        except orjson.JSONDecodeError:
            chunk = self._parse_leniently(payload)
        if not isinstance(chunk, dict):
            raise self._failures.unreadable("an event that is no JSON object", payload)
        return chunk

    def _parse_leniently(self, payload: bytes) -> object:
        """Some vendors cut text in the middle of a surrogate pair, which orjson refuses."""
        try:
            return clean(json.loads(payload))
        except (ValueError, RecursionError):
            raise self._failures.unreadable("an event that is no JSON", payload) from None

    def _read_choice(self, choice: Mapping[str, object], deltas: list[Delta]) -> None:
        """We ask for one choice. Should several come, the first one to speak is the reply."""
        if self._choice is _UNKNOWN:
            self._choice = choice.get("index")
        if choice.get("index") != self._choice:
            return
        delta = choice.get("delta")
        if delta and isinstance(delta, dict):
            self._read_delta(delta, deltas)
        reason = choice.get("finish_reason")
        if reason and self._reason is None:
            self._reason = _REASONS.get(_text(reason), "stop")

    def _read_delta(self, delta: Mapping[str, object], deltas: list[Delta]) -> None:
        text = delta.get("content") or delta.get("refusal")
        if text and isinstance(text, str):
            self.said_chars += len(text)
            deltas.append(TextDelta(text))
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            self.said_chars += len(thought)
            deltas.append(ReasoningDelta(thought))
        pieces = delta.get("tool_calls")
        if pieces and isinstance(pieces, list):
            calls = [self._calls.read(piece) for piece in pieces if isinstance(piece, dict)]
            self.said_chars += sum(len(call.arguments) for call in calls)
            deltas.extend(calls)

    def _read_names(self, chunk: Mapping[str, object]) -> None:
        self._response_id = _text(chunk.get("id"))
        self._model = _text(chunk.get("model"))


class _Calls:
    """Tells a reply's calls apart by what vendors send: an index, an id, a name, or some of it."""

    def __init__(self) -> None:
        self._open: dict[object, _OpenCall] = {}
        self._latest: object = None
        self.count = 0

    def read(self, piece: Mapping[str, object]) -> CallDelta:
        """Return `piece` with the index of the call that it belongs to, counted by ourselves."""
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name = _text(piece.get("id")), _text(function.get("name"))
        call = self._belonging(piece.get("index"), call_id, name)
        return call.read(call_id, name, _arguments(function.get("arguments")))

    def _belonging(self, index: object, call_id: str, name: str) -> "_OpenCall":
        """Some vendors say index 0 for every call, or none at all."""
        indexed = isinstance(index, int)
        key = index if indexed else self._latest
        call = self._open.get(key)
        if call is None or call.is_another(call_id, name, indexed=indexed):
            call = self._open[key] = _OpenCall(self.count)
            self.count += 1
        self._latest = key
        return call


class _OpenCall:
    """One call, and what has been said of it already."""

    __slots__ = ("_id", "_index", "_name")

    def __init__(self, index: int) -> None:
        self._index = index
        self._id = ""
        self._name = ""

    def is_another(self, call_id: str, name: str, *, indexed: bool) -> bool:
        """Say whether a piece begins a call after this one: only a piece with a name can.

        Where ids don't decide, a vendor that counts repeats the name in each piece of a call, and
        one that doesn't count sends its calls whole.
        """
        if not name or not self._name:
            return False
        if call_id and self._id:
            return call_id != self._id
        return not indexed or name != self._name

    def read(self, call_id: str, name: str, arguments: str) -> CallDelta:
        """Return the delta, with the id and the name only when they are new."""
        new_id = "" if self._id else call_id
        new_name = "" if self._name else name
        self._id = self._id or call_id
        self._name = self._name or name
        return CallDelta(self._index, new_id, new_name, arguments)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _arguments(value: object) -> str:
    """Arguments come as text; some servers send the object itself."""
    match value:
        case str():
            return value
        case dict():
            return orjson.dumps(value).decode()
        case _:
            return ""


def _usage(usage: Mapping[str, object]) -> Usage:
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cache_read_tokens=_count(usage, "prompt_tokens_details", "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=_count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def _count(usage: Mapping[str, object], *path: str) -> int:
    value: object = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and 0 <= value <= TOKENS_MAX else 0  # True is no count
