"""The composition's own commands as processes, from what the image holds, on real databases."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests.deploy.exposition import Exposition, asked_for
from tests.deploy.files import (
    PORT,
    alerts,
    an_object,
    example_environment,
    image_environment,
    interpolated,
    last_stage,
    our_services,
    pods,
)
from tests.journeys.processes import frames
from tests.ports import free_port

END_S = 90.0


@dataclass(slots=True)
class Containers:
    """Processes that have of their container what a process can have: command and variables."""

    folder: Path
    packaged: Path
    stand_ins: dict[str, str]
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def start(self, service: str, *words: str, port: int = 0) -> asyncio.subprocess.Process:
        """Start a service of the composition, listening on this port in the place of its own."""
        said = our_services()[service]
        entrypoint = said.get("entrypoint", ["milepost"])
        assert entrypoint[0] == "milepost"
        with (self.folder / "stderr").open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "milepost"),
                *(*entrypoint[1:], *said.get("command", []), *words),
                cwd=self.folder,
                env=self._environment(said["environment"], port),
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
        self.started.append(process)
        return process

    async def run(self, service: str, *words: str) -> str:
        """Run a service that ends by itself, and well; return what it said."""
        process = await self.start(service, *words)
        async with asyncio.timeout(END_S):
            out, _ = await process.communicate()
        self.started.remove(process)
        assert process.returncode == 0, self.complaints()
        return out.decode().strip()

    async def answer(self, http: httpx2.AsyncClient, path: str) -> None:
        """Wait until a process answers 200, as a startup probe does, or one of them has died."""
        async with asyncio.timeout(END_S):
            while all(process.returncode is None for process in self.started):
                with suppress(httpx2.TransportError):
                    if (await http.get(path)).status_code == 200:
                        return
                await asyncio.sleep(0.05)
        raise AssertionError(self.complaints())

    def complaints(self) -> str:
        """Return what the processes said to standard error."""
        return (self.folder / "stderr").read_text()

    async def check_health(self, port: int) -> int:
        """Do the image's own check of a container's health; return its exit code."""
        [check] = [each.text for each in last_stage() if each.name == "HEALTHCHECK"]
        [_, *words] = json.loads(check.partition(" CMD ")[2])
        moved = [word.replace(f":{PORT}/", f":{port}/") for word in words]
        checking = await asyncio.create_subprocess_exec(
            sys.executable, *moved, stderr=asyncio.subprocess.DEVNULL
        )
        return await checking.wait()

    def _environment(self, said: dict[str, str], port: int) -> dict[str, str]:
        values = {name: word or "a" * 40 for name, word in example_environment().items()}
        composed = {name: interpolated(word, values) for name, word in said.items()}
        return {
            **{name: word for name, word in os.environ.items() if "MILEPOST" not in name},
            **{name: word for name, word in image_environment().items() if name != "PATH"},
            **composed,
            **self.stand_ins,
            "MILEPOST_ARTIFACTS_DIR": str(self.folder / "artifacts"),
            "MILEPOST_PORT": str(port),
            "MILEPOST_PROBE_PORT": str(port),
            "PYTHONPATH": str(self.packaged),
        }


@asynccontextmanager
async def containers(
    folder: Path, packaged: Path, stand_ins: dict[str, str]
) -> AsyncIterator[Containers]:
    """Give containers that are gone afterwards."""
    given = Containers(folder, packaged, stand_ins)
    try:
        yield given
    finally:
        for process in given.started:
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.fixture
async def installed(
    tmp_path: Path, packaged: Path, postgres_database: str, redis_url: str
) -> AsyncIterator[Containers]:
    """An installation whose databases are the tests', and which has no collector."""
    stand_ins = {
        "MILEPOST_DATABASE_URL": postgres_database,
        "MILEPOST_REDIS_URL": redis_url,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "",
        "MILEPOST_DEMO_WORD_DELAY_S": "0.3",
    }
    async with containers(tmp_path, packaged, stand_ins) as given:
        yield given


def probed_paths(component: str) -> list[str]:
    [only] = pods()[component]["containers"]
    return [only[probe]["httpGet"]["path"] for probe in only if probe.endswith("Probe")]


async def streamed(http: httpx2.AsyncClient, run_id: str) -> AsyncIterator[tuple[str, str]]:
    """Yield the types of a run's events, and the text of those that have some."""
    async with http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        async for event in frames(response):
            yield event.type, str(event.data.get("data", {}).get("output", ""))


@pytest.mark.timeout(400)  # six processes start, on a machine that may be busy
async def test_the_composition_serves_runs_is_watched_and_drains(installed: Containers) -> None:
    await installed.run("migrate")
    key = await installed.run("keys", "create", "laptop", "--scope", "admin")

    ports = {name: free_port() for name in ("api-1", "api-2", "worker", "another worker")}
    for name, port in ports.items():
        await installed.start(name.removeprefix("another "), port=port)
    [*_, worker, _] = installed.started
    clients = [
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=END_S,
        )
        for port in ports.values()
    ]
    async with AsyncExitStack() as stack:
        first, second, *_ = [await stack.enter_async_context(http) for http in clients]
        for http, component in zip(clients, ("api", "api", "worker", "worker"), strict=True):
            for path in probed_paths(component):
                await installed.answer(http, path)
        for port in ports.values():
            assert await installed.check_health(port) == 0
        assert (await first.get("/openapi.yaml")).status_code == 200

        said = {"agent": "demo", "input": "What is 17 + 25?"}
        run = (await first.post("/v1/runs", json=said)).json()
        ended, staying = ("", ""), {*installed.started}
        async for kind, text in streamed(second, run["id"]):
            if kind == "message.delta" and worker in staying:
                staying.remove(worker)  # An orchestrator says it once.
                worker.terminate()
            ended = (kind, text)

        assert ended[0] == "run.completed"
        assert "17 + 25 = 42." in ended[1]
        await keda_can_read_the_queue(first)
        await the_alerts_ask_for_what_there_is(first)

    grace_s = int(str(our_services()["worker"]["stop_grace_period"]).removesuffix("s"))
    async with asyncio.timeout(grace_s):
        for process in staying:
            process.terminate()
        ends = [(await process.communicate(), process.returncode) for process in installed.started]
    assert [code for _, code in ends] == [0, 0, 0, 0], installed.complaints()


async def keda_can_read_the_queue(http: httpx2.AsyncClient) -> None:
    made = await http.post("/v1/keys", json={"name": "keda", "scopes": ["metrics:read"]})
    scaled = an_object("ScaledObject", "milepost-worker")["spec"]
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    shown = Exposition((await http.get("/metrics", headers=headers)).text)

    values = [shown.value(each["metadata"]["valueLocation"]) for each in scaled["triggers"]]

    assert values == [0, 0]


async def the_alerts_ask_for_what_there_is(http: httpx2.AsyncClient) -> None:
    shown = Exposition((await http.get("/metrics")).text)

    asked = [name for rule in alerts() for name, _ in asked_for(rule["expr"])]

    assert asked
    assert [name for name in asked if not shown.has(name)] == []
