"""What becomes of a call that the model asks for, and the rules that say so."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Protocol

from milepost.core.agents import Compression, Limits, LoopDetection
from milepost.core.events import Failure
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.policy import NOBODY_COUNTED, PLAIN, Counted, Terms
from milepost.core.repetition import OnUnknown, ToolEffect


@dataclass(frozen=True, slots=True)
class Run:
    """The call may be made, with these coerced arguments; `coerced` says what was changed.

    `terms` are those on which people would be asked, had nobody granted it. `given` are the
    arguments without the defaults of what was left out.
    """

    arguments: Mapping[str, Json]
    effect: ToolEffect
    coerced: tuple[str, ...] = ()
    reason: str = field(default="", compare=False)
    terms: Terms = field(default=PLAIN, compare=False)
    given: Mapping[str, Json] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must say yes to the call with these coerced arguments first.

    `given` are those without the defaults of what was left out.
    """

    arguments: Mapping[str, Json]
    effect: ToolEffect
    reason: str
    coerced: tuple[str, ...] = ()
    terms: Terms = PLAIN
    given: Mapping[str, Json] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Count:
    """The rules have to know first how often such calls were made."""

    arguments: Mapping[str, Json]
    wanted: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call may not be made; `terms` are those on which people would be asked if it might."""

    by: str
    reason: str
    terms: Terms = field(default=PLAIN, compare=False)


@dataclass(frozen=True, slots=True)
class Reject:
    """The call cannot be made: no such tool, or arguments that do not fit."""

    error: Failure


Ruling = Run | Ask | Count | Refuse | Reject


@dataclass(frozen=True, slots=True)
class Fits:
    """An answer in its structured form."""

    value: Json


@dataclass(frozen=True, slots=True)
class Misfits:
    """Why an answer does not fit the schema, in words for the model."""

    error: str


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """How an answer is read, and how often a model may be told that one does not fit; pure."""

    read: Callable[[str], Fits | Misfits]
    retries: int


Counts = Mapping[str, int]


def unsaid(_: ToolCall) -> OnUnknown | None:
    """Leave it to what holds for every tool."""
    return None


class Judge(Protocol):
    """What validates a call, then judges it; pure. `counts` is what was counted for it."""

    def __call__(self, call: ToolCall, counts: Counts = NOBODY_COUNTED, /) -> Ruling:
        """Return what becomes of the call."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the agent's owner allows.

    `on_unknown` is what a tool wants done when nobody knows whether a call of it has acted, None
    where it says nothing: people are asked about what they had approved, and else the model is
    told.

    `unpriced` names the model if nobody knows what it costs; `repeat_allowed` are the tools that
    may be called again and again; `active_deadline_ms` (Unix time) bounds the work itself.
    `summarizer` is the model that tells of what falls out of sight, if one does.
    """

    judge: Judge
    limits: Limits = field(default_factory=Limits)
    compression: Compression | None = None
    parallel_tools: bool = True
    routing_only: bool = False
    answer: AnswerRule | None = None
    loop_detection: LoopDetection | None = None
    repeat_allowed: frozenset[str] = frozenset()
    screens_input: bool = False
    screens_calls: bool = False
    unpriced: str | None = None
    active_deadline_ms: int | None = None
    summarizer: str | None = None
    on_unknown: Callable[[ToolCall], OnUnknown | None] = unsaid
