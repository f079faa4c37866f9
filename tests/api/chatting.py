"""A chat with a shop: tools that put refunds off, what executes them, and how a test talks."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import Update, update

from milepost.store import pending, schema
from milepost.store.pending import PendingRow
from milepost.store.store import Store
from milepost.store.work import Statement, Work
from tests.api.making import made
from tests.api.serving import Service, serving, settings_for
from tests.stubs.directed_model import DirectedModel, directed_model

TOOLS = '''
import asyncio
from pathlib import Path

from milepost import ToolContext, ToolError, executor, stash_pending, tool

DONE = Path(__file__).with_name("done.txt")

def note(line: str) -> str:
    with DONE.open("a") as file:
        file.write(line + "\\n")
    return line

@tool
def refund(order: str, cents: int = 100, ttl_s: float = 60) -> object:
    """Refund an order, once its owner has said yes."""
    args = {"order": order, "cents": cents}
    put_off = stash_pending("refund", f"Refund {cents} cents of {order}", args, ttl_s)
    return put_off or note(f"at once {order}")

@tool
async def from_context(order: str, context: ToolContext) -> object:
    """Refund an order, once its owner has said yes."""
    return context.stash_pending("refund", f"Refund {order}", {"order": order, "cents": 1})

@tool
def twice() -> object:
    """Put two things off."""
    stash_pending("refund", "the first", {"order": "1", "cents": 1})
    return stash_pending("refund", "the second", {"order": "2", "cents": 2})

@tool
def prepare(order: str) -> str:
    """Put something off, and do what it takes to do it later."""
    stash_pending("refund", f"Refund {order}", {"order": order, "cents": 1})
    return note(f"prepared {order}")

@tool
def then_fail() -> object:
    """Put something off, and fail."""
    stash_pending("refund", "a refund", {"order": "1", "cents": 1})
    raise ToolError("it cannot be refunded")

@tool
def put_off(kind: str, args: dict[str, object] | None = None) -> object:
    """Put off anything."""
    return stash_pending(kind, f"Do {kind}", args)

@tool(isolation="process")
def isolated(order: str) -> object:
    """Refund an order, from a process of its own."""
    return stash_pending("refund", f"Refund {order}", {"order": order, "cents": 7})

@tool(requires_approval=True)
def charge(order: str) -> str:
    """Charge for an order."""
    return note(f"charged {order}")

@executor("refund", effect="once")
def do_refund(order: str, cents: int) -> str:
    """Refund."""
    return note(f"refunded {cents} of {order}")

@executor("quiet")
def do_quietly() -> None:
    """Do it, and say nothing."""
    note("done quietly")

@executor("broken")
def do_broken() -> str:
    """Break."""
    raise ValueError("the card of Zanzibar was declined")

@executor("gated", permissions=["nobody"])
def do_gated() -> str:
    """Do what nobody may."""
    return note("gated")
'''
AGENT = {
    "name": "clerk",
    "model": "openai/directed",
    "tools": [
        "refund", "from_context", "twice", "prepare", "then_fail", "put_off", "isolated", "charge",
    ],
}  # fmt: skip


@dataclass(slots=True)
class Chat:
    """One user's side of a conversation. Every message has an id of its own."""

    client: httpx2.AsyncClient
    store: Store
    model: DirectedModel
    folder: Path
    user: str = "+5511999"
    conversation: str = "c1"
    channel: str = "whatsapp"
    wait_s: int = 20
    _numbers: Iterator[int] = field(default_factory=count)

    async def post(self, **body: Any) -> httpx2.Response:
        """Send a message."""
        told = {
            "user": self.user,
            "conversation": self.conversation,
            "message_id": f"m{next(self._numbers)}",
            "agent": "clerk",
            **body,
        }
        path = f"/v1/channels/{self.channel}/messages?wait={self.wait_s}"
        return await self.client.post(path, json=told)

    async def say(self, text: str, **body: Any) -> dict[str, Any]:
        """Say something, and return what it did."""
        return _shown(await self.post(text=text, **body))

    async def press(self, intent: str, **body: Any) -> dict[str, Any]:
        """Press a button, and return what it did."""
        return _shown(await self.post(intent=intent, **body))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Have the model call a tool, and return what the message did."""
        return await self.say(f"call {tool} {json.dumps(arguments)}")

    async def waiting(self) -> dict[str, Any] | None:
        """Return what waits for the user."""
        path = f"/v1/channels/{self.channel}/conversations/{self.conversation}/pending"
        answer = await self.client.get(path, params={"user": self.user})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] | None = answer.json()["pending"]
        return found

    @property
    def done(self) -> list[str]:
        """What the tools have done."""
        file = self.folder / "done.txt"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def asked(self) -> int:
        """How often the model was asked."""
        return len(self.model.requests)

    async def change(self, pending_id: str, **values: Any) -> None:
        """Change what is kept of an action, as nobody may."""
        table = schema.pending_actions
        await self.store.write(_done(update(table).where(table.c.id == pending_id).values(values)))

    async def record(self, pending_id: str) -> PendingRow:
        """Return what is kept of an action."""
        row = await self.store.read(pending.find("default", pending_id))
        assert row is not None
        return row

    async def run(self, run_id: str) -> dict[str, Any]:
        """Return a run."""
        found: dict[str, Any] = (await self.client.get(f"/v1/runs/{run_id}")).json()
        return found


def _done(change: Update) -> Work[None]:
    yield Statement(change)()


def _shown(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


@asynccontextmanager
async def shop(
    database_url: str, folder: Path, model: DirectedModel, **settings: Any
) -> AsyncIterator[Service]:
    """Run a service with the shop's tools, on a model that the test directs."""
    tools = folder / "shop.py"
    tools.write_text(TOOLS)
    given = {"tools": str(tools), "OPENAI_BASE_URL": model.base_url, **settings}
    async with serving(settings_for(database_url, **given)) as service:
        yield service


@asynccontextmanager
async def chatting(database_url: str, folder: Path, **settings: Any) -> AsyncIterator[Chat]:
    """Run such a service with its agent, and return a user who talks to it."""
    async with (
        directed_model() as model,
        shop(database_url, folder, model, **settings) as service,
        service.client() as client,
    ):
        await made(client, "/v1/agents", AGENT)
        yield Chat(client, service.app._parts.ports.store, model, folder)
