"""What a server answers, as types. `raw` is the whole answer, which may hold more than these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Generic, Literal, NotRequired, TypedDict, TypeVar

from milepost.client.foreign import listed, no_milepost, ours
from milepost.client.members import Sure, Told, fits

T = TypeVar("T")

RunStatus = Literal[
    "queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled", "expired"
]
IfActive = Literal["enqueue", "reject", "interrupt", "rollback", "steer"]
ToolCallState = Literal[
    "requested", "waiting", "started", "completed", "failed", "denied", "interrupted", "unknown"
]
BatchStatus = Literal["running", "cancelling", "completed", "cancelled"]
Overlap = Literal["skip", "allow"]
ApprovalStatus = Literal[
    "pending", "approved", "denied", "answered", "expired", "withdrawn", "superseded"
]
ApprovalKind = Literal["call", "outcome"]
Decision = Literal["approve", "deny", "happened", "not_happened", "stop"]
Verdict = Literal["allow", "ask", "deny", "invalid"]
BudgetScope = Literal["tenant", "user", "agent", "session"]
BudgetPeriod = Literal["total", "hour", "day", "month"]
MemoryScope = Literal["session", "user", "agent", "tenant"]
MemoryKind = Literal["entity", "relation", "fact", "log"]


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an agent."""

    id: str
    status: Sure[RunStatus]
    agent: str
    agent_version: int
    session_id: str
    created_at: str
    ended_at: str | None
    user: str | None
    made_by: str | None
    output: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None
    finish_reason: str | None
    error: Mapping[str, Any] | None
    waiting_for: Mapping[str, Any] | None
    metadata: Mapping[str, str]
    queue_position: int | None
    rolled_back_by: str | None
    raw: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """Say whether nothing more will happen to it."""
        return self.ended_at is not None

    @property
    def text(self) -> str | None:
        """The answer, once there is one."""
        return None if self.output is None else self.output.get("text")


@dataclass(frozen=True, slots=True)
class Replay:
    """What an agent's rules make of what happened in a run."""

    run_id: str
    agent: str
    agent_version: int
    events: int
    steps: int
    identical: bool
    divergence: Mapping[str, Any] | None
    definition_changed: Sequence[str]
    tools_missing: Sequence[str]
    notes: Sequence[str]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What became of a tool call in a run; long results in a list are cut."""

    call_id: str
    tool: str
    kind: str
    state: ToolCallState
    arguments: Mapping[str, Any]
    effect: str | None
    idempotency_key: str
    attempts: Sure[Sequence[Mapping[str, Any]]]
    approval_ids: Sequence[str]
    child_run_id: str | None
    result: Any
    result_is_cut: bool
    error: Mapping[str, Any] | None
    requested_at: str
    ended_at: str | None
    duration_ms: int | None
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """Many runs of one agent. `counts` says how many of its items are in which status."""

    id: str
    status: BatchStatus
    agent: str
    agent_version: int
    concurrency: int
    created_at: str
    ended_at: str | None
    user: str | None
    made_by: str | None
    counts: Annotated[Mapping[str, int], Told(("total",))]
    done: int
    usage: Mapping[str, Any]
    metadata: Mapping[str, str]
    raw: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """Say whether all of its items are over."""
        return self.ended_at is not None

    @property
    def total(self) -> int:
        """How many items it has."""
        return self.counts["total"]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a batch's item; what its end brought is None until then."""

    index: int
    custom_id: str | None
    run_id: str | None
    status: Sure[RunStatus]
    output: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None
    finish_reason: str | None
    error: Mapping[str, Any] | None
    raw: Mapping[str, Any]

    @property
    def text(self) -> str | None:
        """The answer, if there is one."""
        return None if self.output is None else self.output.get("text")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a batch is, whole in itself; `done` of its `total` items are over.

    `id` is the position behind it: the `after` of whoever goes on from here.
    """

    type: Sure[str]
    batch_id: Sure[str]
    status: Sure[BatchStatus]
    done: Sure[int]
    total: Sure[int]
    counts: Sure[Mapping[str, int]]
    usage: Sure[Mapping[str, Any]]
    id: str
    time: Sure[str]


class ScheduledRun(TypedDict):
    """What a schedule runs: what a run may be given, but for what is about now.

    With `session_id` all of its runs go on with that conversation; without it, each begins one.
    """

    agent: str
    input: str | Sequence[Mapping[str, str]]
    session_id: NotRequired[str | None]
    metadata: NotRequired[Mapping[str, str]]
    user: NotRequired[str | None]
    deadline_s: NotRequired[float | None]
    response_format: NotRequired[Mapping[str, Any] | None]
    cache: NotRequired[bool]
    priority: NotRequired[int]


class ScheduleLast(TypedDict):
    """What became of a schedule's last time: the run that was `started`, or why there is none."""

    scheduled_for: str
    at: str
    result: Literal["started", "skipped", "late", "refused"]
    run_id: str | None
    code: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run that comes again and again. Nothing is `upcoming` while it is not enabled.

    Each of its runs has its id in the metadata, as `schedule_id`, and its time as `scheduled_for`.
    """

    id: str
    name: str | None
    cron: str
    timezone: str
    run: Sure[ScheduledRun]
    overlap: Overlap
    late_max_s: float | None
    enabled: bool
    next_at: str | None
    upcoming: Sequence[str]
    last: ScheduleLast | None
    version: int
    created_at: str
    updated_at: str
    metadata: Mapping[str, str]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Approval:
    """A tool call that waits for a person, or did."""

    id: str
    kind: ApprovalKind
    status: ApprovalStatus
    run_id: str
    agent: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    diff: Sequence[Mapping[str, Any]] | None
    digest: str
    preview: str
    reason: str | None
    required: int
    terms: Mapping[str, Any]
    escalated: bool
    requester: Mapping[str, Any]
    votes: Sequence[Mapping[str, Any]]
    created_at: str
    expires_at: str
    decision: Decision | None
    decided_by: str | None
    comment: str | None
    version: Sure[int]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApprovalChange:
    """What happened to an approval, and how it is since; a `snapshot` is what waited already.

    `id` is the `after` of whoever goes on from here; None where one has to begin anew.
    """

    type: Sure[str]
    approval: Sure[Approval]
    id: str | None
    time: Sure[str]


@dataclass(frozen=True, slots=True)
class Agent:
    """A version of an agent's definition."""

    id: str
    name: str
    version: Sure[int]
    model: str
    instructions: str | None
    tools: Sequence[str]
    policy: Mapping[str, Any] | None
    limits: Mapping[str, Any]
    metadata: Mapping[str, str]
    created_at: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation; `kind` is chat, or what of ours it was made for: child or trial."""

    id: str
    kind: str
    user: str | None
    title: str | None
    version: int
    runs_ended: int
    created_at: str
    updated_at: str
    archived: bool
    ttl_s: int | None
    expires_at: str | None
    keep_s: int | None
    forked_from: Mapping[str, str] | None
    metadata: Sure[Mapping[str, str]]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of what calls take there may be in a period. `scope_value` is None for each one.

    `known` says whether there is the agent or session that it names; None where it names neither.
    """

    id: str
    scope: Sure[BudgetScope]
    scope_value: str | None
    known: bool | None
    period: BudgetPeriod
    limits: Mapping[str, int | None]
    warn_at: float
    version: int
    created_at: str
    updated_at: str
    metadata: Mapping[str, str]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BudgetCounter:
    """What is counted, as far as there is a limit to it, for one user, agent or session."""

    scope_value: str | None
    resets_at: str | None
    spent: Mapping[str, Any]
    reserved: Mapping[str, Any]
    remaining: Mapping[str, Any]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """Something that was learned: what it says, whose it is, and in `source` where it was said."""

    id: str
    scope: Sure[MemoryScope]
    owner: str | None
    kind: MemoryKind
    subject: str | None
    predicate: str | None
    object: str | None
    content: str | None
    attributes: Mapping[str, str]
    mentions: int
    user: str | None
    source: Mapping[str, Any]
    version: int
    created_at: str
    updated_at: str
    mentioned_at: str
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StandingPolicy:
    """The rules of a scope: `tenant`, or a session's id. Without any, the policy is None."""

    scope: str
    policy: Mapping[str, Any] | None
    version: int
    updated_at: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """What would become of a call, and why; with the arguments as the tool would get them."""

    verdict: Verdict
    by: str
    reason: str | None
    arguments: Mapping[str, Any] | None
    coerced: Sequence[str]
    terms: Mapping[str, Any] | None
    error: Mapping[str, Any] | None
    counts: Sequence[int]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's yes that holds for a session; without a digest, whatever the arguments are."""

    id: str
    session_id: Sure[str]
    tool: str
    digest: str | None
    approval_id: str
    granted_by: str
    created_at: str
    expires_at: str
    revoked_by: str | None
    revoked_at: str | None
    active: bool
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Erasure:
    """All that there is of a user, on its way out; `user` is None once it is gone."""

    id: str
    status: Sure[Literal["running", "completed"]]
    user: str | None
    stage: str
    erased: Mapping[str, int]
    asked_by: str
    created_at: str
    ended_at: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """How many seconds things are kept; None is for good."""

    runs_s: int | None
    events_s: int | None
    artifacts_s: int | None
    traces_s: int | None
    memories_s: int | None
    installation: Mapping[str, float | None]
    version: int
    updated_at: str | None
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A stretch of a list; `next_cursor` is the `after` of the next one."""

    items: tuple[T, ...]
    has_more: bool
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run, or a piece of text on its way (which has no `seq`).

    `id` is the position behind it: the `after` of whoever goes on from here.
    """

    type: Sure[str]
    run_id: Sure[str]
    data: Sure[Mapping[str, Any]]
    id: Sure[str]
    seq: int | None = None
    time: str | None = None


def shaped(kind: type[T], body: object) -> T:
    """Return the answer as `kind`; what the server does not say is None.

    Raises `ApiError` for an answer without what comes first of its kind, or with members that are
    of another one: it is somebody else's.
    """
    assert is_dataclass(kind)
    named = [field.name for field in fields(kind)]
    whole = ours(body, named[0])
    if not fits(kind, whole):
        raise no_milepost(str(whole))
    said = {name: whole.get(name) for name in named}
    return kind(**{**said, "raw": whole})


def paged(kind: type[T], body: object) -> Page[T]:
    """Return a list's answer with its members as `kind`. Raises `ApiError` for what is no list."""
    return _page(tuple(shaped(kind, each) for each in listed(body)), ours(body))


def paged_raw(body: object) -> Page[Mapping[str, Any]]:
    """Return a list's answer with its members as they are. Raises `ApiError` for what is none."""
    return _page(tuple(map(ours, listed(body))), ours(body))


def _page(items: tuple[T, ...], body: Mapping[str, Any]) -> Page[T]:
    return Page(items, body.get("has_more", False), body.get("next_cursor"))
