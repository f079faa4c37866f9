"""One model call: what is asked, the deltas that stream back, and the reply that they add up to."""

from collections.abc import AsyncIterator, Mapping
from typing import Literal, Protocol

from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.messages import Message, Sealed
from milepost.core.usage import Usage

THINKING_TOKENS_MAX = 1_000_000
"""More than any model thinks with: what is reserved for it is a number that a database can keep."""

FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a model sees it: `parameters` is a JSON Schema (2020-12) of an object."""

    name: str
    description: str
    parameters: Mapping[str, Json]

    def to_dict(self) -> dict[str, Json]:
        """Return the three as JSON."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The JSON Schema (2020-12) that an answer must fit; `name` is what vendors file it under."""

    schema: Mapping[str, Json]
    name: str = "answer"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything that shapes a reply. `None` means "not sent": the vendor's own default holds.

    `response_format` is there where the vendor shall hold its answer to a schema itself.
    `reasoning_effort` is how long the model thinks, in the words of its vendor. `user` shapes
    nothing: it says whose words these are, for whoever keeps what comes of them.
    """

    tenant: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    temperature: float | None = None
    tokens_max: int | None = None
    cache_ttl_s: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str | None = None
    parallel_tools: bool | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None

    @property
    def thinking_tokens(self) -> int | None:
        """How many tokens it may think with, where its effort is a number of them."""
        effort = self.reasoning_effort or ""
        if not (effort.isascii() and effort.isdecimal()):
            return None
        return min(int(effort), THINKING_TOKENS_MAX)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking, where the vendor shows it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the `index`-th tool call: its id and name come once, its arguments in pieces."""

    index: int
    provider_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class SealedDelta:
    """Something to be sent back with the reply when the conversation goes on."""

    sealed: Sealed


@dataclass(frozen=True, slots=True)
class Finished:
    """Why the model stopped, and under which names the vendor filed it.

    `assumed`: the vendor did not say why, so that the reply may lack its end.
    """

    reason: FinishReason
    response_id: str = ""
    model: str = ""
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """What the call took; the last one said counts.

    `requests` is what each request took, where the vendor gave the reply in several.
    """

    usage: Usage
    requests: tuple[Usage, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheHit:
    """The reply that follows was not made by a model just now."""

    age_s: float


@dataclass(frozen=True, slots=True)
class FellBack:
    """The model called `failed` gave no reply; what follows is the one called `chosen`.

    Both are `<provider>/<model>`. It comes before all that `chosen` says. If `at_work`, the vendor
    of `failed` may bill what it did, and told nobody how much that was.
    """

    failed: str
    chosen: str
    code: str
    message: str
    at_work: bool = False


Delta = (
    TextDelta | ReasoningDelta | CallDelta | SealedDelta | Finished | Spent | CacheHit | FellBack
)


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A complete tool call of a reply; `arguments` is the text as the model wrote it."""

    provider_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What a stream of deltas added up to. `assumed`: nobody said why it stopped there.

    `requests` is what each took, where it took several.
    """

    text: str
    reasoning: str
    calls: tuple[RequestedCall, ...]
    finish_reason: FinishReason
    usage: Usage
    response_id: str = ""
    model: str = ""
    cached: bool = False
    sealed: tuple[Sealed, ...] = ()
    assumed: bool = False
    requests: tuple[Usage, ...] = ()


class Provider(Protocol):
    """A vendor, or a wrapper that adds one behaviour to a provider.

    `stream` raises `ProviderError`; leaving the iterator closes the vendor's connection.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]: ...
