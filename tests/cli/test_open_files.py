"""How many clients a process can serve: as many as its system lets it have files."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.cli.open_files import OPEN_FILES_MAX
from tests.journeys.processes import installed

FEW = 256


@pytest.fixture
def few_files() -> Iterator[int]:
    """Let this process, and what it starts, open few files unless they ask; give the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_server_may_open_as_many_files_as_it_can_allow_itself(
    tmp_path: Path, few_files: int
) -> None:
    allowed = OPEN_FILES_MAX if few_files == resource.RLIM_INFINITY else few_files
    async with installed(tmp_path, {"MILEPOST_LOG_LEVEL": "warning"}) as installation:
        server = await installation.start()
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)

    assert (soft, hard) == (min(allowed, OPEN_FILES_MAX), few_files)
    assert soft > FEW


async def test_a_worker_may_too(tmp_path: Path, few_files: int) -> None:
    async with installed(tmp_path, {"MILEPOST_LOG_LEVEL": "warning"}) as installation:
        worker = await installation.start_worker()
        soft, _ = resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE)

    assert FEW < soft <= few_files
