"""What the package declares agrees with itself and names no registry."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def requirements_in(name: str) -> list[Requirement]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]


def test_an_installed_wheel_asks_for_what_the_service_is_locked_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    declared = {Requirement(line) for line in project["dependencies"]}

    assert declared == set(requirements_in("runtime.in"))


def test_the_service_runs_on_the_versions_that_its_tests_ran_on() -> None:
    tested = {(pin.name, str(pin.specifier)) for pin in requirements_in("dev.txt")}

    # Without markers: what tests need everywhere, the service may need on one platform.
    assert {(pin.name, str(pin.specifier)) for pin in requirements_in("runtime.txt")} <= tested


@pytest.mark.parametrize("name", ["dev.txt", "runtime.txt"])
def test_every_locked_version_is_exact(name: str) -> None:
    loose = [str(pin) for pin in requirements_in(name) if not str(pin.specifier).startswith("==")]

    assert loose == []


def test_no_requirement_names_a_host() -> None:
    files = sorted((ROOT / "requirements").iterdir())

    named = [path.name for path in files if "://" in path.read_text()]

    assert files
    assert named == []
