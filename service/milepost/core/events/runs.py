"""How a run begins, waits, is resumed and ends."""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Literal

from milepost.core.agents import Bounds, StructuredOutput
from milepost.core.events.failure import Failure
from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.messages import Image, Message, Role, ToolCall
from milepost.core.model import FinishReason
from milepost.core.usage import Usage

WaitCause = Literal["approval", "client_tool", "child_run", "operator"]
ResumeWhy = Literal[
    "approval", "client_tool", "child_run", "crash", "outage", "drain", "cancel", "retry", "steer"
]
Stopping = Literal["closed", "cancelled", "killed", "left"]


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message that the client gave."""

    role: Role
    content: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What a run answered; `parsed` is the structured form where one was asked for."""

    text: str
    parsed: Json = None


@dataclass(frozen=True, slots=True)
class Parent:
    """The call of another run that started this one; `depth` counts the runs above.

    `session_id` is where the uppermost of them was asked; logs of earlier versions don't say.
    """

    run_id: str
    call_id: str
    depth: int
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a run was forked off another one: behind that one's event `at_seq`."""

    run_id: str
    at_seq: int


@dataclass(frozen=True, slots=True)
class Channel:
    """The chat that a run was asked for in: its channel's name, and which conversation there."""

    name: str
    conversation: str


@dataclass(frozen=True, slots=True)
class RunQueued:
    """A client asked for this. `deadline_ms` is Unix time.

    `response_format` takes the place of the agent's own; without `cache` no reply is looked up.
    `parent` is the call that started the run, `bounds` what that call's run leaves it.
    `forked_from` is set for a run that goes on from the middle of another one.
    `channel` is the chat that its user can be asked in. `if_active` is what it did about the runs
    of its session that were not over, and `replaces` are those that it told to stop. `speakers` are
    the keys that had told something to the runs above it.
    """

    type: ClassVar = "run.queued"
    agent: str
    agent_id: str
    agent_version: int
    session_id: str
    input: tuple[InputMessage, ...]
    reason: str = "ready"
    user: str | None = None
    deadline_ms: int | None = None
    response_format: StructuredOutput | None = None
    cache: bool = True
    parent: Parent | None = None
    bounds: Bounds | None = None
    forked_from: ForkPoint | None = None
    channel: Channel | None = None
    if_active: str | None = None
    replaces: tuple[str, ...] = ()
    speakers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForkedCall:
    """A call of the step in which a run was forked, and how far it had come there.

    `requested` has not begun, and is decided on anew; `unknown` had begun without a result;
    `by` may be who had approved it. `denied` was refused by `by`, with `content` as the reason;
    `done` brought `content`, of which `long` characters may still be made shorter.
    """

    call: ToolCall
    status: Literal["requested", "unknown", "denied", "done"]
    content: str = ""
    by: str = ""
    terminal: bool = False
    long: int = 0


@dataclass(frozen=True, slots=True)
class RunForked:
    """What the run goes on from: all that was said before `at_seq`, as the model saw it there.

    `calls` are those of the last message, if the step is still open. `guarded` are digests of calls
    that the other run has made since, each with the words for whoever is asked before this run
    makes the same call too. `trace_parent` is the span of the other run in which it was.
    """

    type: ClassVar = "run.forked"
    run_id: str
    at_seq: int
    conversation: tuple[Message, ...] = ()
    step: int = 0
    step_open: bool = False
    replied: bool = False
    finish_reason: FinishReason = "stop"
    calls: tuple[ForkedCall, ...] = ()
    guarded: Mapping[str, str] = field(default_factory=dict)
    trace_parent: str | None = None


@dataclass(frozen=True, slots=True)
class RunImported:
    """The run was done elsewhere, and what was said in it was brought here; nothing of it was done.

    There it was known as `run_id`, and ended as `status` at `ended_at`.
    """

    type: ClassVar = "run.imported"
    run_id: str
    status: str
    ended_at: str
    conversation: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A worker took the run for the first time."""

    type: ClassVar = "run.started"
    attempt: int
    worker: str


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A worker took the run again: what its predecessor had in hand is lost."""

    type: ClassVar = "run.resumed"
    attempt: int
    worker: str
    why: ResumeWhy


@dataclass(frozen=True, slots=True)
class RunRetrying:
    """The worker handed the run back, for another to go on."""

    type: ClassVar = "run.retrying"
    why: str


@dataclass(frozen=True, slots=True)
class RunWaiting:
    """Nothing in the run can go on without `cause`; `pending` names what is awaited."""

    type: ClassVar = "run.waiting"
    cause: WaitCause
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunCancelling:
    """Somebody asked for the end; what is in hand is being stopped."""

    type: ClassVar = "run.cancelling"
    by: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunFailing:
    """The run can't go on; what is in hand is being stopped."""

    type: ClassVar = "run.failing"
    error: Failure


@dataclass(frozen=True, slots=True)
class RunRetried:
    """An operator sent a run on that had crashed its workers."""

    type: ClassVar = "run.retried"
    by: str


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The run answered: as its model stopped, or with a tool's result that is `terminal`.

    `routed`: the agent only chooses, and the calls that it asked for are the answer.
    """

    type: ClassVar = "run.completed"
    output: Output
    usage: Usage
    finish_reason: FinishReason | Literal["terminal", "routed"] = "stop"


@dataclass(frozen=True, slots=True)
class RunIncomplete:
    """The run stopped at a limit, with what it had."""

    type: ClassVar = "run.incomplete"
    reason: str
    output: Output
    usage: Usage


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The run can't go on."""

    type: ClassVar = "run.failed"
    error: Failure
    usage: Usage


@dataclass(frozen=True, slots=True)
class StoppedWork:
    """What a run had in hand when it was cancelled, and how it was stopped, at Unix time `at_ms`.

    A message is `closed`: its stream is; so is a summary of what falls out of sight. Calls are
    `cancelled`, or `killed` with their process, and so are the runs that they started. What is
    `left` could not be stopped: `why` says it.
    """

    kind: Literal["message", "summary", "tool_call", "child_run"]
    id: str
    name: str
    how: Stopping
    why: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class RunCancelled:
    """The run was stopped on request; `stopped` names what was in hand and may have acted.

    `work` says what became of each; logs of earlier versions don't.
    """

    type: ClassVar = "run.cancelled"
    by: str
    reason: str | None
    stopped: tuple[str, ...]
    usage: Usage
    work: tuple[StoppedWork, ...] = ()


@dataclass(frozen=True, slots=True)
class RunExpired:
    """The run's time was up."""

    type: ClassVar = "run.expired"
    limit: str
    usage: Usage


Terminal = RunCompleted | RunIncomplete | RunFailed | RunCancelled | RunExpired
