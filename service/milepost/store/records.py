"""What goes into the store and what comes out of it, as plain values."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from milepost.core.errors import MilepostError
from milepost.core.events import ApprovalKind
from milepost.core.frozen import dataclass
from milepost.core.memories import Finding, MemoryKind, MemoryOrigin, Owner
from milepost.core.policy import PLAIN, Terms
from milepost.core.spans import Span
from milepost.core.usage import Usage


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, encoded: `data` is its JSON."""

    type: str
    time_ms: int
    data: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An event as it stands in the log."""

    seq: int
    type: str
    time_ms: int
    data: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be queued. `scheduled_ms` is None unless it is to start later.

    `metadata` is encoded JSON, `made_by` the key that asks for it, `scopes` the JSON list of what
    that may;
    `request` is the idempotency key with the hash of its request. An agent that `is_remembered` was
    looked up for another run, and is to be confirmed. `if_active` says what it does about the runs
    of its session that are not over, where it does not just stand in line behind them, and
    `replaces` are those that it has told to stop. One for nobody that `follows_session` is for the
    session's user, if that has one. One that `is_trial` tries a single tool.
    """

    id: str
    tenant: str
    session_id: str
    session_is_new: bool
    agent_id: str
    agent: str
    agent_version: int
    user: str | None
    metadata: str
    lane: int
    created_ms: int
    scheduled_ms: int | None
    deadline_ms: int | None
    trace_parent: str | None
    queued: Entry
    request: "Request | None" = None
    agent_is_remembered: bool = False
    scopes: str = "[]"
    parent_run_id: str | None = None
    parent_call_id: str | None = None
    fork: "Fork | None" = None
    made_by: str | None = None
    if_active: "IfActive | None" = None
    replaces: tuple[str, ...] = ()
    follows_session: bool = False
    is_trial: bool = False


@dataclass(frozen=True, slots=True)
class IfActive:
    """What a run does about those of its session that are not over, and by whose wish.

    `said` are the letters that bring its input to the run under way, and `message_ids` their ids.
    """

    then: Literal["reject", "interrupt", "rollback", "steer"]
    by: str
    said: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fork:
    """What a run goes on from: another run as it was behind its event `at_seq`.

    `forked` is the log's second event, `act` what the audit trail keeps.
    """

    run_id: str
    at_seq: int
    forked: Entry
    act: "AuditRow"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An act, for the audit trail; `details` is encoded JSON."""

    id: str
    tenant: str
    actor: str
    action: str
    target: str
    details: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """An idempotent request: `scope` is its method and path, `hash` covers its body."""

    scope: str
    key: str
    hash: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that a worker now holds. It may append from `head` on, as long as `epoch` stands.

    `turns` is how many runs of its session ended before it.

    `made_by` is the key that made the run, `scopes` the JSON list of what that may, `lane` the
    run's priority.

    `entries` is the log where the claim brought it along, which it does for a run's first claim.

    `crashes` is how many workers ended in a row with it in hand, without anything achieved.
    """

    run_id: str
    tenant: str
    session_id: str
    agent_id: str
    agent_version: int
    user: str | None
    epoch: int
    head: int
    inbox_seq: int
    turns: int
    metadata: str
    trace_parent: str | None
    entries: tuple[LogEntry, ...] | None
    scopes: str = "[]"
    lane: int = 0
    made_by: str | None = None
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one model call took, and to whose account."""

    seq: int
    session_id: str
    agent: str
    model: str
    user: str | None
    metadata: str
    time_ms: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class NewApproval:
    """A question to people; `arguments` is encoded JSON.

    `made_by` is the key that made the run, `requester` the user for whom, and `speakers` are the
    keys that have told its model something since.
    """

    id: str
    run_id: str
    session_id: str
    agent: str
    user: str | None
    call_id: str
    tool: str
    arguments: str
    digest: str
    preview: str
    reason: str
    created_ms: int
    expires_ms: int
    kind: ApprovalKind = "call"
    terms: Terms = PLAIN
    requester: str | None = None
    made_by: str | None = None
    speakers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewArtifact:
    """A file that a tool left behind."""

    id: str
    session_id: str
    call_id: str
    filename: str | None
    mime_type: str
    size: int | None
    sha256: str | None
    url: str | None
    role: str | None
    retention: str | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A stretch of a session that falls out of sight, and what is told of it from now on."""

    id: str
    session_id: str
    from_turn: int
    from_index: int
    through_turn: int
    through_index: int
    content: str
    model: str | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class Source:
    """Who said it, and where: what is known of a memory's origin. `place` is `<turn>.<index>`."""

    origin: MemoryOrigin
    user: str | None = None
    run_id: str | None = None
    session_id: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class NewMemory:
    """Something to be kept; what is known already by the same key is said once more."""

    id: str
    tenant: str
    owner: Owner
    finding: Finding
    source: Source
    now_ms: int


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a run that ends leaves for memory: that it `is_to_be_read`, or what it has learned.

    Of each kind its owner keeps at most so many: `kept_max`.
    """

    is_to_be_read: bool = False
    memories: tuple[NewMemory, ...] = ()
    kept_max: Mapping[MemoryKind, int] = field(default_factory=dict)


NO_LESSON = Lesson()


@dataclass(frozen=True, slots=True)
class Change:
    """What an append makes of its run, besides its log. JSON columns come encoded.

    `crashes` is how often it still counts as having crashed its workers in a row.
    """

    status: str
    waiting_for: str | None = None
    outcome: str | None = None
    ended_ms: int | None = None
    resume_why: str | None = None
    crashes: int = 0
    lesson: Lesson = NO_LESSON

    @property
    def ends(self) -> bool:
        """Say whether the run is over with this."""
        return self.ended_ms is not None


@dataclass(frozen=True, slots=True)
class Append:
    """One iteration of a run: events after `head`, and all that changes with them.

    `inbox_seen` is the last message from outside that these events take account of; a change of
    status is refused while there is a later one. `withdrawn` are questions that nobody asks any
    more, although the run goes on: they are refused then, too, since it may be an answer. So are
    events with which the run `skips` a call that its client was to answer. `told_of` are the runs
    of which `summaries` tell: if what was said in one of them is gone by then, nothing is told.
    """

    run_id: str
    tenant: str
    session_id: str
    epoch: int
    head: int
    append_id: str
    entries: tuple[Entry, ...]
    inbox_seen: int
    inbox_consumed: bool = False
    change: Change | None = None
    spans: tuple[Span, ...] = ()
    usage: tuple[UsageRow, ...] = ()
    approvals: tuple[NewApproval, ...] = ()
    withdrawn: tuple[str, ...] = ()
    skips: bool = False
    artifacts: tuple[NewArtifact, ...] = ()
    summaries: tuple[NewSummary, ...] = ()
    told_of: tuple[str, ...] = ()

    @property
    def asks_inbox(self) -> bool:
        """Say whether it is refused while there is a message that was not read yet."""
        return self.change is not None or bool(self.withdrawn) or self.skips


CHILD_LETTER = "child_run"
"""The kind of the message in which a child says that it is over."""

STEER_LETTER = "steer"
"""The kind of the message in which somebody says something to a run that is under way."""

STEERS_MAX = 100
"""How many of them one run takes."""


class InboxMovedError(MilepostError):
    """Something came in for the run meanwhile: read it, and decide again."""

    code = "inbox_moved"


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """Something from outside for a run: `kind` says what, `data` is encoded JSON."""

    seq: int
    kind: str
    data: str


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a search is after; None means any."""

    status: str | None = None
    agent: str | None = None
    session_id: str | None = None
    user: str | None = None
    parent_run_id: str | None = None
    forked_from: str | None = None
    made_by: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of a list, sorted by id: what comes behind `after`, newest first unless said."""

    limit: int
    after: str | None = None
    ascending: bool = False
