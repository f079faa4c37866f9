"""The image's recipe: what a linter says of it, and that what it takes is there."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.deploy.files import (
    DEPLOY,
    OURS,
    PORT,
    ROOT,
    Instruction,
    complaint_about,
    image_environment,
    instructions,
    known_variables,
    last_stage,
)


def only(name: str) -> str:
    [found] = [each.text for each in last_stage() if each.name == name]
    return found


def taken(instruction: Instruction) -> list[str]:
    """Return what a COPY takes from the checkout."""
    words = instruction.text.split()
    return [] if words[0].startswith("--from=") else words[:-1]


def copied() -> list[str]:
    return [path for each in instructions() if each.name == "COPY" for path in taken(each)]


def is_sent(path: str) -> bool:
    """Say whether `.dockerignore` lets a path through: its last rule that matches counts."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        matches = any(fnmatch("/".join(parts[: n + 1]), pattern) for n in range(len(parts)))
        anywhere = line.startswith("**/") and any(fnmatch(part, pattern) for part in parts)
        if line and not line.startswith("#") and (matches or anywhere):
            sent = line.startswith("!")
    return sent


def test_the_recipe_passes_the_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")

    said = subprocess.run(
        [linter, "--no-color", DEPLOY / "Dockerfile"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (said.returncode, said.stdout) == (0, "")


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    paths = copied()

    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [path for path in paths if not is_sent(path)] == []


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".env", "deploy/.env", ".venv/bin/python", ".milepost/milepost.db"),
        *("service/milepost/__pycache__/settings.cpython-311.pyc", "tests/conftest.py"),
    ],
)
def test_what_is_private_or_of_no_use_is_not_sent_to_the_builder(path: str) -> None:
    assert not is_sent(path)


def test_all_that_the_package_is_built_from_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = {path.partition("/")[0] for path in wheel["packages"]} | set(wheel["force-include"])
    named = {project["project"]["readme"], *project["project"]["license-files"]}

    assert {*sources, *named, "pyproject.toml", "requirements/runtime.txt"} <= set(copied())


def test_the_pages_of_the_console_are_packaged(packaged: Path) -> None:
    def pages(root: Path) -> set[str]:
        return {path.name for path in (root / "milepost/console/static").iterdir()}

    assert {"index.html", "app.js", "console.css"} <= pages(packaged)
    assert pages(packaged) == pages(ROOT / "service")


def test_the_builders_own_tool_is_pinned_where_the_recipe_takes_it_from() -> None:
    installing = [each.text for each in instructions() if "--constraint" in each.text]
    [(pins, tool)] = [re.findall(r"--constraint (\S+) (\S+)", text)[0] for text in installing]

    pinned = [
        Requirement(line).name for line in (ROOT / pins).read_text().splitlines() if "==" in line
    ]

    assert tool in pinned
    assert pins in copied()


def test_every_base_is_named_with_a_version_that_the_package_takes() -> None:
    bases = [each.text for each in instructions() if each.name == "FROM"]
    [argument] = [each.text for each in instructions() if each.name == "ARG"]
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]

    assert [base.split()[0] for base in bases] == ["python:${PYTHON}"] * 2
    version = argument.removeprefix("PYTHON=").partition("-")[0]
    assert Requirement(f"python{requires}").specifier.contains(version)


def test_the_image_runs_as_a_number_that_is_not_roots() -> None:
    user, _, group = only("USER").partition(":")

    assert (int(user) > 999, int(group) > 999) == (True, True)


def test_a_signal_reaches_the_service_itself() -> None:
    assert json.loads(only("ENTRYPOINT")) == ["milepost"]
    assert only("STOPSIGNAL") == "SIGTERM"
    assert complaint_about(json.loads(only("CMD"))) is None


def test_what_the_image_sets_is_known_and_lies_where_it_may_write() -> None:
    environment = image_environment()
    ours = {name for name in environment if name.startswith("MILEPOST_")}

    assert ours <= known_variables()
    assert json.loads(only("VOLUME")) == [only("WORKDIR")]
    for name in ("MILEPOST_DATABASE_URL", "MILEPOST_ARTIFACTS_DIR"):
        assert f"{only('WORKDIR')}/" in environment[name]


def test_the_port_is_one_and_the_same_everywhere() -> None:
    environment = image_environment()

    assert {environment["MILEPOST_PORT"], environment["MILEPOST_PROBE_PORT"]} == {PORT}
    assert only("EXPOSE") == PORT
    assert f":{PORT}/healthz" in only("HEALTHCHECK")


def test_no_secret_is_in_the_recipe() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    assert [word for word in ("API_KEY", "SECRET", "PASSWORD", "TOKEN") if word in text] == []


def test_the_image_has_the_version_that_is_packaged() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert f"milepost:{project['version']}" == OURS
    assert OURS in (DEPLOY / "Dockerfile").read_text()
