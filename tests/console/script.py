"""Modules of the console that know no page, run by Node on machines that have a late one."""

import shutil
import subprocess
from pathlib import Path

import pytest

import milepost.console

STATIC = Path(milepost.console.__file__).parent / "static"
RUN_S = 60
NODE_MIN = 20
"""The first whose `--test` is no experiment."""


def run(tests: str) -> str:
    """Run a file of Node's tests; return what it printed, or skip where there is no such Node."""
    node = shutil.which("node")
    if node is None or _major(node) < NODE_MIN:
        pytest.skip(f"no node {NODE_MIN} on this machine")
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


def _major(node: str) -> int:
    told = subprocess.run(
        [node, "--version"], capture_output=True, timeout=RUN_S, text=True, check=True
    )
    return int(told.stdout.lstrip("v").partition(".")[0])
