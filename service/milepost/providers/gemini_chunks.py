"""The chunks of a streamed generateContent reply as deltas."""

import json
from collections.abc import Mapping

from milepost.core.errors import ProviderError
from milepost.core.json import clean
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
from milepost.providers.gemini_seals import (
    sealed_call,
    sealed_continuation,
    sealed_text,
    sealed_thought,
)
from milepost.providers.payload import count, counts, parsed, text, written

SEALED_CHARS_MAX = 4_000_000

_UNKNOWN = object()

# What a vendor says beyond these is a stop: the reply is there, only its reason is news to us.
_REASONS: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "ESCALATION": "content_filter",
    "PUP_LIMITED_DISABLED": "content_filter",
}
_NO_REASON = frozenset({"", "FINISH_REASON_UNSPECIFIED"})
# The model wrote what its own vendor cannot read. Asked again, it mostly does better.
_SPOILT = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})
_UNSIGNED = "MISSING_THOUGHT_SIGNATURE"


class Chunks:
    """Decodes one reply's chunks, and knows whether the reply has come to its end."""

    # No mark says that nothing follows; what ends is the response.
    done = False

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._response_id = ""
        self._model = ""
        self._candidate: object = _UNKNOWN
        self._calls = 0
        self._text_chars = 0
        self._sealed_chars = 0
        self.spent = False
        self.said_chars = 0

    @property
    def finished(self) -> bool:
        """Whether the vendor has said why it stopped, or why it did not begin."""
        return self._reason is not None

    def decode(self, payload: bytes) -> list[Delta]:
        """Return the deltas of one chunk. Raises `ProviderError` for an error inside."""
        chunk = self._parse(payload)
        if error := chunk.get("error"):
            raise self._failures.inside(error)
        deltas: list[Delta] = []
        self._read_names(chunk)
        candidates = chunk.get("candidates")
        if candidates and isinstance(candidates, list) and isinstance(candidates[0], dict):
            self._read_candidate(candidates[0], deltas)
        match chunk.get("promptFeedback"):
            case {"blockReason": str()}:
                self._reason = "content_filter"
            case _:
                pass  # Feedback on a prompt that was taken.
        self._read_usage(chunk.get("usageMetadata"), deltas)
        return deltas

    def finish(self) -> Finished:
        """Return the last delta. That calls were asked for is said nowhere else."""
        assert self._reason is not None
        asks = self._reason == "stop" and self._calls
        return Finished("tool_calls" if asks else self._reason, self._response_id, self._model)

    def _parse(self, payload: bytes) -> Mapping[str, object]:
        """A chunk with a call is not left to orjson, which rounds integers beyond 64 bits."""
        if b'"functionCall"' not in payload:
            return parsed(payload, self._failures)
        try:
            chunk = clean(json.loads(payload))
        except (ValueError, RecursionError):
            chunk = None
        return chunk if isinstance(chunk, dict) else parsed(payload, self._failures)

    def _read_names(self, chunk: Mapping[str, object]) -> None:
        self._response_id = self._response_id or text(chunk.get("responseId"))
        self._model = self._model or text(chunk.get("modelVersion"))

    def _read_candidate(self, candidate: Mapping[str, object], deltas: list[Delta]) -> None:
        """We ask for one candidate. Should several come, the first one to speak is the reply."""
        index = candidate.get("index", 0)  # What is 0 may be left out, as ever in protobuf.
        if self._candidate is _UNKNOWN:
            self._candidate = index
        if index != self._candidate:
            return
        match candidate.get("content"):
            case {"parts": list(parts)}:
                for part in parts:
                    if isinstance(part, dict):
                        self._read_part(part, deltas)
            case _:
                pass  # A candidate that only stops.
        self._stop(candidate, deltas)

    def _read_part(self, part: Mapping[str, object], deltas: list[Delta]) -> None:
        signature = text(part.get("thoughtSignature"))
        said = text(part.get("text"))
        self.said_chars += len(said)
        if isinstance(call := part.get("functionCall"), dict):
            self._read_call(call, signature, deltas)
        elif part.get("thought") is True:
            deltas.extend([ReasoningDelta(said)] if said else [])
            self._seal(sealed_thought(said, signature), signature, deltas)
        else:
            start, self._text_chars = self._text_chars, self._text_chars + len(said)
            deltas.extend([TextDelta(said)] if said else [])
            self._seal(sealed_text(start, self._text_chars, signature), signature, deltas)

    def _read_call(self, call: Mapping[str, object], signature: str, deltas: list[Delta]) -> None:
        value = call.get("args")
        arguments = "" if value is None else written(value, self._failures)
        self.said_chars += len(arguments)
        call_id, name = text(call.get("id")), text(call.get("name"))
        deltas.append(CallDelta(self._calls, call_id, name, arguments))
        self._seal(sealed_call(self._calls, signature), signature, deltas)
        self._calls += 1

    def _seal(self, sealed: Sealed, signature: str, deltas: list[Delta]) -> None:
        if not signature:
            return
        self._sealed_chars += len(signature)
        if self._sealed_chars > SEALED_CHARS_MAX:
            raise ProviderError(
                f"The reply is signed with more than {SEALED_CHARS_MAX} characters, which is no"
                " signature"
            )
        deltas.append(SealedDelta(sealed))

    def _stop(self, candidate: Mapping[str, object], deltas: list[Delta]) -> None:
        """Take the reason to stop. Old models say STOP with every chunk, so the last one counts."""
        reason = text(candidate.get("finishReason"))
        if reason in _NO_REASON:
            return
        told = text(candidate.get("finishMessage")).encode(errors="replace")
        if reason in _SPOILT:
            raise self._wasted(f"what it calls {reason}", told)
        if reason == _UNSIGNED:
            raise self._failures.inside({"status": "INVALID_ARGUMENT", "message": reason})
        if reason not in _REASONS and not (self.said_chars or self._calls):
            raise self._wasted(f"nothing, and stopped for {reason}", told)
        self._reason = _REASONS.get(reason, "stop")
        token = text(candidate.get("continuationToken"))
        if token and reason == "CONTINUATION":
            self._seal(sealed_continuation(token), token, deltas)

    def _wasted(self, what: str, told: bytes) -> ProviderError:
        """Return the error of a reply that came to nothing, and is billed like any other."""
        error = self._failures.unreadable(what, told)
        error.at_work = True
        return error

    def _read_usage(self, usage: object, deltas: list[Delta]) -> None:
        """Each chunk counts anew: what the reply took is said once, when it has stopped."""
        if isinstance(usage, dict) and self._is_whole(usage):
            told = _usage(usage)
            self._usage = told if told.input_tokens else self._usage
        if self._usage and self.finished:
            self.spent = True
            deltas.append(Spent(self._usage))
            self._usage = None

    def _is_whole(self, usage: Mapping[str, object]) -> bool:
        """Say whether all is counted. What is 0 is left out, which no answer is that was given."""
        answered = self._text_chars or self._calls
        return counts(usage, "promptTokenCount", *(("candidatesTokenCount",) if answered else ()))


def _usage(usage: Mapping[str, object]) -> Usage:
    """Thoughts are counted apart from the answer, and are part of the output."""
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        input_tokens=count(usage, "promptTokenCount") + count(usage, "toolUsePromptTokenCount"),
        output_tokens=count(usage, "candidatesTokenCount") + thoughts,
        cache_read_tokens=count(usage, "cachedContentTokenCount"),
        reasoning_tokens=thoughts,
    )
