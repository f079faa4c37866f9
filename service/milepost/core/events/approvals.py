"""What a person was asked, and what became of it."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from milepost.core.frozen import dataclass
from milepost.core.json import Json
from milepost.core.policy import OnTimeout

ApprovalAnswer = Literal["approve", "deny", "happened", "not_happened", "stop"]
ApprovalKind = Literal["call", "outcome"]


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """A person must say yes to exactly this call. `expires_at_ms` is Unix time.

    Of kind `outcome` it asks what came of a call that was cut off. `approvers` may answer, anybody
    with the scope if there are none; `on_timeout` says what silence means.
    """

    type: ClassVar = "approval.requested"
    approval_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Json]
    digest: str
    preview: str
    policy: str
    expires_at_ms: int
    required: int = 1
    kind: ApprovalKind = "call"
    approvers: tuple[str, ...] = ()
    on_timeout: OnTimeout = "deny"


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person answered. `arguments` and `digest` are there when the call was edited.

    `happened` brings the `result` of a call that was cut off; `not_happened` has it made again, and
    `stop` ends the run.
    """

    type: ClassVar = "approval.decided"
    approval_id: str
    call_id: str
    decision: ApprovalAnswer
    by: str
    comment: str | None = None
    arguments: Mapping[str, Json] | None = None
    digest: str | None = None
    result: Json = None


@dataclass(frozen=True, slots=True)
class ApprovalExpired:
    """Nobody answered in time, which means no; with `fail` it is the end of the run."""

    type: ClassVar = "approval.expired"
    approval_id: str
    call_id: str
    then: Literal["deny", "fail"] = "deny"


@dataclass(frozen=True, slots=True)
class ApprovalEscalated:
    """Nobody answered in time, so others are asked, until `expires_at_ms` (Unix time)."""

    type: ClassVar = "approval.escalated"
    approval_id: str
    call_id: str
    approvers: tuple[str, ...]
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ApprovalWithdrawn:
    """The question fell away: with its run, or because somebody took it back."""

    type: ClassVar = "approval.withdrawn"
    approval_id: str
    call_id: str
    by: str | None = None
    reason: str | None = None
