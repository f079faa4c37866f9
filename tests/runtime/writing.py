"""A run that is being written while others read it: no model and no tools, only its log."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milepost.core.agents import Agent
from milepost.core.codec import encode
from milepost.core.events import (
    Event,
    InputMessage,
    MessageCompleted,
    MessageStarted,
    Output,
    RunCompleted,
    RunQueued,
)
from milepost.core.state import State
from milepost.core.usage import Usage
from milepost.live.hub import Hub, LiveText, TextKind
from milepost.runtime.artifacts import Shelf
from milepost.runtime.clock import Ids, now_ms
from milepost.runtime.journal import Journal, Ports, ending
from milepost.store.blobs import DirectoryBlobs
from milepost.store.records import Change, Entry
from milepost.store.store import Store
from milepost.telemetry.metrics import Metrics
from milepost.telemetry.spans import SpanFold
from tests.store.making import a_run, held

CLERK = Agent("agt_1", 1, "clerk", "openai/gpt-5-mini")
QUEUED = RunQueued("clerk", "agt_1", 1, "ses_1", (InputMessage("user", "Hi"),))


@dataclass
class Run:
    """A run in a worker's hands, written event by event and piece by piece."""

    store: Store
    hub: Hub
    journal: Journal
    texts: dict[str, LiveText] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.journal.claim.run_id

    @property
    def head(self) -> int:
        return self.journal.head

    async def write(self, *events: Event, change: Change | None = None) -> None:
        """Append events, all in one transaction."""
        await self.journal.append(self.journal.stamp(*events), state=State(), change=change)

    async def start(self, message_id: str = "msg_1") -> LiveText:
        """Begin a message."""
        await self.write(MessageStarted(message_id, CLERK.model))
        return self.begin("message.delta", message_id)

    def begin(self, kind: TextKind, id_: str) -> LiveText:
        """Return a text that begins behind what is written so far."""
        return LiveText(kind, id_, self.head)

    def say(self, text: LiveText, *pieces: str) -> None:
        """Write pieces of a text, live."""
        for piece in pieces:
            self.hub.write(self.id, text, piece)

    async def complete(self, content: str, message_id: str = "msg_1") -> None:
        """Complete a message."""
        await self.write(MessageCompleted(message_id, content, "stop", Usage()))

    async def end(self) -> None:
        """End the run."""
        event = RunCompleted(Output("done"), Usage())
        await self.write(event, change=ending(event, self.journal.state, now_ms()))


async def claimed(store: Store, hub: Hub, **changes: Any) -> Run:
    """Return a run that has just been claimed: its log has two events."""
    queued = Entry("run.queued", now_ms(), encode(QUEUED).decode())
    claim = await held(store, a_run(queued=queued, **changes))
    spans = SpanFold(claim.run_id, None, provider="openai")
    ports = Ports(
        store, hub, now_ms, Ids(), Metrics(), Shelf(store, DirectoryBlobs(Path("unused")))
    )
    return Run(store, hub, Journal(claim, CLERK, State(), spans, ports))
