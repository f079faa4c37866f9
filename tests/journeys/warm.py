"""`milepost` processes that are forked from one that has imported it: starts without their imports.

Each is a whole process, from its command line on. Imports are most of what a start costs, and the
tests of the command line, of upgrades and of what is deployed start from nothing.
"""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import orjson

from tests.devservices import _die_with_parent

ROOT = Path(__file__).resolve().parents[2]
END_S = 10.0


@dataclass(eq=False, slots=True)
class Forked:
    """A process that was forked, as `asyncio.subprocess` shows one that was started."""

    pid: int
    stdout: StreamReader
    _ended: "Future[int]"

    @property
    def returncode(self) -> int | None:
        """Its exit code, once it is gone."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Return its exit code once it is gone."""
        return await asyncio.shield(asyncio.wrap_future(self._ended))

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises `ProcessLookupError` where nobody is left to get it."""
        if self._ended.done():
            raise ProcessLookupError(self.pid)
        os.kill(self.pid, number)


@dataclass(eq=False, slots=True)
class Warm:
    """Forks `milepost` processes, for any event loop. Use it through `warmed()`."""

    _asking: IO[bytes]
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _awaited: "dict[int, Future[tuple[int, Future[int]]]]" = field(default_factory=dict)
    _living: "dict[int, Future[int]]" = field(default_factory=dict)

    async def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Forked:
        """Start `milepost arguments…` in the folder; what it says of trouble goes to a file."""
        number = next(self._numbers)
        said = folder / f"stdout-{number}"
        os.mkfifo(said)
        stdout = await _read_from(said)
        born = self._awaited[number] = Future()
        asked = {
            "number": number,
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder),
            "stdout": said.name,
        }
        self._asking.write(orjson.dumps(asked) + b"\n")
        pid, ended = await asyncio.wrap_future(born)
        return Forked(pid, stdout, ended)

    def listen(self, telling: IO[bytes]) -> None:
        """Hear who was born and who ended, until nobody tells any more."""
        for line in telling:
            said = orjson.loads(line)
            if "born" in said:
                ended = self._living[said["pid"]] = Future()
                self._awaited.pop(said["born"]).set_result((said["pid"], ended))
            elif "ended" in said:
                self._living.pop(said["ended"]).set_result(said["code"])


@contextmanager
def warmed(folder: Path) -> Iterator[Warm]:
    """Give what forks processes; they are gone afterwards. What it says itself is in `folder`."""
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.nursery_process"],
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "error"},
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # Safe beside threads: what runs between fork and exec takes no lock.
            preexec_fn=_die_with_parent(signal.SIGKILL),  # noqa: PLW1509
        )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        warm = Warm(process.stdin)
        listening = threading.Thread(target=warm.listen, args=(process.stdout,), daemon=True)
        listening.start()
        try:
            yield warm
        finally:
            process.stdin.close()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            listening.join(END_S)


async def _read_from(pipe: Path) -> StreamReader:
    """Return what reads whatever is written to the named pipe, until its writers are gone."""
    reader = StreamReader()
    opened = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: StreamReaderProtocol(reader), opened)
    return reader
