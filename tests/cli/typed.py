"""Commands as people type them: real processes, and what they say before they end."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ENDS_S = 60.0
MISCONFIGURED = 2
FAILED = 1


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """Its one line of complaint, without the name in front."""
        [line] = self.err.splitlines()
        assert line.startswith("milepost: "), self.err
        return line.removeprefix("milepost: ")


def command(*words: str) -> list[str]:
    """Return the command as a process takes it."""
    return [sys.executable, "-m", "milepost", *words]


def environment(**settings: str) -> dict[str, str]:
    """Return this process's environment, but of Milepost's settings only these."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MILEPOST_")}
    return {**ours, "MILEPOST_LOG_LEVEL": "warning", "PYTHONWARNINGS": "error", **settings}


def typed(folder: Path, *words: str, **settings: str) -> Said:
    """Run a command in the folder to its end."""
    ended = subprocess.run(
        command(*words),
        cwd=folder,
        env=environment(**settings),
        capture_output=True,
        timeout=ENDS_S,
        check=False,
    )
    return Said(ended.returncode, _text(ended.stdout), _text(ended.stderr))


@contextmanager
def served(folder: Path, *words: str, **settings: str) -> Iterator[str]:
    """Give the address of a `milepost serve` in the folder; it is gone afterwards."""
    process = subprocess.Popen(
        command("serve", "--port", "0", *words),
        cwd=folder,
        env=environment(**settings),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://[^ ]+:\d+", process.stdout.readline())
            assert found
            yield found[0]
        finally:
            process.kill()


def _text(said: bytes) -> str:
    return said.decode(errors="backslashreplace")
