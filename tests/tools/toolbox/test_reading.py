"""Parts of JSON, lines of text, rows of CSV."""

from typing import Any

import pytest

from milepost.core.errors import ToolError
from milepost.tools.toolbox.reading import json_query, table_from_csv, text_search

SHOP = """{
    "orders": [{"id": 1, "items": [{"price": 2}, {"price": 3}]}, {"id": 2, "items": []}],
    "a/b": {"0": "zero"}
}"""


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("orders[0].id", 1),
        ("orders[-1].id", 2),
        ("orders[*].id", [1, 2]),
        ("orders[*].items[*].price", [[2, 3], []]),
        ("a/b.0", "zero"),
        ("/orders/0/items/1/price", 3),
        ("/a~1b/0", "zero"),
    ],
)
def test_a_part_of_json_is_found_by_its_path(path: str, part: Any) -> None:
    assert json_query(SHOP, path) == part


def test_an_empty_path_is_the_whole() -> None:
    assert json_query("[1]", "") == [1]


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ("{", "a", "no JSON"),
        (SHOP, "oders", "there is: orders, a/b"),
        (SHOP, "orders[7]", "there are 2 items"),
        (SHOP, "orders.id", "has no such parts"),
        (SHOP, "a/b[*]", "for lists"),
        (SHOP, "orders[", "no path from"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(document: str, path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        json_query(document, path)


def test_lines_are_found_by_words_that_are_no_pattern() -> None:
    text = "One (a+)+\ntwo\nONE more"

    assert text_search(text, "one") == [
        {"line": 1, "text": "One (a+)+"}, {"line": 3, "text": "ONE more"},
    ]  # fmt: skip
    assert text_search(text, "(a+)+", ignore_case=False) == [{"line": 1, "text": "One (a+)+"}]
    assert text_search(text, "three") == []
    with pytest.raises(ToolError, match="no words"):
        text_search(text, "")


def test_csv_becomes_a_table() -> None:
    assert table_from_csv('name;city\n"Ann; B.";Oslo\n\nBob;Rome\n', ";") == {
        "columns": ["name", "city"],
        "rows": [["Ann; B.", "Oslo"], ["Bob", "Rome"]],
        "row_count": 2,
    }


@pytest.mark.parametrize(
    ("text", "delimiter", "words"),
    [("a,b\n1\n", ",", "row 2 has 1 fields"), ("", ",", "no line"), ("a", ";;", "one character")],
)
def test_what_is_no_table_is_refused_with_words(text: str, delimiter: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        table_from_csv(text, delimiter)
