"""What the image holds, unpacked, and databases of one's own."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import database, named
from tests.deploy.files import ROOT
from tests.journeys.conftest import model

__all__ = ["model"]

BUILD_S = 120


@pytest.fixture(scope="session")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the image's wheel installs: this checkout as it is packaged."""
    built, unpacked = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("packaged")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run([*command, built], cwd=ROOT, check=True, timeout=BUILD_S, capture_output=True)
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    # As pip does: the image's processes find no folder that they could write bytecode to.
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", unpacked], check=True, timeout=BUILD_S
    )
    return unpacked


@pytest.fixture
def postgres_database(postgres_url: str) -> Iterator[str]:
    """An empty database, which whatever is installed migrates itself."""
    with database(postgres_url) as name:
        yield named(postgres_url, name)


@pytest.fixture
def empty_postgres_database(postgres_url: str) -> Iterator[str]:
    """Another empty database, for what is restored."""
    with database(postgres_url) as name:
        yield named(postgres_url, name)
