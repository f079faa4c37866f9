"""A post office for tests: couriers over a real store, with a clock that one can turn."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from milepost.api.approvals_shown import shown
from milepost.live.hub import Hub
from milepost.runtime.artifacts import Shelf
from milepost.runtime.clock import Ids
from milepost.runtime.journal import Ports
from milepost.runtime.links import Links
from milepost.runtime.secrets import Vault
from milepost.runtime.webhook_messages import Messages
from milepost.store.blobs import DirectoryBlobs
from milepost.store.store import Store
from milepost.store.webhook_deliveries import DeliveryRow
from milepost.store.webhooks import WebhookRow
from milepost.telemetry.metrics import Metrics
from milepost.tools.egress import Egress, open_egress
from milepost.worker.courier import Courier, Post
from tests.store.making import NOW_MS
from tests.store.making_webhooks import deliveries

SECRET_KEY = "a secret key of the tests' own"
PUBLIC = "https://agents.example"


@dataclass
class Office:
    """A store, the way out, and a clock that stands until it is turned."""

    store: Store
    egress: Egress
    folder: Path
    vault: Vault = field(default_factory=lambda: Vault(SECRET_KEY))
    public_url: str | None = PUBLIC
    now_ms: int = NOW_MS
    hub: Hub = field(default_factory=Hub)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def ports(self) -> Ports:
        """What a courier needs of its process."""
        shelf = Shelf(self.store, DirectoryBlobs(self.folder))
        return Ports(self.store, self.hub, lambda: self.now_ms, Ids(), self.metrics, shelf)

    @property
    def messages(self) -> Messages:
        """Who writes the bodies."""
        links = Links(self.vault, self.public_url)
        return Messages(self.store, links, partial(shown, self.store), self.public_url)

    def courier(self, **changes: Any) -> Courier:
        """Return a courier of another process."""
        post = Post(self.messages, self.vault, changes.pop("egress", self.egress))
        return Courier(self.ports, post, chance=lambda: 0.0, **changes)

    async def one(self, row: WebhookRow) -> DeliveryRow:
        """Return the only delivery of a webhook."""
        (found,) = await deliveries(self.store, row)
        return found


@asynccontextmanager
async def office(
    store: Store, folder: Path, allowed: Sequence[str] = ("127.0.0.1",)
) -> AsyncIterator[Office]:
    """Open a post office that may reach this machine."""
    async with open_egress(allowed) as egress:
        yield Office(store, egress, folder)


async def turn(courier: Courier) -> list[DeliveryRow]:
    """Have what is due sent, and wait for what comes of it; return what was sent."""
    taken = await courier.take()
    await asyncio.gather(*(courier.send(row) for row in taken))
    return taken
