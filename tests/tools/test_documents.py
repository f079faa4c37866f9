"""Documents in files: what YAML 1.2 says, as JSON."""

from pathlib import Path
from typing import Any

import pytest

from milepost.tools.documents import read_document


def read(folder: Path, text: str, name: str = "document.yaml") -> Any:
    (folder / name).write_text(text)
    return read_document(folder / name)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[on, off, yes, no, y, n]", ["on", "off", "yes", "no", "y", "n"]),
        ("[true, False, TRUE]", [True, False, True]),
        ("[2020-01-01, 2020-01-01T10:00:00Z, 10:30]",
         ["2020-01-01", "2020-01-01T10:00:00Z", "10:30"]),
        ("[010, 0o10, 0x1f, -7, +7, 1_000]", [10, 8, 31, -7, 7, "1_000"]),
        ("[1.5, .5, 1e3, 1., 1.2.3]", [1.5, 0.5, 1000.0, 1.0, "1.2.3"]),
        ("[null, ~, Null, nil]", [None, None, None, "nil"]),
        ("[.nan, .inf]", [".nan", ".inf"]),
        ("{200: {on: 1}, no: 2, null: 3}", {"200": {"on": 1}, "no": 2, "null": 3}),
        ("{base: &b {x: 1}, more: {<<: *b, y: 2}}", {"base": {"x": 1}, "more": {"x": 1, "y": 2}}),
        ("a:\nb: ''\n", {"a": None, "b": ""}),
        ('"010"', "010"),
    ],
)  # fmt: skip
def test_yaml_is_read_as_the_json_that_it_stands_for(
    tmp_path: Path, written: str, value: Any
) -> None:
    assert read(tmp_path, written) == value


def test_json_is_read_as_it_is(tmp_path: Path) -> None:
    assert read(tmp_path, '{"on": 010}'.replace("010", "10"), "document.json") == {"on": 10}


@pytest.mark.parametrize(
    "written",
    [
        "a: [",
        "!!timestamp 2020-01-01",
        "!!python/object/apply:os.getcwd []",
        "&a [*a]",
        "? [1]\n: 2",
    ],
)
def test_what_has_no_json_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(tmp_path, written)
