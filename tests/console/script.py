"""Modules of the console that know no page, run by Node on machines that have it."""

import shutil
import subprocess
from pathlib import Path

import pytest

import milepost.console

STATIC = Path(milepost.console.__file__).parent / "static"
RUN_S = 60


def run(tests: str) -> str:
    """Run a file of Node's tests; return what it printed, or skip where there is no Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    done = subprocess.run(
        [node, "--test", "--test-reporter=tap", Path(__file__).with_name(tests)],
        env={"CONSOLE": STATIC.as_uri(), "PATH": "", "TZ": "UTC"},
        capture_output=True,
        timeout=RUN_S,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
