"""What the image holds, unpacked, and databases of one's own."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.deploy.files import ROOT
from tests.journeys.conftest import model, postgres_database

__all__ = ["model", "postgres_database"]

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
def empty_postgres_database(postgres_url: str) -> Iterator[str]:
    """Another empty database, for what is restored."""
    name = f"restored_{uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield postgres_url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
