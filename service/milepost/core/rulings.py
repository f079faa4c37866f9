"""What becomes of a call that the model asks for, and the rules that say so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from milepost.core.agents import Compression, Limits
from milepost.core.events import Failure
from milepost.core.json import Json
from milepost.core.messages import ToolCall
from milepost.core.repetition import ToolEffect


@dataclass(frozen=True, slots=True)
class Run:
    """The call may be made, with these coerced arguments; `coerced` says what was changed."""

    arguments: Mapping[str, Json]
    effect: ToolEffect
    coerced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A person must say yes to the call with these coerced arguments first."""

    arguments: Mapping[str, Json]
    effect: ToolEffect
    reason: str
    coerced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call may not be made."""

    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reject:
    """The call cannot be made: no such tool, or arguments that do not fit."""

    error: Failure


Ruling = Run | Ask | Refuse | Reject


@dataclass(frozen=True, slots=True)
class Rules:
    """What the agent's owner allows. `judge` validates, then judges, and must be pure."""

    judge: Callable[[ToolCall], Ruling]
    limits: Limits = field(default_factory=Limits)
    compression: Compression | None = None
