"""JSON documents as files hold them: as they are, or in YAML 1.2.

The YAML that Python's library reads is an older one, in which `on` and `no` are booleans, a day is
a date, and `010` is eight. Who writes an OpenAPI document means what JSON has.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Reads plain words as YAML 1.2's core schema does, but for what JSON has no numbers for."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - yaml's


_WORDS = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        [*"-+.0123456789"],
    ),
    ("tag:yaml.org,2002:merge", "<<", ["<"]),
)


def _integer(_: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(node.value)
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text if base == 10 else text[2:], base)


for _tag, _pattern, _first in _WORDS:
    _Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read_document(path: Path) -> Any:
    """Return the JSON that a file holds: `.json` as it is, anything else as YAML.

    Raises `OSError` or `ValueError` for one that cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    try:
        # Through JSON, whose names are strings: `200:` is one in OpenAPI.
        return json.loads(json.dumps(yaml.load(text, _Loader), allow_nan=False))  # noqa: S506 - a safe one
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
