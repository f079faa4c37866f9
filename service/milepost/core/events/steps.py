"""The steps of the loop, and what a model said in them."""

from dataclasses import field
from typing import ClassVar

from milepost.core.agents import LoopAction
from milepost.core.events.failure import Failure
from milepost.core.frozen import dataclass
from milepost.core.loops import Pattern
from milepost.core.messages import Sealed
from milepost.core.model import FinishReason
from milepost.core.usage import Usage


@dataclass(frozen=True, slots=True)
class StepStarted:
    """One model call, and the tool calls that it asks for, begin."""

    type: ClassVar = "step.started"
    index: int


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """Every call of the step has a result."""

    type: ClassVar = "step.completed"
    index: int


@dataclass(frozen=True, slots=True)
class MessageStarted:
    """A model is about to be called; written before the call, so that none is forgotten."""

    type: ClassVar = "message.started"
    message_id: str
    model: str


@dataclass(frozen=True, slots=True)
class MessageCompleted:
    """The model's full text, and what it took; `sealed` goes back to its vendor as it is.

    `answered_by` is a fallback's `provider/model`, None where the model that was asked answered.
    """

    type: ClassVar = "message.completed"
    message_id: str
    content: str
    finish_reason: FinishReason
    usage: Usage
    model: str = ""
    response_id: str = ""
    first_delta_ms: int | None = None
    sealed: tuple[Sealed, ...] = ()
    answered_by: str | None = None


@dataclass(frozen=True, slots=True)
class MessageAborted:
    """The message will not be completed: what was shown of it is void, but may cost something."""

    type: ClassVar = "message.aborted"
    message_id: str
    reason: str
    error: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class ReasoningCompleted:
    """The model's thinking beside a message, where the vendor shows it."""

    type: ClassVar = "reasoning.completed"
    message_id: str
    content: str


@dataclass(frozen=True, slots=True)
class ModelRetried:
    """The model is called again after a failure."""

    type: ClassVar = "model.retried"
    message_id: str
    attempt: int
    wait_ms: int
    error: Failure


@dataclass(frozen=True, slots=True)
class ModelFellBack:
    """A model gave no reply, and another one was asked; both are `provider/model`."""

    type: ClassVar = "model.fell_back"
    message_id: str
    failed: str
    chosen: str
    error: Failure


@dataclass(frozen=True, slots=True)
class SideCallAborted:
    """A model that was asked beside the conversation was cut off, with its run or its worker.

    `subject` is what it was asked about, and what for: `call_1_0/coherence`. Its `usage` is known
    where it had answered by then, and nobody could be told what.
    """

    type: ClassVar = "side_call.aborted"
    subject: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class StructuredRetried:
    """The answer did not fit the schema; the model is told `notice` and asked once more."""

    type: ClassVar = "structured.retried"
    message_id: str
    attempt: int
    error: Failure
    notice: str


@dataclass(frozen=True, slots=True)
class LoopDetected:
    """The run turns in a circle; with `warn` the model is told `notice`, with `stop` it ends."""

    type: ClassVar = "loop.detected"
    pattern: Pattern
    tools: tuple[str, ...]
    count: int
    action: LoopAction
    notice: str


@dataclass(frozen=True, slots=True)
class BudgetWarning:
    """Much of a budget is spent: `spent` of `of`, in the unit that `limit` names.

    `budget` is its id, or `run` for one of the run's own limits.
    """

    type: ClassVar = "budget.warning"
    budget: str
    limit: str
    spent: int
    of: int


@dataclass(frozen=True, slots=True)
class BudgetExceeded:
    """A budget has nothing left for what comes next, so the run ends with what it has."""

    type: ClassVar = "budget.exceeded"
    budget: str
    limit: str
    spent: int
    of: int
    resets_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CacheHit:
    """The message was answered from the cache; `age_s` is how old the answer is."""

    type: ClassVar = "cache.hit"
    message_id: str
    age_s: float
