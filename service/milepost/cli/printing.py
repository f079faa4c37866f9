"""How the commands show things: tables and one-line events for people, JSON for programs."""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

import orjson
import typer

from milepost.client import Event
from milepost.client.shapes import Page

WIDTH_MAX = 100

# What a terminal takes for a command, but for the ends of lines and tabs.
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")

# Which members of an event's data tell it in one line.
_TELLING: Mapping[str, Sequence[str]] = {
    "run.queued": ("agent", "reason"),
    "run.forked": ("run_id", "at_seq"),
    "run.imported": ("run_id", "status"),
    "run.resumed": ("why",),
    "run.completed": ("finish_reason",),
    "tool_call.requested": ("name", "arguments"),
    "tool_call.started": ("attempt",),
    "tool_call.completed": ("result", "duration_ms"),
    "approval.requested": ("approval_id", "preview", "policy"),
    "approval.decided": ("decision", "by", "comment"),
    "message.completed": ("finish_reason",),
}


class Raw(Protocol):
    """What a server answered, of which `raw` is all."""

    @property
    def raw(self) -> Mapping[str, Any]:
        """The whole answer."""


S = TypeVar("S", bound=Raw)


def show_json(value: object) -> None:
    """Print a value so that programs and people can read it."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def show_line(value: object) -> None:
    """Print a value as one line of JSON."""
    typer.echo(orjson.dumps(value).decode())


def legible(text: str) -> str:
    """Return a text as it may be shown: a model's could clear the screen, or write over a line."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return the same on one line: what it says must not look like the next."""
    return legible(_BREAKS.sub(" ", text))


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns, each as wide as its widest member."""
    lines = [
        tuple(headings),
        *(tuple("" if cell is None else one_line(str(cell)) for cell in row) for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def show_list(
    found: Iterable[S],
    headings: Sequence[str],
    row_of: Callable[[S], Sequence[object]],
    *,
    as_json: bool,
) -> None:
    """Print what was found: a table for people, a line of JSON each for programs."""
    if not as_json:
        show_table(headings, map(row_of, found))
        return
    for each in found:
        show_line(each.raw)


def show_page(
    page: Page[S],
    headings: Sequence[str],
    row_of: Callable[[S], Sequence[object]],
    *,
    as_json: bool,
) -> None:
    """Print a page of a list, and tell people how to get at the next."""
    show_list(page.items, headings, row_of, as_json=as_json)
    if page.next_cursor and not as_json:
        typer.echo(f"There are more: --after {page.next_cursor}", err=True)


class Telling:
    """Prints a run's events as they come: text as it is written, everything else a line each."""

    def __init__(self, indent: str = "") -> None:
        self._indent = indent
        self._writing = False

    def show(self, event: Event) -> None:
        """Print one event."""
        if event.type == "message.delta":
            if not self._writing:
                typer.echo(f"{self._indent}      | ", nl=False)
            self._writing = True
            typer.echo(legible(event.data["text"]), nl=False)
            return
        self.rest()
        seq = "" if event.seq is None else str(event.seq)
        typer.echo(f"{self._indent}{seq:>4}  {event.type:<20} {summary(event)}".rstrip())

    def rest(self) -> None:
        """End a line of text that was being written."""
        if self._writing:
            typer.echo()
        self._writing = False


def summary(event: Event) -> str:
    """Return what is worth knowing of an event, on one line: of a failure all, with its remedy."""
    match event.data:
        case {"error": {"code": code, "message": message}} if event.type == "run.failed":
            return legible(" ".join(f"{code}: {message}".split()))
    names = _TELLING.get(event.type, tuple(event.data))
    told = ((name, event.data.get(name)) for name in names)
    line = legible(
        "  ".join(f"{name}={_short(value)}" for name, value in told if value not in (None, [], {}))
    )
    return line if len(line) <= WIDTH_MAX else line[: WIDTH_MAX - 1] + "…"


def _short(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else orjson.dumps(value).decode()


def show_events(events: Generator[Event, None, None], *, as_json: bool) -> str | None:
    """Print the events as they come; return the type of the last."""
    telling, last = Telling(), None
    with closing(events):
        for event in events:
            last = event.type
            if as_json:
                show_line(asdict(event))
            else:
                telling.show(event)
    return last
