"""The reply that a stream of deltas adds up to."""

from milepost.core.errors import ProviderError
from milepost.core.messages import Sealed
from milepost.core.model import (
    CacheHit,
    CallDelta,
    Delta,
    FellBack,
    Finished,
    ReasoningDelta,
    Reply,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.failures import STREAM_CUT

REPLY_CHARS_MAX = 4_000_000
CALLS_MAX = 128

NO_ARGUMENTS = "{}"


class Assembly:
    """Folds deltas as they come; `reply()` is the sum once the vendor has said that it finished."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._chars = 0
        self._spent = Spent(Usage())
        self._finished: Finished | None = None
        self._cached = False
        self._sealed: list[Sealed] = []

    def feed(self, delta: Delta) -> None:
        """Take the next delta. Raises `ProviderError` when the reply outgrows its bounds."""
        match delta:
            case TextDelta(text):
                self._text.append(text)
                self._grow(len(text))
            case ReasoningDelta(text):
                self._reasoning.append(text)
                self._grow(len(text))
            case CallDelta():
                self._call(delta.index).feed(delta)
                self._grow(len(delta.arguments))
            case Finished():
                self._finished = delta
            case Spent():
                self._spent = delta
            case SealedDelta(sealed):
                self._sealed.append(sealed)
            case CacheHit():
                self._cached = True
            case FellBack():
                pass  # Nothing of the reply.

    def reply(self) -> Reply:
        """Return the whole reply. Raises `ProviderError` when the stream ended before its end."""
        if self._finished is None:
            raise ProviderError(
                f"The model's stream ended after {self._chars} characters, in the middle of the"
                " reply; try again",
                code=STREAM_CUT,
                retryable=True,
            )
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=tuple(self._calls[index].requested() for index in sorted(self._calls)),
            finish_reason=self._finished.reason,
            usage=self._spent.usage,
            response_id=self._finished.response_id,
            model=self._finished.model,
            cached=self._cached,
            sealed=tuple(self._sealed),
            assumed=self._finished.assumed,
            requests=self._spent.requests,
        )

    def _grow(self, chars: int) -> None:
        self._chars += chars
        if self._chars > REPLY_CHARS_MAX:
            raise ProviderError(
                f"The reply is longer than {REPLY_CHARS_MAX} characters; ask for less"
            )

    def _call(self, index: int) -> "_Call":
        if (call := self._calls.get(index)) is not None:
            return call
        if len(self._calls) >= CALLS_MAX:
            raise ProviderError(f"The reply asks for more than {CALLS_MAX} tool calls at once")
        return self._calls.setdefault(index, _Call())


class _Call:
    """One tool call in the making."""

    __slots__ = ("_arguments", "_name", "_provider_id")

    def __init__(self) -> None:
        self._provider_id = ""
        self._name = ""
        self._arguments: list[str] = []

    def feed(self, delta: CallDelta) -> None:
        self._provider_id = self._provider_id or delta.provider_id
        self._name = self._name or delta.name
        self._arguments.append(delta.arguments)

    def requested(self) -> RequestedCall:
        # Models call a tool without parameters with `{}` or with nothing at all; both mean `{}`.
        arguments = "".join(self._arguments).strip() or NO_ARGUMENTS
        return RequestedCall(self._provider_id, self._name, arguments)
