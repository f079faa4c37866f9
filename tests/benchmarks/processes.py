"""Child processes: where they listen, what they cost, and that none of them stays."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import devservices

ROOT = Path(__file__).resolve().parents[2]
START_S = 30.0
STOP_S = 15.0

_PROC = Path("/proc")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PORT = re.compile(rb"(?:^|127\.0\.0\.1:)(\d+)\b")


@dataclass(frozen=True, slots=True)
class Running:
    """A process that listens on a port of this machine."""

    pid: int
    port: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Start a Python program whose first line tells its port; stop it when the block ends."""
    with child(command, folder, environment) as process:
        yield Running(process.pid, int(_PORT.search(first_line(process))[1]))  # type: ignore[index]


@contextmanager
def child(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `python command…` with pipes to its stdin and stdout; stop it when the block ends."""
    with (folder / "stderr").open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": _import_path(), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            # Safe here: the benchmark itself has a single thread.
            preexec_fn=devservices._die_with_parent(signal.SIGKILL),  # noqa: PLW1509
        )
    with process:
        try:
            yield process
        except BaseException:
            sys.stderr.write((folder / "stderr").read_text(errors="replace")[-4000:])
            raise
        finally:
            _stop(process)


def _import_path() -> str:
    """Let children import the tests wherever they run."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def first_line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line that the process prints. Raises `RuntimeError` if none comes."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if readable else b""
    if not line:
        raise RuntimeError(f"{process.args!r} did not say that it is ready")
    return line


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process and its children have taken so far, ended ones too."""
    stats = {int(entry.name): _stat(int(entry.name)) for entry in _PROC.glob("[0-9]*")}
    family = {pid}
    # A child may stand before its parent, so look again until nobody is new.
    while more := {one for one, stat in stats.items() if stat and int(stat[1]) in family} - family:
        family |= more
    ticks = sum(sum(map(int, stat[11:15])) for one in family if (stat := stats.get(one)))
    return ticks / _TICKS_A_SECOND


def parent_of(pid: int) -> int | None:
    """Return a local process' parent, None if there is no such process."""
    stat = _stat(pid)
    return int(stat[1]) if stat else None


def name_of(pid: int) -> str:
    """Return a process' name, nothing if there is no such process."""
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def resident_bytes(pid: int) -> int:
    """Return how much memory a process holds."""
    status = (_PROC / str(pid) / "status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def _stat(pid: int) -> list[str]:
    """Return what `/proc/pid/stat` says behind the name; nothing if the process is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
