"""Where a run stands, and what has been said in it."""

from collections.abc import Mapping
from dataclasses import field
from itertools import takewhile

from milepost.core.agents import Bounds, StructuredOutput
from milepost.core.copying import replace
from milepost.core.events import (
    Channel,
    Failure,
    MemorySummarizing,
    Parent,
    RunCancelling,
    SessionLoaded,
    SteerReceived,
    Stretch,
)
from milepost.core.frozen import dataclass
from milepost.core.loops import Footprint
from milepost.core.messages import NOT_RUN, Message
from milepost.core.model import FinishReason
from milepost.core.open_call import ANSWERED, OpenCall
from milepost.core.usage import Usage


@dataclass(frozen=True)  # Without slots, as all that is copied with every event.
class State:
    """A run, folded. `messages` begins with the input; `calls` are those of the present step.

    `trail` is what its calls have come to lately. `tool_calls` counts those that were begun, by it
    and by the runs below it that are over; `children` is what these have used. `open_children` are
    the runs that it started and that are not over.

    `trim` is what falls out of sight with this run, until something is told of it: `summary`.

    A fork begins with `inherited` messages and `steps_before` steps that were another run's, and
    asks before a call whose digest is `guarded`.

    `steers` is what was said since the run began and no model has read yet, `steered` the ids of
    all that was.
    """

    messages: tuple[Message, ...] = ()
    calls: Mapping[str, OpenCall] = field(default_factory=dict)
    deadline_ms: int | None = None
    attempt: int = 0
    crashes: int = 0  # In a row, without anything achieved in between.
    loaded: SessionLoaded | None = None
    trim: Stretch | None = None
    summarizing: MemorySummarizing | None = None
    summary: str = ""
    step: int = 0
    step_open: bool = False
    replied: bool = False
    finish_reason: FinishReason = "stop"
    messages_started: int = 0
    open_message: str | None = None
    message_lost: bool = False
    failures: int = 0
    failure: Failure | None = None
    denials: Mapping[str, str] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    response_format: StructuredOutput | None = None
    cache: bool = True
    parent: Parent | None = None
    bounds: Bounds | None = None
    channel: Channel | None = None
    children: Usage = field(default_factory=Usage)
    open_children: frozenset[str] = frozenset()
    screening: bool = False
    screened: bool = False
    blocked: str | None = None
    corrections: int = 0
    trail: tuple[Footprint, ...] = ()
    tool_calls: int = 0
    warned: frozenset[str] = frozenset()
    exceeded: bool = False
    waiting: bool = False
    cancelling: RunCancelling | None = None
    failing: Failure | None = None
    ended: bool = False
    inherited: int = 0
    steps_before: int = 0
    guarded: Mapping[str, str] = field(default_factory=dict)
    steers: tuple[SteerReceived, ...] = ()
    steered: frozenset[str] = frozenset()
    speakers: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The last thing that the model said, or nothing."""
        said = (turn.content for turn in reversed(self.messages) if turn.role == "assistant")
        return next(said, "")


def transcript(state: State) -> tuple[Message, ...]:
    """Return all that was said in the run, the present step's results included, none left open.

    What no model was told any more stands behind the end of the run.
    """
    said = (*state.messages, *results(state.calls)) if state.calls else state.messages
    return (*said, *map(as_message, state.steers)) if state.ended and state.steers else said


def vetted(state: State) -> tuple[Message, ...]:
    """Return the transcript up to what came too late for the guardrails to look at it."""
    looked_at = tuple(takewhile(lambda steer: steer.screened, state.steers))
    return transcript(replace(state, steers=looked_at))


def results(calls: Mapping[str, OpenCall]) -> list[Message]:
    """Results stand in the order in which the model asked, whenever they came.

    A tool that brings nothing was run all the same: who heard otherwise would call it again.
    """
    return [
        Message("tool", call.content if call.status in ANSWERED else NOT_RUN, call_id=call_id)
        for call_id, call in calls.items()
    ]


def as_message(said: SteerReceived) -> Message:
    """Return what was said to a running run as the message that it is."""
    return Message("user", said.content, images=said.images)
