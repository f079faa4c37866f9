"""The orchestrator's side of the nursery: children that are born, die, and are known to be dead."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests import devservices

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
CLOSE_S = 10.0


@dataclass(eq=False, slots=True)
class Child:
    """A process that was forked: `ended` is its exit code once it is gone."""

    pid: int
    ended: asyncio.Future[int]

    @property
    def alive(self) -> bool:
        """Say whether it has not ended yet."""
        return not self.ended.done()

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; say whether there was still somebody to get it."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


@dataclass(eq=False, slots=True)
class Nursery:
    """Forks `milepost` processes. Use it through `nursery()`."""

    process: asyncio.subprocess.Process
    folder: Path
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _awaited: dict[int, asyncio.Future[Child]] = field(default_factory=dict)
    _children: dict[int, Child] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def bear(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdout: str
    ) -> Child:
        """Start `milepost arguments…`, its output in a file of the folder."""
        assert self.process.stdin is not None
        number = next(self._numbers)
        self._awaited[number] = asyncio.get_running_loop().create_future()
        asked = {
            "number": number,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(self.folder),
            "stdout": stdout,
        }
        self.process.stdin.write(orjson.dumps(asked) + b"\n")
        async with asyncio.timeout(START_S):
            return await self._awaited[number]

    async def listen(self) -> None:
        """Hear who was born and who ended, until the nursery is gone."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            said = orjson.loads(line)
            if "born" in said:
                child = Child(said["pid"], asyncio.get_running_loop().create_future())
                self._children[child.pid] = child
                self._awaited.pop(said["born"]).set_result(child)
            elif "ended" in said:
                self._children.pop(said["ended"]).ended.set_result(said["code"])
            else:
                self.ready.set()


@asynccontextmanager
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    """Give a nursery whose children work in `folder`; all of them are gone afterwards."""
    with (folder / "nursery").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.torture.nursery_process"),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            # Safe here: what runs between fork and exec takes no lock.
            preexec_fn=devservices._die_with_parent(signal.SIGKILL),
        )
    opened = Nursery(process, folder)
    listening = asyncio.create_task(opened.listen())
    try:
        async with asyncio.timeout(START_S):
            await opened.ready.wait()
        yield opened
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        listening.cancel()
        await asyncio.wait({listening})
