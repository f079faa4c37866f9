"""Notes on SQLite: each user has a notebook, and the model cannot name another's.

make run ARGS="--tools examples/notes_tools.py"
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from milepost import Injected, NotFound, ToolContext, ToolResult, tool

NOTES = Path(".milepost/notes.db")
FOUND_MAX = 20

Title = Annotated[str, Field(min_length=1, max_length=80)]


@dataclass(frozen=True, slots=True)
class Note(ToolResult):
    """One note."""

    kind: ClassVar[str] = "note"
    title: str
    text: str


class Notebook:
    """One user's notes. It is opened when it is used, in the thread that uses it."""

    def __init__(self, tenant: str, user: str) -> None:
        self._owner = (tenant, user)

    @contextmanager
    def open(self) -> Iterator[tuple[sqlite3.Connection, tuple[str, str]]]:
        """Open the notes for one transaction, and say whose they are."""
        NOTES.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(NOTES)) as notes, notes:
            notes.execute(
                "CREATE TABLE IF NOT EXISTS notes "
                "(tenant, user, title, text, PRIMARY KEY (tenant, user, title))"
            )
            yield notes, self._owner


def notebook_of(context: ToolContext) -> Notebook:
    """Return the notebook of whoever the run is for."""
    return Notebook(context.tenant, context.user or "")


@tool(effect="idempotent", inject={"notebook": notebook_of})
def write_note(title: Title, text: str, notebook: Injected[Notebook]) -> str:
    """Write a note. One that has the same title is replaced."""
    with notebook.open() as (notes, owner):
        notes.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?)", (*owner, title, text))
    return f"note {title!r} written"


@tool(effect="read", inject={"notebook": notebook_of})
def read_note(title: Title, notebook: Injected[Notebook]) -> Note | NotFound:
    """Read a note by its exact title."""
    with notebook.open() as (notes, owner):
        row = notes.execute(
            "SELECT title, text FROM notes WHERE tenant = ? AND user = ? AND title = ?",
            (*owner, title),
        ).fetchone()
    return Note(*row) if row else NotFound("note", title)


@tool(effect="read", inject={"notebook": notebook_of})
def find_notes(words: str, notebook: Injected[Notebook]) -> list[str]:
    """Return the titles of notes that contain the words, at most 20. No words find every note."""
    with notebook.open() as (notes, owner):
        rows = notes.execute(
            "SELECT title FROM notes WHERE tenant = ? AND user = ? "
            "AND instr(lower(title || ' ' || text), lower(?)) ORDER BY title LIMIT ?",
            (*owner, words, FOUND_MAX),
        )
        return [title for (title,) in rows]


@tool(effect="idempotent", requires_approval=True, inject={"notebook": notebook_of})
def delete_note(title: Title, notebook: Injected[Notebook]) -> str:
    """Delete a note for good."""
    with notebook.open() as (notes, owner):
        notes.execute(
            "DELETE FROM notes WHERE tenant = ? AND user = ? AND title = ?", (*owner, title)
        )
    return f"there is no note {title!r} any more"
