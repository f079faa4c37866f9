"""What a run sees of its session, what falls out of its sight, and what it learned."""

from dataclasses import field
from typing import ClassVar, Literal

from milepost.core.events.failure import Failure
from milepost.core.frozen import dataclass
from milepost.core.usage import Usage


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of a session that fall out of sight: from `first` through `last`, both `turn.index`.

    `id` is what is told of them, once it is.
    """

    id: str
    first: str
    last: str
    messages: int


@dataclass(frozen=True, slots=True)
class SessionLoaded:
    """What the run sees of its session, whose first `turns` runs had ended: `messages` messages.

    They begin with the one at `kept_from`; None in logs of earlier versions, which showed the last
    hundred runs. Before them stand `summaries` and the messages pinned at `pins`, behind them
    `context`, which is what was remembered for this run. `trimmed` falls out of sight with it.
    """

    type: ClassVar = "session.loaded"
    turns: int
    messages: int
    context: str = ""
    kept_from: str | None = None
    summaries: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    trimmed: Stretch | None = None


@dataclass(frozen=True, slots=True)
class MemorySummarizing:
    """A model is about to be asked what is to be told of messages that fall out of sight."""

    type: ClassVar = "memory.summarizing"
    id: str
    first: str
    last: str
    messages: int
    model: str


@dataclass(frozen=True, slots=True)
class MemorySummarized:
    """What runs are told from now on of the session's messages from `first` through `last`."""

    type: ClassVar = "memory.summarized"
    id: str
    first: str
    last: str
    messages: int
    model: str
    content: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class MemoryTrimmed:
    """Messages of the session fell out of sight, and nothing is told of them.

    `error` says why `model` told nothing, where it was to.
    """

    type: ClassVar = "memory.trimmed"
    id: str
    first: str
    last: str
    messages: int
    model: str | None = None
    error: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class MemoryExtracted:
    """What the run `of_run` teaches has become memories: how much of each, log's lines as facts.

    `pruned` is how much older was forgotten for it; `reason` says why nothing was kept.
    """

    type: ClassVar = "memory.extracted"
    of_run: str
    entities: int = 0
    relations: int = 0
    facts: int = 0
    pruned: int = 0
    reason: Literal["no_user", "run_gone", "rolled_back"] | None = None
