"""A page's blocks, done as its reader would: in order, in one folder, against real processes."""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from subprocess import run

from tests.law.pages import ROOT, Block

START_S = 40.0
BLOCK_S = 60.0
STOP_S = 30.0
ADDRESS = "127.0.0.1:8000"  # What the pages say; the service is on a free port instead.

_READY = re.compile(r"^Milepost (?:serves http://(?P<address>\S+)|works)", re.MULTILINE)
_SCRIPT = """
set -euo pipefail
[ ! -e .variables ] || . ./.variables
set -a
{text}
set +a
export -p | grep -v ' MILEPOST_BASE_URL=' > .variables
"""


@dataclass(slots=True)
class PageShell:
    """A folder, the variables that blocks set, and the processes that they started.

    `stand_ins` is what takes the place of addresses that the pages name.
    """

    folder: Path
    environment: Mapping[str, str]
    stand_ins: dict[str, str]
    printed: str = ""
    _processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def perform(self, block: Block) -> None:
        """Do what the block says; raise `AssertionError` if it does not do what it should."""
        text = self._replaced(block.text)
        match block.language, block.manner:
            case _, _ if block.file:
                (self.folder / block.file).write_text(text)
            case "sh", "serve":
                await self._stop()
                await self._serve(block, text)
            case "sh", "serve beside":
                await self._serve(block, text)
            case "sh", "" | "stopped":
                if block.manner == "stopped":
                    await self._stop()
                await self._run(block, text, succeeds=True)
            case "sh", "refused":
                await self._run(block, text, succeeds=False)
            case "python", "":
                script = self.folder / f"block_{block.line}.py"
                script.write_text(text)
                await self._run(block, f"python {script.name}", succeeds=True)
            case "text", "output":
                assert_printed(block, self.printed)
            case _:
                pass  # Nothing to do: the laws for all pages look at it.

    async def close(self) -> None:
        """Leave nothing behind."""
        await self._stop()

    async def _run(self, block: Block, text: str, *, succeeds: bool) -> None:
        process = await self._start(_SCRIPT.format(text=text))
        assert process.stdout is not None
        try:
            async with asyncio.timeout(BLOCK_S):
                self.printed = (await process.stdout.read()).decode()
                status = await process.wait()
        except TimeoutError:
            raise AssertionError(f"{block} does not end") from None
        finally:
            await _end(process)
        assert (status == 0) is succeeds, f"{block} ended with {status}:\n{self.printed}"

    async def _serve(self, block: Block, text: str) -> None:
        """Start what serves, and go on once it says that it does."""
        log = self.folder / f"served_{block.line}.txt"
        process = await self._start(f"set -euo pipefail\n{text}", log)
        self._processes.append(process)
        async with asyncio.timeout(START_S):
            while not (ready := _READY.search(log.read_text())):
                assert process.returncode is None, f"{block} ended:\n{log.read_text()}"
                await asyncio.sleep(0.02)
        if ready["address"]:
            self.stand_ins[ADDRESS] = ready["address"]

    async def _start(self, script: str, log: Path | None = None) -> asyncio.subprocess.Process:
        served = {"MILEPOST_BASE_URL": f"http://{self.stand_ins.get(ADDRESS, ADDRESS)}"}
        with (log or Path(os.devnull)).open("w") as output:
            return await asyncio.create_subprocess_exec(
                *("bash", "-c", script),
                cwd=self.folder,
                env={**self.environment, **served},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output if log else asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )

    async def _stop(self) -> None:
        while self._processes:
            await _end(self._processes.pop())

    def _replaced(self, text: str) -> str:
        for said, meant in self.stand_ins.items():
            text = text.replace(said, meant)
        return text


@asynccontextmanager
async def page_shell(folder: Path, stand_ins: Mapping[str, str]) -> AsyncIterator[PageShell]:
    """Give a shell in `folder`, which looks like a checkout that `make run` has set up."""
    for name in ("Makefile", "examples", "requirements", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    # A refusal must not look like success, nor silence like patience.
    (folder / ".curlrc").write_text(
        'fail-with-body\nshow-error\nmax-time = 30\nwrite-out = "\\n"\n'
    )
    (folder / ".installed").touch()
    shell = PageShell(folder, _environment(folder), dict(stand_ins))
    try:
        yield shell
    finally:
        await shell.close()


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "CURL_HOME": str(folder),
        "LANG": "C.UTF-8",
        "MILEPOST_PORT": "0",
        "MILEPOST_DEMO_WORD_DELAY_S": "0.005",
        # `make run` runs as it is, but takes the environment for set up: nothing is installed here.
        "MAKEFLAGS": "e",
        "STAMP": str(folder / ".installed"),
        "VENV": sys.prefix,
    }


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process with all that it started; it has a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            continue
    await process.wait()


@cache
def lacks_curl() -> bool:
    """Say whether this machine has no curl, or one from before 2021 that cannot tell a refusal."""
    known = ("curl", "--fail-with-body", "--version")
    if shutil.which("curl") is None:
        return True
    return run(known, check=False, capture_output=True).returncode != 0


def assert_printed(block: Block, printed: str) -> None:
    """Assert that the block's lines are among what was printed, in their order."""
    lines = iter(printed.splitlines())
    for wanted in block.text.splitlines():
        if wanted.strip() in {"", "…"}:
            continue
        pattern = ".*".join(map(re.escape, wanted.split("…")))
        found = any(re.fullmatch(pattern, line) for line in lines)
        assert found, f"{block}: {wanted!r} was not printed, or not in this place, of:\n{printed}"
