"""The contract, `openapi.yaml`, as every test finds it. Nobody may change what it holds."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

ROOT = Path(__file__).parents[1]

# Python alone takes 5 s for what libyaml reads in half of one.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

CONTRACT: dict[str, Any] = yaml.load((ROOT / "openapi.yaml").read_text(), _LOADER)


def require_fits(name: str, value: Any) -> None:
    """Raise unless the value is what the contract says under this name."""
    whole: Registry[Any] = Registry().with_resource(
        "urn:contract", DRAFT202012.create_resource(CONTRACT)
    )
    promised = {"$ref": f"urn:contract#/components/schemas/{name}"}
    Draft202012Validator(promised, registry=whole).validate(value)


def lists(method: str, path: str, status: int) -> bool:
    """Say whether the contract has this answer among those of the operation, if there is any.

    Each may fail with 500, which is said once for all of them.
    """
    for pattern, item in _PATHS:
        if pattern.fullmatch(path):
            operation = item.get(method.lower())
            return operation is None or status == 500 or str(status) in operation["responses"]
    return True


def _patterns() -> Iterator[tuple[re.Pattern[str], dict[str, Any]]]:
    """Yield paths as they are asked for, each before others whose parameters fit it, too."""
    paths: dict[str, dict[str, Any]] = CONTRACT["paths"]
    for path in sorted(paths, key=lambda each: (each.count("{"), -len(each))):
        parts = re.split(r"({\w+})", path)
        fits = (r"[^/]+" if part.startswith("{") else re.escape(part) for part in parts)
        yield re.compile("".join(fits)), paths[path]


_PATHS = list(_patterns())
