"""The contract as a page: all of it is there, and what it says is text."""

import re
from html import escape
from html.parser import HTMLParser

import pytest

from milepost.api.service import contract
from milepost.console.prose import line, prose
from milepost.console.reference import METHODS, reference
from milepost.console.schema_shown import kind, shown
from tests.contract import CONTRACT

VOID = {"meta", "link"}


class Reading(HTMLParser):
    """What is in a page: ids, links, and whether each element is closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: set[str] = set()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open it."""
        given = dict(attrs)
        self.tags.add(tag)
        if given.get("id"):
            self.ids.append(given["id"] or "")
        if (target := given.get("href") or "").startswith("#"):
            self.targets.add(target[1:])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close it."""
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    return reference(contract())


@pytest.fixture(scope="module")
def read(page: str) -> Reading:
    reading = Reading()
    reading.feed(page)
    return reading


def test_every_operation_and_every_schema_has_its_place(page: str, read: Reading) -> None:
    operations = {
        item[method]["operationId"]
        for item in CONTRACT["paths"].values()
        for method in METHODS
        if method in item
    }
    schemas = {f"schema-{name}" for name in CONTRACT["components"]["schemas"]}

    assert operations | schemas <= set(read.ids)
    assert len(read.ids) == len(set(read.ids))
    assert [path for path in CONTRACT["paths"] if escape(path) not in page] == []


def test_no_link_of_the_page_leads_nowhere(read: Reading) -> None:
    assert read.targets - set(read.ids) == set()


def test_the_page_is_whole_and_has_no_script(read: Reading) -> None:
    assert read.open == []
    assert "script" not in read.tags


def test_every_summary_and_every_code_is_told(page: str) -> None:
    text = re.sub(r"<[^>]+>", "", page)
    summaries = [
        item[method]["summary"]
        for item in CONTRACT["paths"].values()
        for method in METHODS
        if method in item
    ]
    codes = [each["const"] for each in CONTRACT["components"]["schemas"]["ProblemCode"]["oneOf"]]

    missing = [said for said in [*summaries, *codes] if escape(said.replace("`", "")) not in text]

    assert missing == []


def test_what_a_description_says_stays_text() -> None:
    said = "<script>alert(1)</script> `<b>` & **<i>**"

    shown_as = "&lt;script&gt;alert(1)&lt;/script&gt; <code>&lt;b&gt;</code> &amp; "
    assert line(said) == shown_as + "<strong>&lt;i&gt;</strong>"
    assert "<script>" not in shown({"description": said, "const": said, "pattern": said})


def test_paragraphs_and_lists_are_kept() -> None:
    assert (
        prose("one\nline\n\n- a\n  b\n- c\n")
        == "<p>one\nline</p><ul><li>a\n  b\n</li><li>c</li></ul>"
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"$ref": "#/components/schemas/Run"}, '<a href="#schema-Run">Run</a>'),
        ({"type": ["string", "null"]}, "string or null"),
        ({"enum": ["a", None]}, "<code>a</code> or <code>null</code>"),
        ({"type": "array", "items": {"type": "integer"}}, "array of integer"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "object of string"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"properties": {}}, "object"),
        ({}, "anything"),
        (True, "anything"),
        (False, "nothing"),
    ],
)
def test_a_schema_is_said_in_a_line(schema: object, said: str) -> None:
    assert kind(schema) == said
