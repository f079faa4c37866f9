"""`python -m tests.benchmarks.in_process`: what a run costs in process, beside the bare loop.

Both ask the stub of a model twice over HTTP and add two numbers in between, without a server around
them. What the bare loop does is what the agent does too; what is left of the difference is the log,
the state, the spans and the checks. A last figure is the agent without the network.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
import uvloop
from starlette.types import Message

from milepost import Agent, tool
from milepost.core.model import Delta, ModelRequest
from milepost.providers.building import open_models, share
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.declared import DeclaredProvider
from milepost.providers.scripted import calling, saying
from tests.benchmarks.bare_loop import BareLoop
from tests.benchmarks.systems import model

RUNS = 2_000
TOGETHER = 64
TOKENS = 20

_CALL = calling(("add", {"a": 17, "b": 25}))
_TEXT = saying(" ".join(f"token{n}" for n in range(TOKENS)))


@dataclass(frozen=True, slots=True)
class Figure:
    """Runs a second, and what each took of the processor in microseconds."""

    name: str
    runs_per_s: float
    cpu_micros: float


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Offline:
    """The stub of a model, without the network."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Ask for the sum, then say some tokens."""
        for delta in _TEXT if request.messages[-1].role == "tool" else _CALL:
            assert not isinstance(delta, Exception)
            yield delta


async def figures(model_url: str, runs: int = RUNS, together: int = TOGETHER) -> list[Figure]:
    """Measure each in the same process, one after the other."""
    found = []
    async with aiohttp.ClientSession() as http:
        bare = BareLoop(http, model_url)
        found.append(await _measured("bare loop", lambda: _bare(bare), runs, together))
    async with _agent(model_url) as asked, asked:
        found.append(await _measured("Agent.arun", lambda: _run(asked), runs, together))
    async with Agent("stub/m", tools=[add], providers={"stub": Offline()}) as asked:
        found.append(await _measured("Agent.arun, offline", lambda: _run(asked), runs, together))
    return found


@asynccontextmanager
async def _agent(model_url: str) -> AsyncIterator[Agent]:
    declared = {"openai": DeclaredProvider("openai", model_url)}
    async with open_models(declared, share(InProcessCache()), built_in={}) as models:
        yield Agent("stub/m", tools=[add], providers={"stub": models.catalog.get("openai")})


async def _bare(loop: BareLoop) -> None:
    async def receive() -> Message:
        return {"body": orjson.dumps({"input": "What is 17 + 25?"})}

    async def send(_: Message) -> None:
        return None

    await loop({}, receive, send)


async def _run(asked: Agent) -> None:
    (await asked.arun("What is 17 + 25?")).raise_for_status()


async def _measured(
    name: str, run: Callable[[], Awaitable[None]], runs: int, together: int
) -> Figure:
    async def work(count: int) -> None:
        for _ in range(count):
            await run()

    await work(together)  # Connections, caches, prices.
    began, began_cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work(runs // together) for _ in range(together)))
    took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    done = runs // together * together
    return Figure(name, done / took, cpu / done * 1e6)


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description="Runs in process, beside the bare loop")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--together", type=int, default=TOGETHER)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, model(Path(folder)) as model_url:
        for each in uvloop.run(figures(model_url, given.runs, given.together)):
            print(f"{each.name:<22}{each.runs_per_s:>9,.0f} runs/s{each.cpu_micros:>9,.0f} µs CPU")


if __name__ == "__main__":
    main()
