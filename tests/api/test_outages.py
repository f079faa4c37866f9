"""A database that is away for a moment, just as a run needs something of it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import GeneratorType
from typing import Any, TypeVar

import httpx2
import pytest
from aiohttp import web

from milepost.store import opening
from milepost.store.engine import Engine
from milepost.store.transaction import OpenTransaction
from milepost.store.work import Work
from tests.api.asking import ended, events
from tests.api.making import a_memory, made, refusal
from tests.api.serving import serving_tenants, settings_for
from tests.api.surface import stocked
from tests.store.breaking import BreakingEngine
from tests.stubs.directed_model import directed_model
from tests.stubs.web_server import web_server

T = TypeVar("T")

AWAY = 3
TOOLS = '''
from typing import Annotated

from milepost import Secret, ToolContext, tool


@tool
async def charge(order: str, token: Annotated[str, Secret("SHOP")]) -> str:
    """Charge an order."""
    return f"charged {order}"


@tool(effect="transactional")
async def book(context: ToolContext) -> str:
    """Look into the database."""
    [found] = await context.tx.execute("SELECT 'booked' AS it", {})
    return str(found["it"])
'''
PARTS = {
    "policies.standing": ("charge", {"order": "7"}),
    "secrets.get": ("charge", {"order": "7"}),
    "secrets.get for a declared tool": ("look", {}),
    "transaction": ("book", {}),
    "stored_notes._kept": ("remember", {"fact": "Tea is at five."}),
    "memories.matching": ("recall", {"query": "the shop"}),
}
STREAMED = {
    "/v1/batches/{batch_id}/results": "batches.results",
    "/v1/memories": "memories.search",
    "/v1/runs/{run_id}/events": "log_pages._read",
    "/v1/sessions/{session_id}/events": "session_stream.upcoming",
    "/v1/sessions/{session_id}/export": "session_past.past",
    "/v1/users/{user}/export": "sessions.search",
}


class Faint(BreakingEngine):
    """A line that breaks as soon as it is asked for a certain part of the store."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.breaks_at: str | None = None

    async def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        self._meet(_part_of(work))
        return await super().read(work)

    async def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        self._meet(_part_of(work))
        return await super().write(work)

    @asynccontextmanager
    async def transaction(self, limit_s: float) -> AsyncIterator[OpenTransaction]:
        """Give a transaction of the real engine."""
        self._meet("transaction")
        async with super().transaction(limit_s) as opened:
            yield opened

    def _meet(self, part: str) -> None:
        if part == self.breaks_at:
            self.breaks_at, self.absences = None, AWAY


def _part_of(work: Work[Any]) -> str:
    assert isinstance(work, GeneratorType)
    code = work.gi_code
    return f"{Path(code.co_filename).stem}.{code.co_name}"


def a_source(url: str) -> dict[str, Any]:
    """Return the body of a tool that is a request with a secret."""
    tool = {
        "name": "look",
        "description": "Look.",
        "url": url,
        "headers": {"Authorization": "Bearer ${secret:SHOP}"},
    }
    return {"name": "shop", "kind": "http", "tools": [tool]}


async def answer(_: web.Request) -> web.Response:
    """Answer as somebody else's API."""
    return web.json_response("looked")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[Faint]:
    """All lines over which a process of this test reaches its database."""
    opened: list[Faint] = []
    really_open = opening.open_engine

    async def open_engine(*args: Any, **kwargs: Any) -> Faint:
        opened.append(Faint(await really_open(*args, **kwargs)))
        return opened[-1]

    monkeypatch.setattr(opening, "open_engine", open_engine)
    return opened


@pytest.mark.parametrize("part", PARTS)
async def test_what_a_call_needs_of_the_database_is_waited_for(
    part: str, database_url: str, lines: list[Faint], tmp_path: Path
) -> None:
    """The tool has not begun: to call that a failure would have the model give up for nothing."""
    (tmp_path / "shop_tools.py").write_text(TOOLS)
    name, arguments = PARTS[part]
    agent = {"name": "clerk", "model": "openai/directed", "tools": [name]}
    async with directed_model() as model, web_server(answer) as server:
        settings = settings_for(
            database_url,
            tools=str(tmp_path / "shop_tools.py"),
            toolbox="remember,recall",
            egress_allow="127.0.0.1",
            OPENAI_BASE_URL=model.base_url,
        )
        async with serving_tenants(settings) as keyed:
            client = keyed.acme
            await client.put("/v1/secrets/SHOP", json={"value": "tok-Zanzibar9041"})
            await client.put("/v1/policies/tenant", json={"policy": {"allow": ["*"]}})
            await made(client, "/v1/memories", a_memory())
            await made(client, "/v1/tool_sources", a_source(server.url))
            await made(client, "/v1/agents", agent)

            for line in lines:
                line.breaks_at = part.split(maxsplit=1)[0]
            said = f"call {name} {json.dumps(arguments)}"
            run = await made(client, "/v1/runs", {"agent": "clerk", "input": said})
            await ended(client, run["id"])
            log = await events(client, run["id"])

    assert any(line.breaks_at is None for line in lines), "the database was there all the time"
    assert {"tool_call.failed", "run.resumed"}.isdisjoint(event["type"] for event in log)
    assert "tool_call.completed" in [event["type"] for event in log]


async def test_an_answer_that_cannot_even_begin_is_refused(
    database_url: str, lines: list[Faint]
) -> None:
    """Whoever has a status of 200 and no more knows neither what is wrong nor when to come back."""
    async with serving_tenants(settings_for(database_url)) as keyed:
        things = await stocked(keyed.acme)
        for path, part in STREAMED.items():
            for line in lines:
                line.breaks_at, line.absences = part, 0
            answer = await keyed.acme.get(
                path.format(**things), headers={"accept": "application/x-ndjson"}
            )
            assert (path, *refusal(answer)) == (path, 503, "database_unavailable")


async def test_an_answer_that_breaks_off_is_told_apart_from_a_whole_one_and_by_one_line(
    database_url: str, lines: list[Faint], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tenants(settings_for(database_url)) as keyed:
        things = await stocked(keyed.acme)
        caplog.clear()
        for line in lines:
            line.breaks_at = "memories.search"

        with pytest.raises(httpx2.TransportError):
            await keyed.acme.get("/v1/users/{user}/export".format(**things))

    assert any(line.breaks_at is None for line in lines), "the database was there all the time"
    told = ("milepost.api", "uvicorn.error")
    [said] = [each for each in caplog.records if each.name in told and each.levelname != "INFO"]
    assert (said.levelname, said.exc_info) == ("WARNING", None)
    assert "a response broke off" in said.getMessage()
    assert "database_unavailable" in said.getMessage()
