"""Real `milepost` processes, and how a client talks to them."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.journeys.warm import Forked, Warm

START_S = 90.0
STREAM_S = 30.0


@dataclass(slots=True)
class Event:
    """A frame of a stream, decoded."""

    id: str | None
    type: str
    data: dict[str, Any]


@dataclass(slots=True)
class Installation:
    """What all processes of one test share: settings, and the folder that they run in.

    They are forked where there is something `warm` to fork them from, and else start from nothing.
    """

    folder: Path
    environment: dict[str, str]
    warm: Warm | None = None
    started: list["Server"] = field(default_factory=list)

    async def start(self, *arguments: str, **environment: str) -> "Server":
        """Start `milepost serve` on a free port; return once it says where it serves."""
        server = await self._spawn("serve", *arguments, MILEPOST_PORT="0", **environment)
        async with asyncio.timeout(START_S):
            await server.await_address()
        return server

    async def start_worker(self, **environment: str) -> "Server":
        """Start `milepost worker`; return once it says that it works."""
        worker = await self._spawn("worker", **environment)
        async with asyncio.timeout(START_S):
            await worker.await_line()
        return worker

    async def _spawn(self, *arguments: str, **environment: str) -> "Server":
        surroundings = {**os.environ, **self.environment, **environment}
        if self.warm:
            server = Server(await self.warm.start(arguments, surroundings, self.folder))
        else:
            server = Server(await self._start_cold(arguments, surroundings))
        self.started.append(server)
        return server

    async def _start_cold(
        self, arguments: Sequence[str], environment: dict[str, str]
    ) -> asyncio.subprocess.Process:
        with (self.folder / "stderr").open("ab") as stderr:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "milepost", *arguments),
                cwd=self.folder,
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )

    async def close(self) -> None:
        """Kill what is still there."""
        for server in self.started:
            await server.close()


class Server:
    """One process. `http` is a client of it."""

    def __init__(self, process: asyncio.subprocess.Process | Forked) -> None:
        self.process = process
        self.http = httpx2.AsyncClient(timeout=STREAM_S)
        self._reading: asyncio.Task[None] | None = None

    async def await_line(self) -> str:
        """Return the first line that the process prints, and read on so that it never blocks."""
        assert self.process.stdout is not None
        line = (await self.process.stdout.readline()).decode()
        assert line, f"the process ended with {await self.process.wait()} before it said anything"
        self._reading = asyncio.create_task(self._read_on())
        return line

    async def await_address(self) -> None:
        """Read where it serves."""
        found = re.search(r"http://[^ ]+:\d+", await self.await_line())
        assert found
        self.http.base_url = httpx2.URL(found[0])

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """End it as an orchestrator would; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(START_S):
            return await self.process.wait()

    async def close(self) -> None:
        """Leave nothing behind."""
        await self.http.aclose()
        if self.process.returncode is None:
            await self.kill()
        if self._reading:
            await self._reading

    async def create(self, said: str, agent: str = "clerk", **fields: Any) -> dict[str, Any]:
        """Create a run; return it."""
        response = await self.http.post("/v1/runs", json={"agent": agent, "input": said, **fields})
        assert response.status_code == 202, response.text
        run: dict[str, Any] = response.json()
        return run

    async def run(self, run_id: str) -> dict[str, Any]:
        """Return the run as it is now."""
        run: dict[str, Any] = (await self.http.get(f"/v1/runs/{run_id}")).json()
        return run

    async def events(self, run_id: str, after: str | None = None) -> AsyncIterator[Event]:
        """Yield the stream's frames as they come."""
        headers = {"Last-Event-ID": after} if after else {}
        async with self.http.stream(
            "GET", f"/v1/runs/{run_id}/events", headers=headers
        ) as response:
            assert response.status_code == 200, await response.aread()
            async for event in frames(response):
                yield event

    async def until(self, run_id: str, kind: str) -> list[Event]:
        """Read the stream from the beginning up to the first event of this type."""
        seen = []
        async for event in self.events(run_id):
            seen.append(event)
            if event.type == kind:
                return seen
        raise AssertionError(f"no {kind} came, but {[event.type for event in seen]}")

    async def whole(self, run_id: str) -> list[Event]:
        """Read the stream to its end."""
        return [event async for event in self.events(run_id)]

    async def pending(self, run_id: str) -> list[dict[str, Any]]:
        """Return what waits for a person in the run."""
        listed = await self.http.get(
            "/v1/approvals", params={"status": "pending", "run_id": run_id}
        )
        found: list[dict[str, Any]] = listed.json()["data"]
        return found

    async def decide(self, approval_id: str, **decision: Any) -> httpx2.Response:
        """Answer a question."""
        return await self.http.post(f"/v1/approvals/{approval_id}/decision", json=decision)

    async def _read_on(self) -> None:
        assert self.process.stdout is not None
        while await self.process.stdout.read(65_536):
            pass


async def frames(response: httpx2.Response) -> AsyncIterator[Event]:
    """Yield a response's server-sent events."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line == "":
            if "data" in fields:
                yield Event(fields.get("id"), fields["event"], json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


def durable(events: Sequence[Event]) -> list[Event]:
    """Return the events that are in the log."""
    return [event for event in events if "seq" in event.data]


def types(events: Sequence[Event]) -> list[str]:
    """Return the types of the events that are in the log."""
    return [event.type for event in durable(events)]


def assert_sound(events: Sequence[Event]) -> None:
    """Assert that the log has no gap, and one terminal event, at its end."""
    log = durable(events)
    assert [event.data["seq"] for event in log] == list(range(1, len(log) + 1))
    terminal = {"run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired"}
    assert [event.type in terminal for event in log] == [False] * (len(log) - 1) + [True]


@asynccontextmanager
async def installed(
    folder: Path, environment: dict[str, str], warm: Warm | None = None
) -> AsyncIterator[Installation]:
    """Give an installation whose processes are gone afterwards."""
    installation = Installation(folder, environment, warm)
    try:
        yield installation
    finally:
        await installation.close()
