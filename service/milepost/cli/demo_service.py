"""A service of the demo's own: a real process on a free port, in a folder that goes with it."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from milepost.core.errors import UnavailableError

START_S = 30.0
STOP_S = 30.0

_ADDRESS = re.compile(r"http://[^ ]+:(\d+)")


class DemoService:
    """`milepost serve` as a child process that can be killed, and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._process: Process | None = None
        self._reading: asyncio.Task[bytes] | None = None

    @property
    def base_url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, on the port that it had before; return when it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "milepost", "serve"),
                *("--port", str(self.port), "--log-level", "warning"),
                cwd=self.folder,
                env=_environment(),
                stdout=PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            said = (await self._process.stdout.readline()).decode()
        found = _ADDRESS.search(said)
        if found is None:
            log_text = (self.folder / "log").read_text()
            raise UnavailableError(f"the service did not start: {log_text.strip()}")
        self.port = int(found[1])
        # What else it prints is read away, so that it never waits for us.
        self._reading = asyncio.create_task(self._process.stdout.read())

    async def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._ended()

    async def stop(self) -> int:
        """End it as an orchestrator would; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(STOP_S):
            return await self._ended()

    async def _ended(self) -> int:
        assert self._process is not None
        code = await self._process.wait()
        if self._reading is not None:
            await self._reading
        return code


def _environment() -> dict[str, str]:
    """Return ours without Milepost's own settings: the demo is the same for everybody."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MILEPOST_")}


@asynccontextmanager
async def demo_service() -> AsyncIterator[DemoService]:
    """Give a service that answers; nothing of it is left afterwards."""
    with TemporaryDirectory(prefix="milepost-demo-") as folder:
        service = DemoService(Path(folder))
        try:
            await service.start()
            yield service
        finally:
            await service.kill()
