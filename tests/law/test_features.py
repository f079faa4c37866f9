"""What tools owe is written down with its tests, and the tests are there."""

import ast
import re
from collections.abc import Iterator

from tests.law.pages import ROOT

GROUPS = {
    "TD": 20, "SG": 31, "VA": 16, "EX": 12, "ST": 4, "IN": 6, "TR": 4, "AR": 5, "CM": 15, "RG": 13,
}  # fmt: skip

_ROW = re.compile(r"^\| (?P<number>[^|]*?) ?\| `(?P<path>[^`:]+)::(?P<test>\w+)` \|", re.MULTILINE)


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield the number, the file and the test of each row; a number counts until the next."""
    number = ""
    for row in _ROW.finditer((ROOT / "docs" / "features.md").read_text()):
        number = row["number"] or number
        yield number, row["path"], row["test"]


def names_in(path: str) -> set[str]:
    """Return the names of the tests in a file, none if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return set()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, functions)
    }


def test_every_behaviour_that_tools_owe_has_a_test() -> None:
    owed = {f"{group}{n}" for group, last in GROUPS.items() for n in range(1, last + 1)}

    assert owed - {number for number, _, _ in rows()} == set()


def test_every_test_that_is_named_is_there() -> None:
    named = list(rows())
    known = {path: names_in(path) for _, path, _ in named}

    assert [row for row in named if row[2] not in known[row[1]]] == []
