"""What is in deploy/, read: the image's recipe, the composition, the manifests, the alerts."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.core import TyperGroup

from milepost.cli.commands import app
from milepost.settings import Settings, variable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OURS = "milepost:0.1.0"
PORT = "8000"

_CONTINUED = re.compile(r"\\\n\s*")
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?::(?P<manner>[-?])(?P<word>[^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """A line of a Dockerfile: `COPY`, and what it says."""

    name: str
    text: str


def instructions() -> list[Instruction]:
    """Return the Dockerfile's instructions, of all stages."""
    lines = [
        line
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    whole = _CONTINUED.sub("", "\n".join(lines)).splitlines()
    return [Instruction(*line.split(" ", 1)) for line in whole]


def last_stage() -> list[Instruction]:
    """Return the instructions that make the image itself."""
    every = instructions()
    [*_, start] = [index for index, each in enumerate(every) if each.name == "FROM"]
    return every[start:]


def image_environment() -> dict[str, str]:
    """Return the variables that the image sets."""
    said = [each.text for each in last_stage() if each.name == "ENV"]
    return dict(word.split("=", 1) for text in said for word in shlex.split(text))


def services() -> dict[str, dict[str, Any]]:
    """Return the composition's services."""
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    found: dict[str, dict[str, Any]] = composed["services"]
    return found


def our_services() -> dict[str, dict[str, Any]]:
    """Return those that run our image."""
    return {name: each for name, each in services().items() if each["image"] == OURS}


def interpolated(text: str, values: dict[str, str]) -> str:
    """Return a word of the composition with its variables replaced, as Compose does it."""
    return _VARIABLE.sub(lambda match: values.get(match["name"]) or match["word"] or "", text)


def example_environment() -> dict[str, str]:
    """Return what `.env.example` has, empty where it is to be filled in."""
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def manifests() -> list[Path]:
    """Return the files that hold objects of Kubernetes, which a kustomization is not."""
    return [path for path in sorted(KUBERNETES.rglob("*.yaml")) if "kustomization" not in path.name]


def objects(path: Path | None = None) -> list[dict[str, Any]]:
    """Return the objects of a file, or of all."""
    paths = [path] if path else manifests()
    return [each for file in paths for each in yaml.safe_load_all(file.read_text())]


def an_object(kind: str, name: str) -> dict[str, Any]:
    """Return the one object of this kind and name."""
    [found] = [
        each for each in objects() if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def pods() -> dict[str, dict[str, Any]]:
    """Return the pods that deployments and jobs make, by component."""
    made = [each for each in objects() if each["kind"] in {"Deployment", "Job"}]
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"]
        for each in made
    }


def settings_env() -> dict[str, str]:
    """Return the settings that all pods share."""
    lines = (KUBERNETES / "base" / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def alerts() -> list[dict[str, Any]]:
    """Return Prometheus' rules."""
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def known_variables() -> set[str]:
    """Return every environment variable that is a setting."""
    return {variable(name) for name in Settings.model_fields}


def complaint_about(command: list[str]) -> str | None:
    """Return what is wrong with a command line of ours: no such command, or no such flag."""
    top = typer.main.get_command(app)
    assert isinstance(top, TyperGroup)
    name, *words = command
    if name not in top.commands:
        return f"there is no command {name!r}"
    taken = {flag for parameter in top.commands[name].params for flag in parameter.opts}
    unknown = [word for word in words if word.startswith("--") and word not in taken]
    return f"{name} takes no {', '.join(unknown)}" if unknown else None


def strings(value: object) -> Iterator[str]:
    """Yield every text inside."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from strings(each)
        case list():
            for each in value:
                yield from strings(each)
        case _:
            pass
