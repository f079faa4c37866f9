"""The chunks of a streamed Chat Completions reply as deltas, however odd the vendor."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from milepost.core.json import clean_text
from milepost.core.messages import Sealed
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
from milepost.providers.failures import Failures
from milepost.providers.openai_request import SEAL
from milepost.providers.payload import count, counts, parsed, text, written

DONE = b"[DONE]"

_UNKNOWN = object()

# What a vendor says beyond these is a stop: the reply is there, only its reason is news to us.
_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
# The server gave up in the middle, and says so where others give a reason: Mistral, DeepSeek, GLM
# and vLLM, in this order.
_GIVEN_UP = frozenset({"error", "insufficient_system_resource", "network_error", "abort"})


class Chunks:
    """Decodes one reply's chunks, and knows whether the reply has come to its end.

    One that `seals` gives the reasoning out once more, to be sent back beside the calls.
    """

    def __init__(self, failures: Failures, *, seals: bool = False) -> None:
        self._failures = failures
        self._seals = seals
        self._thoughts: list[str] = []
        self._calls = _Calls(failures)
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
            self._require_choice()
            return self._sealed()
        chunk = parsed(payload, self._failures)
        if said := self._text_alone(chunk):
            self.said_chars += len(said)
            return [TextDelta(said)]
        if error := chunk.get("error"):
            raise self._failures.inside(error)
        if chunk.get("object") == "error":  # Some servers send the error object as it is.
            raise self._failures.inside(chunk)
        deltas: list[Delta] = []
        choices = chunk.get("choices")
        if choices and isinstance(choices, list) and isinstance(choices[0], dict):
            self._read_choice(choices[0], deltas)
        told = chunk.get("usage")
        if told and (usage := _usage(told)).input_tokens:
            self.spent = True
            deltas.append(Spent(usage))
        if not self._response_id:
            self._read_names(chunk)
        if self._thoughts and self._reason is not None:
            deltas += self._sealed()
        return deltas

    def _text_alone(self, chunk: Mapping[str, Any]) -> str | None:
        """Return the text of a chunk that brings nothing else, as nearly all of them do.

        For a quarter of what it takes to look for everything that a chunk may bring.
        """
        try:
            (choice,) = chunk["choices"]
            delta = choice["delta"]
            said = delta["content"]
            is_alone = (
                len(delta) == 1
                and choice["index"] == self._choice
                and not choice.get("finish_reason")
                and not chunk.get("usage")
                and not chunk.get("error")
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        is_known = self._response_id and not self._thoughts and chunk.get("object") != "error"
        return said if is_alone and is_known and isinstance(said, str) else None

    def finish(self) -> Finished:
        """Return the last delta. Small servers say `stop` although they ask for calls."""
        assert self.finished
        reason = self._reason or "stop"
        if reason == "stop" and self._calls.count:
            reason = "tool_calls"
        return Finished(reason, self._response_id, self._model, assumed=self._reason is None)

    def _require_choice(self) -> None:
        """Refuse an end mark before any reply: a gateway sends it for a server that went away."""
        if self._choice is _UNKNOWN:
            raise self._failures.cut_short()

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
            if text(reason) in _GIVEN_UP:
                raise self._failures.cut_short()
            self._reason = _REASONS.get(text(reason), "stop")

    def _read_delta(self, delta: Mapping[str, object], deltas: list[Delta]) -> None:
        said = delta.get("content") or delta.get("refusal")
        if said and isinstance(said, str):
            self.said_chars += len(said)
            deltas.append(TextDelta(said))
        elif said and isinstance(said, list):
            self._read_parts(said, deltas)
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought and isinstance(thought, str):
            self._think(thought, deltas)
        pieces = delta.get("tool_calls")
        if pieces and isinstance(pieces, list):
            calls = [self._calls.read(piece) for piece in pieces if isinstance(piece, dict)]
            self.said_chars += sum(len(call.arguments) for call in calls)
            deltas.extend(calls)

    def _read_parts(self, parts: list[object], deltas: list[Delta]) -> None:
        """Mistral's reasoning models speak in parts, some of which are thoughts, in parts again."""
        for part in parts:
            match part:
                case {"type": "text", "text": str(said)}:
                    self.said_chars += len(said)
                    deltas.append(TextDelta(said))
                case {"type": "thinking", "thinking": list(thoughts)}:
                    for thought in thoughts:
                        if isinstance(thought, dict):
                            self._think(text(thought.get("text")), deltas)
                case _:
                    pass  # A reference to a source, or what is newer than this wire.

    def _think(self, thought: str, deltas: list[Delta]) -> None:
        self.said_chars += len(thought)
        deltas.append(ReasoningDelta(thought))
        if self._seals:
            self._thoughts.append(thought)

    def _sealed(self) -> list[Delta]:
        thought = clean_text("".join(self._thoughts))
        self._thoughts = []
        sealed = thought and self._calls.count
        return [SealedDelta(Sealed(SEAL, {"reasoning": thought}))] if sealed else []

    def _read_names(self, chunk: Mapping[str, object]) -> None:
        self._response_id = text(chunk.get("id"))
        self._model = text(chunk.get("model"))


class _Calls:
    """Tells a reply's calls apart by what vendors send: an index, an id, a name, or some of it."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._open: dict[object, _OpenCall] = {}
        self._by_id: dict[str, _OpenCall] = {}
        self._latest: object = None
        self.count = 0

    def read(self, said: Mapping[str, object]) -> CallDelta:
        """Return `said` with the index of the call that it belongs to, counted by ourselves."""
        function = said.get("function")
        function = function if isinstance(function, dict) else {}
        piece = _Piece(
            text(said.get("id")),
            text(function.get("name")),
            self._arguments(function.get("arguments")),
        )
        return self._belonging(said.get("index"), piece).read(piece)

    def _belonging(self, index: object, piece: "_Piece") -> "_OpenCall":
        """Some vendors say index 0 for every call, or none at all."""
        indexed = isinstance(index, int)
        key = index if indexed else self._latest
        call = self._open.get(key)
        if call is None or call.is_another(piece, indexed=indexed):
            call = _OpenCall(self.count)
            self.count += 1
            self._by_id.setdefault(piece.call_id, call)
        elif call.is_not(piece):
            # They take turns where no index tells them apart; an id that nobody knows does not.
            call = self._by_id.get(piece.call_id, call)
        self._open[key] = call
        self._latest = key
        return call

    def _arguments(self, value: object) -> str:
        """Arguments come as text; some servers send the object itself."""
        match value:
            case str():
                return value
            case dict():
                return written(value, self._failures)
            case _:
                return ""


class _Piece(NamedTuple):
    """What a chunk says of a call."""

    call_id: str
    name: str
    arguments: str


class _OpenCall:
    """One call, and what has been said of it already."""

    __slots__ = ("_closed", "_id", "_index", "_name")

    def __init__(self, index: int) -> None:
        self._index = index
        self._id = ""
        self._name = ""
        self._closed = False

    def is_another(self, piece: "_Piece", *, indexed: bool) -> bool:
        """Say whether `piece` begins a call after this one: only one with a name can.

        Where ids don't decide, a vendor that counts repeats the name in each piece of a call, and
        one that doesn't count, or counts wrong, sends its calls whole.
        """
        if not piece.name or not self._name:
            return False
        if piece.call_id and self._id:
            return piece.call_id != self._id
        whole_again = self._closed and piece.arguments.startswith("{")
        return not indexed or piece.name != self._name or whole_again

    def is_not(self, piece: "_Piece") -> bool:
        """Say whether `piece`, which begins no call, has the id of another."""
        return bool(piece.call_id and self._id) and piece.call_id != self._id

    def read(self, piece: "_Piece") -> CallDelta:
        """Return the delta, with the id and the name only when they are new."""
        new_id = "" if self._id else piece.call_id
        new_name = "" if self._name else piece.name
        self._id = self._id or piece.call_id
        self._name = self._name or piece.name
        if piece.arguments:
            # In JSON nothing opens right behind what was closed.
            self._closed = piece.arguments.endswith("}")
        return CallDelta(self._index, new_id, new_name, piece.arguments)


def _usage(usage: object) -> Usage:
    """Return what was counted; nothing, and so what is estimated, where it was by halves.

    The other half would count as nothing, and no budget would hold. A prompt of nothing is such a
    half: servers that have it in their cache count it so.
    """
    if not (isinstance(usage, dict) and counts(usage, "prompt_tokens", "completion_tokens")):
        return Usage()
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    reasoning = count(usage, "completion_tokens_details", "reasoning_tokens")
    # For xAI the answer's tokens are all that completes it: its sum tells that it thought beside.
    beside = reasoning > completion or count(usage, "total_tokens") == (
        prompt + completion + reasoning
    )
    return Usage(
        input_tokens=prompt,
        output_tokens=completion + reasoning if beside else completion,
        cache_read_tokens=count(usage, "prompt_tokens_details", "cached_tokens")
        or count(usage, "prompt_cache_hit_tokens"),
        cache_write_tokens=count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens=reasoning,
    )
