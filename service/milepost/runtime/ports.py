"""What the loop of a run needs around it, whoever fills the places: a service, or one process.

Nothing here knows SQL, so that a run in process brings no database along.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from milepost.core.agents import Memory
from milepost.core.context import Seen
from milepost.core.events import Event
from milepost.core.spans import Span
from milepost.core.state import State
from milepost.live.hub import Hub
from milepost.runtime.clock import Clock, NewId
from milepost.runtime.contents import Contents
from milepost.store.records import Append, Claim, InboxMessage, LogEntry


class RunStore(Protocol):
    """Where a run's log is, and what came in for it."""

    async def entries(self, tenant: str, run_id: str, through: int) -> Sequence[LogEntry]:
        """Return the run's log as far as event `through`."""

    async def append(self, item: Append) -> tuple[int, tuple[str, ...]]:
        """Write an iteration; return the inbox's last number and the runs that were set free.

        Raises `FencedError` or `InboxMovedError`.
        """

    async def inbox(self, tenant: str, run_id: str, after: int) -> tuple[int, list[InboxMessage]]:
        """Return the inbox's last number, and what came in after message `after`."""


class Past(Protocol):
    """What was said before a run."""

    async def before(
        self, claim: Claim, memory: Memory | None, summary_id: str, *, begun_only: bool = False
    ) -> Seen:
        """Return what a run that begins sees of its session, within the window of its agent.

        What falls out of sight with it is known as `summary_id`. With `begun_only` it is without
        the input that no model ever read.
        """

    async def again(self, claim: Claim, state: State, *, begun_only: bool = False) -> Seen:
        """Return what a run that is under way saw when it began, as its log tells."""


class Counting(Protocol):
    """Counts what has become durable."""

    def observe_append(self, events: Iterable[Event], spans: Iterable[Span]) -> None:
        """Count one append: its events, and the spans that they closed."""


class RunPorts(Protocol):
    """What a journal writes to, and what it takes time and ids from."""

    @property
    def store(self) -> RunStore: ...

    @property
    def hub(self) -> Hub: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def new_id(self) -> NewId: ...

    @property
    def metrics(self) -> Counting: ...

    @property
    def shelf(self) -> Contents: ...

    @property
    def export(self) -> Callable[[Sequence[Span]], None]: ...
