"""The events of a streamed reply of the Responses API as deltas, however odd the server."""

from collections.abc import Callable, Mapping
from itertools import chain
from typing import ClassVar

import orjson

from milepost.core.errors import ProviderError
from milepost.core.json import Json, UnencodableError, clean
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
from milepost.providers.payload import count, counts, parsed, text
from milepost.providers.responses_items import Item, Items
from milepost.providers.responses_outline import (
    call_mark,
    is_worth_returning,
    sealed_outline,
    text_mark,
)

DONE = b"[DONE]"
SEALED_BYTES_MAX = 4_000_000

Event = Mapping[str, object]

_CUT: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
# What is wrong with the request stays wrong when it is sent again; all else may pass.
_FAULTS_OF_THE_REQUEST = frozenset(
    {
        "bio_policy", "data_residency_mismatch", "empty_image_file", "failed_to_download_image",
        "image_content_policy_violation", "image_file_not_found", "image_file_too_large",
        "image_parse_error", "image_too_large", "image_too_small", "invalid_base64_image",
        "invalid_image", "invalid_image_format", "invalid_image_mode", "invalid_image_url",
        "invalid_prompt", "misalignment_policy_violation", "unsupported_image_media_type",
    }
)  # fmt: skip
_BETWEEN_THOUGHTS = "\n\n"


class Events:
    """Decodes one reply's events, and knows whether the reply has come to its end.

    What a server says of a thing as a whole counts as far as it has not said it in pieces.
    """

    def __init__(self, failures: Failures, seal: str) -> None:
        self._failures = failures
        self._seal = seal
        self._items = Items(failures)
        self._thought_at: tuple[Item, object] | None = None
        self._sealed_bytes = 0
        self._reason: FinishReason = "stop"
        self._assumed = False
        self._response_id = ""
        self._model = ""
        self.done = False
        self.spent = False
        self.said_chars = 0

    @property
    def finished(self) -> bool:
        """Whether the reply is whole. Nothing follows its last event."""
        return self.done

    def decode(self, payload: bytes) -> list[Delta]:
        """Return the deltas of one `data` line. Raises `ProviderError` for an error inside."""
        if self.done:
            return []
        if payload == DONE:
            self._end_unexplained()
            return []
        event = parsed(payload, self._failures)
        deltas: list[Delta] = []
        read = self._READERS.get(text(event.get("type")))
        if read is not None:
            read(self, event, deltas)
        elif error := event.get("error"):
            raise self._failures.inside(error)
        return deltas

    def finish(self) -> Finished:
        """Return the last delta."""
        assert self.finished
        reason = self._reason
        if reason == "stop" and self._items.calls:
            reason = "tool_calls"
        return Finished(reason, self._response_id, self._model, assumed=self._assumed)

    # --- Pieces --------------------------------------------------------------------------------

    def _say(self, event: Event, deltas: list[Delta]) -> None:
        self._text(self._items.of(event, "message"), text(event.get("delta")), deltas)

    def _think(self, event: Event, deltas: list[Delta]) -> None:
        place = event.get("summary_index", event.get("content_index"))
        self._thought(self._items.of(event, "reasoning"), place, text(event.get("delta")), deltas)

    def _ask(self, event: Event, deltas: list[Delta]) -> None:
        self._arguments(self._items.of(event, "function_call"), text(event.get("delta")), deltas)

    def _text(self, item: Item, said: str, deltas: list[Delta]) -> None:
        if said:
            item.pieces.append(said)
            self.said_chars += len(said)
            deltas.append(TextDelta(said))

    def _thought(self, item: Item, place: object, said: str, deltas: list[Delta]) -> None:
        if not said:
            return
        begins_anew = self._thought_at is not None and self._thought_at != (item, place)
        self._thought_at = (item, place)
        item.pieces.append(said)
        self.said_chars += len(said)
        deltas.append(ReasoningDelta(_BETWEEN_THOUGHTS + said if begins_anew else said))

    def _arguments(self, item: Item, said: str, deltas: list[Delta]) -> None:
        if said and item.whole:
            raise self._failures.unreadable("more of a call that was whole", said.encode())
        if said:
            item.pieces.append(said)
            self.said_chars += len(said)
            deltas.append(CallDelta(item.ordinal, arguments=said))

    # --- Things as a whole ---------------------------------------------------------------------

    def _begin(self, event: Event, deltas: list[Delta]) -> None:
        if isinstance(told := event.get("item"), dict):
            self._name(self._items.announced(event, told), told, deltas)

    def _complete_arguments(self, event: Event, deltas: list[Delta]) -> None:
        item = self._items.of(event, "function_call")
        self._whole_arguments(item, event, deltas)

    def _whole_arguments(self, item: Item, told: Event, deltas: list[Delta]) -> None:
        self._arguments(item, self._rest(item, text(told.get("arguments"))), deltas)
        item.whole = True

    def _complete(self, event: Event, deltas: list[Delta]) -> None:
        if isinstance(told := event.get("item"), dict):
            self._close(self._items.ended(event, told), told, deltas)

    def _close(self, item: Item, told: Event, deltas: list[Delta]) -> None:
        """Take in what is said of an item at its end, and what it is to be remembered by."""
        if item.closed:
            return
        match item.kind:
            case "function_call":
                self._name(item, told, deltas)
                self._whole_arguments(item, told, deltas)
                item.mark = call_mark()
            case "message":
                whole_text = "".join(_texts(told.get("content"), "text", "refusal"))
                self._text(item, _unsaid(item, whole_text), deltas)
                chars = sum(map(len, item.pieces))
                item.mark = text_mark(chars, text(told.get("phase")) or None)
            case "reasoning":
                self._complete_thoughts(item, told, deltas)
                item.mark = self._kept(told)
            case _:
                pass  # What the vendor's own tools do, or what is newer than this wire.
        item.closed = True

    def _complete_thoughts(self, item: Item, told: Event, deltas: list[Delta]) -> None:
        if item.pieces:
            return
        whole = (_texts(told.get(kind), "text") for kind in ("summary", "content"))
        for place, thought in enumerate(chain.from_iterable(whole)):
            self._thought(item, place, thought, deltas)

    def _name(self, item: Item, told: Event, deltas: list[Delta]) -> None:
        if item.kind == "function_call" and not item.name and (name := text(told.get("name"))):
            item.name = name
            call_id = text(told.get("call_id")) or text(told.get("id"))
            deltas.append(CallDelta(item.ordinal, call_id, name))

    def _rest(self, item: Item, whole: str) -> str:
        """Return what of a call's arguments has not been said. Two versions of them are none."""
        said = "".join(item.pieces)
        if whole and not whole.startswith(said) and not _mean_the_same(said, whole):
            raise self._failures.unreadable("a call in two versions", whole.encode())
        return _unsaid(item, whole)

    def _kept(self, told: Event) -> Mapping[str, Json] | None:
        try:
            item = clean(told)
        except UnencodableError:
            return None
        if not isinstance(item, dict) or not is_worth_returning(item):
            return None
        self._sealed_bytes += len(orjson.dumps(item))
        if self._sealed_bytes > SEALED_BYTES_MAX:
            raise self._failures.unreadable(f"more than {SEALED_BYTES_MAX} bytes of thoughts", b"")
        return item

    # --- The reply -----------------------------------------------------------------------------

    def _identify(self, event: Event, _: list[Delta]) -> None:
        response = event.get("response")
        if isinstance(response, dict):
            self._response_id = self._response_id or text(response.get("id"))
            self._model = text(response.get("model")) or self._model

    def _end(self, event: Event, deltas: list[Delta]) -> None:
        self._identify(event, deltas)
        told = event.get("response")
        response = told if isinstance(told, dict) else {}
        # Where the event and the reply in it disagree, the worse of the two holds.
        ends = {text(event.get("type")).rpartition(".")[2], text(response.get("status"))}
        if failing := ends & {"failed", "cancelled"}:
            raise self._failed(response.get("error") or f"the reply was {min(failing)}")
        if "incomplete" in ends:
            details = response.get("incomplete_details")
            cut = text(details.get("reason")) if isinstance(details, dict) else ""
            self._reason = _CUT.get(cut, "length")
        self._catch_up(response.get("output"), deltas)
        took = response.get("usage")
        if isinstance(took, dict) and (usage := _usage(took)).input_tokens:
            self.spent = True
            deltas.append(Spent(usage))
        marks = [item.mark for item in self._items if item.mark is not None]
        deltas += [SealedDelta(sealed) for sealed in sealed_outline(marks, self._seal)]
        self.done = True

    def _end_unexplained(self) -> None:
        """Take the end mark. A gateway sends it for a server that went away before any reply."""
        self._require_names()
        if not (self.said_chars or self._items.calls):
            raise self._failures.cut_short()
        self._assumed = self.done = True

    def _catch_up(self, output: object, deltas: list[Delta]) -> None:
        """Some servers say the whole reply at once, at its end."""
        if not self._items and isinstance(output, list):
            for told in output:
                self._complete({"item": told}, deltas)
        self._require_names()

    def _require_names(self) -> None:
        for item in self._items:
            if item.kind == "function_call" and not item.name:
                raise self._failures.unreadable("arguments of a call without a name", b"")

    def _fail(self, event: Event, _: list[Delta]) -> None:
        raise self._failed(event.get("error") or event)

    def _failed(self, error: object) -> ProviderError:
        match error:
            case {"code": str(code), "message": message} if code in _FAULTS_OF_THE_REQUEST:
                return self._failures.inside({"code": 400, "message": message})
            case _:
                return self._failures.inside(error)

    _READERS: ClassVar[Mapping[str, Callable[["Events", Event, list[Delta]], None]]] = {
        "error": _fail,
        "response.cancelled": _end,
        "response.completed": _end,
        "response.created": _identify,
        "response.failed": _end,
        "response.function_call_arguments.delta": _ask,
        "response.function_call_arguments.done": _complete_arguments,
        "response.in_progress": _identify,
        "response.incomplete": _end,
        "response.output_item.added": _begin,
        "response.output_item.done": _complete,
        "response.output_text.delta": _say,
        "response.reasoning_summary_text.delta": _think,
        "response.reasoning_text.delta": _think,
        "response.refusal.delta": _say,
    }


def _unsaid(item: Item, whole: str) -> str:
    said = "".join(item.pieces)
    return whole[len(said) :] if whole.startswith(said) else ""


def _mean_the_same(one: str, other: str) -> bool:
    """Some servers write a call's arguments anew when they say them as a whole."""
    try:
        return bool(orjson.loads(one) == orjson.loads(other))
    except orjson.JSONDecodeError:
        return False


def _texts(parts: object, *keys: str) -> list[str]:
    """Return the texts of a list of parts, each under one of `keys`."""
    if not isinstance(parts, list):
        return []
    told = (part for part in parts if isinstance(part, dict))
    return [said for part in told for key in keys if (said := text(part.get(key)))]


def _usage(usage: Event) -> Usage:
    """Return what was counted; nothing, and so what is estimated, where it was by halves."""
    if not counts(usage, "input_tokens", "output_tokens"):
        return Usage()
    return Usage(
        input_tokens=count(usage, "input_tokens"),
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=count(usage, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=count(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=count(usage, "output_tokens_details", "reasoning_tokens"),
    )
