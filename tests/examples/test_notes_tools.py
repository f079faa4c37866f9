"""The example's notes are each user's own, and gone once they are deleted."""

from pathlib import Path

import pytest

from examples import notes_tools
from milepost.core.json import Json
from milepost.tools import Outcome, ToolContext, execute, tool_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notes are in the folder that the service runs in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(name: str, user: str | None = "ada", **arguments: Json) -> Outcome:
    """Return what comes of a call for that user."""
    context = ToolContext("run_1", "ses_1", "acme", user, "call_1_0", 1, "key-1")
    return execute(getattr(notes_tools, name), arguments, context=context)


def test_a_note_is_read_as_it_was_written_last() -> None:
    called("write_note", title="milk", text="two")

    called("write_note", title="milk", text="three")

    assert called("read_note", title="milk").content == {
        "kind": "note",
        "title": "milk",
        "text": "three",
    }


def test_notes_are_found_by_words_whatever_their_case() -> None:
    called("write_note", title="Shopping", text="Milk, bread")
    called("write_note", title="calls", text="the plumber")

    found = [called("find_notes", words=words).content for words in ("mILK", "", "100%")]

    assert found == [["Shopping"], ["Shopping", "calls"], []]


@pytest.mark.parametrize("other", ["bob", None])
def test_nobody_sees_the_notes_of_another(other: str | None) -> None:
    called("write_note", title="secret", text="only mine")

    read = called("read_note", other, title="secret")

    assert read.content == {"kind": "not_found", "entity": "note", "query": "secret"}
    assert called("find_notes", other, words="").content == []


def test_a_note_is_deleted_with_a_persons_yes_and_twice_does_no_harm() -> None:
    called("write_note", title="old", text="gone soon")

    said = [called("delete_note", title="old").content for _ in range(2)]

    assert said == ["there is no note 'old' any more"] * 2
    assert called("find_notes", words="").content == []
    assert tool_of(notes_tools.delete_note).requires_approval


def test_a_title_that_is_empty_is_refused_before_anything_is_written() -> None:
    refused = called("write_note", title="", text="of nothing")

    assert refused.as_text() == (
        "Error: write_note: parameter 'title' must have at least 1 characters, got 0."
    )
    assert called("find_notes", words="").content == []
