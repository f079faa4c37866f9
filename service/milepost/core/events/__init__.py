"""The facts a run is made of: every event that may stand in its log, and nothing else.

A class's fields are the event's `data` as clients see it; `type` is its name on the wire. The set
grows, but a field never changes its meaning: logs are kept as long as their runs.
"""

from milepost.core.events.approvals import (
    ApprovalAnswer,
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalKind,
    ApprovalRequested,
    ApprovalWithdrawn,
)
from milepost.core.events.calls import (
    ArtifactCreated,
    ChildRunEnded,
    ChildRunStarted,
    Custom,
    Found,
    GuardrailTriggered,
    PolicyDecided,
    ToolCallChecked,
    ToolCallCompleted,
    ToolCallCounted,
    ToolCallCounting,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallInterrupted,
    ToolCallRequested,
    ToolCallScreened,
    ToolCallScreening,
    ToolCallStarted,
    ToolResultCompressed,
    ToolResultCompressing,
)
from milepost.core.events.failure import Failure
from milepost.core.events.memory import (
    MemoryExtracted,
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    SessionLoaded,
    Stretch,
)
from milepost.core.events.runs import (
    Channel,
    ForkedCall,
    ForkPoint,
    InputMessage,
    Output,
    Parent,
    ResumeWhy,
    RunCancelled,
    RunCancelling,
    RunCompleted,
    RunExpired,
    RunFailed,
    RunFailing,
    RunForked,
    RunImported,
    RunIncomplete,
    RunQueued,
    RunResumed,
    RunRetried,
    RunRetrying,
    RunStarted,
    RunWaiting,
    StoppedWork,
    Stopping,
    Terminal,
    WaitCause,
)
from milepost.core.events.steering import InputScreened, InputScreening, SteerApplied, SteerReceived
from milepost.core.events.steps import (
    BudgetExceeded,
    BudgetWarning,
    CacheHit,
    LoopDetected,
    MessageAborted,
    MessageCompleted,
    MessageStarted,
    ModelFellBack,
    ModelRetried,
    ReasoningCompleted,
    SideCallAborted,
    StepCompleted,
    StepStarted,
    StructuredRetried,
)

__all__ = [
    "ApprovalAnswer",
    "ApprovalDecided",
    "ApprovalEscalated",
    "ApprovalExpired",
    "ApprovalKind",
    "ApprovalRequested",
    "ApprovalWithdrawn",
    "ArtifactCreated",
    "BudgetExceeded",
    "BudgetWarning",
    "CacheHit",
    "Channel",
    "ChildRunEnded",
    "ChildRunStarted",
    "Custom",
    "Event",
    "Failure",
    "ForkPoint",
    "ForkedCall",
    "Found",
    "GuardrailTriggered",
    "InputMessage",
    "InputScreened",
    "InputScreening",
    "LoopDetected",
    "MemoryExtracted",
    "MemorySummarized",
    "MemorySummarizing",
    "MemoryTrimmed",
    "MessageAborted",
    "MessageCompleted",
    "MessageStarted",
    "ModelFellBack",
    "ModelRetried",
    "Output",
    "Parent",
    "PolicyDecided",
    "ReasoningCompleted",
    "ResumeWhy",
    "RunCancelled",
    "RunCancelling",
    "RunCompleted",
    "RunExpired",
    "RunFailed",
    "RunFailing",
    "RunForked",
    "RunImported",
    "RunIncomplete",
    "RunQueued",
    "RunResumed",
    "RunRetried",
    "RunRetrying",
    "RunStarted",
    "RunWaiting",
    "SessionLoaded",
    "SideCallAborted",
    "SteerApplied",
    "SteerReceived",
    "StepCompleted",
    "StepStarted",
    "StoppedWork",
    "Stopping",
    "Stretch",
    "StructuredRetried",
    "Terminal",
    "ToolCallChecked",
    "ToolCallCompleted",
    "ToolCallCounted",
    "ToolCallCounting",
    "ToolCallDenied",
    "ToolCallFailed",
    "ToolCallInterrupted",
    "ToolCallRequested",
    "ToolCallScreened",
    "ToolCallScreening",
    "ToolCallStarted",
    "ToolResultCompressed",
    "ToolResultCompressing",
    "WaitCause",
]

Event = (
    RunQueued
    | RunForked
    | RunImported
    | RunStarted
    | RunResumed
    | RunRetrying
    | RunWaiting
    | RunCancelling
    | RunFailing
    | RunRetried
    | Terminal
    | SessionLoaded
    | MemorySummarizing
    | MemorySummarized
    | MemoryTrimmed
    | MemoryExtracted
    | InputScreening
    | InputScreened
    | SteerReceived
    | SteerApplied
    | StepStarted
    | StepCompleted
    | MessageStarted
    | MessageCompleted
    | MessageAborted
    | ReasoningCompleted
    | ModelRetried
    | ModelFellBack
    | SideCallAborted
    | StructuredRetried
    | LoopDetected
    | BudgetWarning
    | BudgetExceeded
    | CacheHit
    | ToolCallRequested
    | ToolCallScreening
    | ToolCallScreened
    | ToolCallCounting
    | ToolCallCounted
    | PolicyDecided
    | ToolCallStarted
    | ToolCallCompleted
    | ToolResultCompressing
    | ToolResultCompressed
    | ArtifactCreated
    | Custom
    | GuardrailTriggered
    | ToolCallFailed
    | ChildRunStarted
    | ChildRunEnded
    | ToolCallDenied
    | ToolCallInterrupted
    | ToolCallChecked
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalExpired
    | ApprovalEscalated
    | ApprovalWithdrawn
)
