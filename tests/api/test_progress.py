"""`tool_call.progress` on the wire: what a tool says while it runs, which is kept nowhere."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.api.asking import events
from tests.api.making import made
from tests.api.serving import serving, settings_for
from tests.live.client import Sent, parsed
from tests.stubs.directed_model import directed_model

TIMEOUT_S = 20
TOOLS = """
import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from milepost.tools import ToolContext, tool

GATE = Path({gate!r})


@tool(effect="read")
def count() -> Iterator[str]:
    \"\"\"Count, and wait at a gate on the way.\"\"\"
    yield "eins, "
    yield "zw\\u00f6lf, "
    GATE.read_bytes()
    yield "\\U0001f469\\u200d\\U0001f680"


@tool(effect="read")
async def spell() -> AsyncIterator[str]:
    \"\"\"Spell.\"\"\"
    for letter in "abc":
        yield letter
    await asyncio.to_thread(GATE.read_bytes)


@tool(effect="read", streaming=True)
def climb(context: ToolContext) -> str:
    \"\"\"Climb.\"\"\"
    context.progress("half way")
    GATE.read_bytes()
    return "up"
"""
SO_FAR = "eins, zwölf, "
WHOLE = SO_FAR + "👩\u200d🚀"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe that keeps the tool waiting until the test writes to it."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@pytest.fixture
async def client(
    database_url: str, gate: Path, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a service with tools that talk."""
    (tmp_path / "talking.py").write_text(TOOLS.format(gate=str(gate)))
    async with directed_model() as model:
        settings = settings_for(
            database_url, tools=str(tmp_path / "talking.py"), OPENAI_BASE_URL=model.base_url
        )
        async with serving(settings) as service, service.client() as client:
            tools = ["count", "spell", "climb"]
            agent = {"name": "clerk", "model": "openai/directed", "tools": tools}
            await made(client, "/v1/agents", agent)
            yield client


@asynccontextmanager
async def following(client: httpx2.AsyncClient, run_id: str) -> AsyncIterator[AsyncIterator[Sent]]:
    """Follow a run from its beginning over a connection of its own."""
    path = f"/v1/runs/{run_id}/events"
    async with asyncio.timeout(TIMEOUT_S), client.stream("GET", path) as answer:
        yield _sent(answer)


async def _sent(answer: httpx2.Response) -> AsyncIterator[Sent]:
    waiting = b""
    async for piece in answer.aiter_bytes():
        *frames, waiting = (waiting + piece).split(b"\n\n")
        for frame in frames:
            for sent in parsed(frame + b"\n\n"):
                yield sent


async def progress_to(stream: AsyncIterator[Sent], text: str) -> list[Sent]:
    """Return the progress that makes up `text`, having checked that nothing lacks or doubles."""
    found: list[Sent] = []
    said = ""
    async for sent in stream:
        if sent.event == "tool_call.progress":
            assert sent.data["offset"] == len(said)
            said += sent.data["text"]
            found.append(sent)
            if said == text:
                return found
    raise AssertionError(f"the stream ended with {said!r}")


async def test_a_tools_pieces_are_streamed_while_it_runs_and_begin_again_for_who_comes_back(
    client: httpx2.AsyncClient, gate: Path
) -> None:
    run = await made(client, "/v1/runs", {"agent": "clerk", "input": "call count {}"})
    async with following(client, run["id"]) as first:
        before = await progress_to(first, SO_FAR)
    async with following(client, run["id"]) as again:
        (whole,) = await progress_to(again, SO_FAR)
        await asyncio.to_thread(gate.write_bytes, b"go")
        rest = [sent async for sent in again]
    log = await events(client, run["id"])

    assert {sent.id for sent in [*before, whole]} == {None}
    assert whole.data == {"call_id": "call_1_0", "offset": 0, "text": SO_FAR}
    completed = next(sent for sent in rest if sent.event == "tool_call.completed")
    assert completed.data["result"] == WHOLE
    assert rest[-1].event == "run.completed"
    assert "tool_call.progress" not in {event["type"] for event in log}


@pytest.mark.parametrize(
    ("tool", "said", "result"), [("spell", "abc", "abc"), ("climb", "half way", "up")]
)
async def test_so_is_what_asynchronous_generators_yield_and_what_any_tool_reports(
    client: httpx2.AsyncClient, gate: Path, tool: str, said: str, result: str
) -> None:
    run = await made(client, "/v1/runs", {"agent": "clerk", "input": f"call {tool} {{}}"})
    async with following(client, run["id"]) as stream:
        await progress_to(stream, said)
        await asyncio.to_thread(gate.write_bytes, b"go")
        rest = [sent async for sent in stream]

    completed = next(sent for sent in rest if sent.event == "tool_call.completed")
    assert completed.data["result"] == result
