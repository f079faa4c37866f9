"""What tools, models and the loop owe is written down with its tests, and the tests are there."""

import ast
import re
from collections.abc import Iterator

from tests.law.pages import ROOT

GROUPS = {
    "TD": 20, "SG": 31, "VA": 16, "EX": 12, "ST": 4, "IN": 6, "TR": 4, "AR": 5, "CM": 15, "RG": 13,
    "AL": 14, "RT": 6, "FB": 5, "SR": 4, "PT": 7, "CA": 8, "SO": 7, "TC": 4, "RE": 1, "BA": 1,
    "DC": 19, "EV": 8, "PO": 15, "TE": 3, "OB": 8, "US": 3, "GU": 3, "LD": 1, "AN": 1, "TS": 1,
    "ME": 10,
}  # fmt: skip
CONTRADICTIONS = {*range(1, 35)}

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


def test_every_behaviour_that_is_owed_has_a_test() -> None:
    owed = {f"{group}{n}" for group, last in GROUPS.items() for n in range(1, last + 1)}

    assert owed - {number for number, _, _ in rows()} == set()


def test_every_contradiction_that_was_resolved_has_a_test() -> None:
    resolved = {f"C{n}" for n in CONTRADICTIONS}

    assert resolved - {number for number, _, _ in rows()} == set()


def test_every_test_that_is_named_is_there() -> None:
    named = list(rows())
    known = {path: names_in(path) for _, path, _ in named}

    assert [row for row in named if row[2] not in known[row[1]]] == []
