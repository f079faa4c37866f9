"""The events of a streamed Messages reply as deltas."""

from collections.abc import Mapping
from dataclasses import dataclass

from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.anthropic_layout import Called, Layout, Said, Thought
from milepost.providers.failures import Failures
from milepost.providers.payload import count, counts, parsed, text, written

DONE = b"[DONE]"
BLOCKS_MAX = 10_000
SEALED_BYTES_MAX = 4_000_000

Event = Mapping[str, object]

# What a vendor says beyond these is a stop: the reply is there, only its reason is news to us.
_REASONS: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


@dataclass(slots=True)
class _Call:
    """An open call. `whole` is what a server gave at its beginning that sends calls in one."""

    index: int
    noted: Called
    whole: str


class Events:
    """Decodes one reply's events, and knows whether the reply has come to its end."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._open: dict[object, _Call | Thought] = {}
        self._layout = Layout()
        self._calls = 0
        self._sealed_bytes = 0
        self._usage: dict[str, object] = {}
        self._reason: FinishReason | None = None
        self._response_id = ""
        self._model = ""
        self.done = False
        self.spent = False
        self.said_chars = 0

    @property
    def finished(self) -> bool:
        """Whether the vendor has said why it stopped, or that it is done."""
        return self.done or self._reason is not None

    def decode(self, payload: bytes) -> list[Delta]:
        """Return the deltas of one `data` line. Raises `ProviderError` for an error inside."""
        if self.done:
            return []
        if payload == DONE:
            return self._end()
        event = parsed(payload, self._failures)
        if event.get("error") or event.get("type") == "error":
            raise self._failures.inside(event.get("error") or event)
        match event.get("type"):
            case "content_block_delta":
                return self._continue_block(event, payload)
            case "content_block_start":
                return self._begin_block(event, payload)
            case "content_block_stop":
                return self._end_block(event)
            case "message_start":
                return self._begin(event)
            case "message_delta":
                return self._conclude(event)
            case "message_stop":
                return self._end()
            case _:
                return []  # A ping, or an event that is news to us.

    def finish(self) -> Finished:
        """Return the last delta. Small servers say that they end their turn and ask for calls."""
        assert self.finished
        reason = self._reason or "stop"
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        return Finished(reason, self._response_id, self._model, assumed=self._reason is None)

    def _begin(self, event: Event) -> list[Delta]:
        message = _object(event.get("message"))
        self._response_id = text(message.get("id"))
        self._model = text(message.get("model"))
        # What it counts here is told when the reply ends: until then it has said nothing.
        self._count(message.get("usage"))
        self._usage.pop("output_tokens", None)  # Those that it begins with are not the reply's.
        return []

    def _begin_block(self, event: Event, payload: bytes) -> list[Delta]:
        if len(self._layout) >= BLOCKS_MAX:
            raise self._failures.unreadable(f"more than {BLOCKS_MAX} blocks", payload)
        # One at the same place, if the vendor left it open, is over.
        return [*self._end_block(event), *self._opened(event, payload)]

    def _opened(self, event: Event, payload: bytes) -> list[Delta]:
        index, block = _index(event), _object(event.get("content_block"))
        match block.get("type"):
            case "text":
                self._layout.begin(Said())
                return self._say(text(block.get("text")))
            case "tool_use":
                return self._call(index, block)
            case "thinking":
                return self._think(index, dict(block), payload)
            case "redacted_thinking":
                self._bound(payload)
                self._layout.begin(Thought(dict(block)))
                return []
            case _:
                return []  # A block that nobody asked for, such as a search of the vendor's own.

    def _call(self, index: object, block: Event) -> list[Delta]:
        given = _object(block.get("input"))
        noted = Called()
        call = _Call(self._calls, noted, written(given, self._failures) if given else "")
        self._calls += 1
        self._open[index] = call
        self._layout.begin(noted)
        return [CallDelta(call.index, text(block.get("id")), text(block.get("name")))]

    def _think(self, index: object, block: dict[str, object], payload: bytes) -> list[Delta]:
        self._bound(payload)
        thought = self._open[index] = Thought(block)
        self._layout.begin(thought)
        return self._reason_on(thought, text(block.get("thinking")))

    def _continue_block(self, event: Event, payload: bytes) -> list[Delta]:
        """Text is text, whichever block it is said to be of; arguments are some call's."""
        delta = _object(event.get("delta"))
        block = self._open.get(_index(event))
        match delta.get("type"), block:
            case "text_delta", _:
                return self._say(text(delta.get("text")))
            case "input_json_delta", _Call():
                return self._argue(block, text(delta.get("partial_json")))
            case "input_json_delta", _ if delta.get("partial_json"):
                raise self._failures.unreadable("arguments of a call that it never began", payload)
            case "thinking_delta", Thought() | None:
                return self._reason_on(block, text(delta.get("thinking")))
            case "signature_delta", Thought():
                self._bound(payload)
                block.block["signature"] = text(delta.get("signature"))
                return []
            case _:
                return []  # A citation, or a delta that is news to us.

    def _say(self, said: str) -> list[Delta]:
        if not said:
            return []
        self.said_chars += len(said)
        self._layout.say(said)
        return [TextDelta(said)]

    def _argue(self, call: _Call, arguments: str) -> list[Delta]:
        if not arguments:
            return []
        self.said_chars += len(arguments)
        call.noted.pieces.append(arguments)
        return [CallDelta(call.index, arguments=arguments)]

    def _reason_on(self, thought: Thought | None, reasoning: str) -> list[Delta]:
        if not reasoning:
            return []
        self.said_chars += len(reasoning)
        if thought is not None:
            thought.pieces.append(reasoning)
        return [ReasoningDelta(reasoning)]

    def _end_block(self, event: Event) -> list[Delta]:
        return self._close(self._open.pop(_index(event), None))

    def _close(self, block: _Call | Thought | None) -> list[Delta]:
        """Return what a call was given at its beginning, if nothing came after that."""
        match block:
            case _Call() if block.whole and not block.noted.pieces:
                return self._argue(block, block.whole)
            case _:
                return []

    def _conclude(self, event: Event) -> list[Delta]:
        delta = _object(event.get("delta"))
        deltas: list[Delta] = []
        if (reason := text(delta.get("stop_reason"))) and self._reason is None:
            self._reason = _REASONS.get(reason, "stop")
            deltas += self._explain(delta)
            deltas += self._seal()
        if self._count(event.get("usage")) and (usage := _usage(self._usage)).input_tokens:
            self.spent = True
            deltas.append(Spent(usage))
        return deltas

    def _explain(self, delta: Event) -> list[Delta]:
        """Return why the vendor refused, where nothing else was said."""
        details = _object(delta.get("stop_details"))
        return [] if self.said_chars else self._say(text(details.get("explanation")))

    def _end(self) -> list[Delta]:
        """Take the end mark. A gateway sends it for a server that went away before any reply."""
        if self._reason is None and not (self.said_chars or self._calls):
            raise self._failures.cut_short()
        sealed = [] if self.finished else self._seal()
        self.done = True
        return sealed

    def _seal(self) -> list[Delta]:
        """Close the blocks that the vendor left open, and return what must go back to it."""
        deltas = [delta for block in self._open.values() for delta in self._close(block)]
        self._open.clear()
        sealed = self._layout.sealed()
        return deltas if sealed is None else [*deltas, SealedDelta(sealed)]

    def _bound(self, payload: bytes) -> None:
        self._sealed_bytes += len(payload)
        if self._sealed_bytes > SEALED_BYTES_MAX:
            what = f"more than {SEALED_BYTES_MAX} bytes to be kept"
            raise self._failures.unreadable(what, payload)

    def _count(self, usage: object) -> bool:
        """Take the counts of `usage`, each of which replaces what was said of it before."""
        told = {name: value for name, value in _object(usage).items() if value is not None}
        self._usage |= told
        return bool(told)


def _index(event: Event) -> object:
    index = event.get("index")
    return index if isinstance(index, int) else None


def _object(value: object) -> Event:
    return value if isinstance(value, dict) else {}


def _usage(usage: Event) -> Usage:
    """Return the counts as they are kept here: what was read from the cache is input as well.

    Nothing, and so what is estimated, where they are by halves. So is a prompt of nothing, as
    gateways count what they cannot know yet.
    """
    if not counts(usage, "input_tokens", "output_tokens"):
        return Usage()
    cache_read = count(usage, "cache_read_input_tokens")
    cache_write = count(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=count(usage, "input_tokens") + cache_read + cache_write,
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        reasoning_tokens=count(usage, "output_tokens_details", "thinking_tokens"),
    )
