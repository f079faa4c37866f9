"""Finding things in text: parts of JSON, lines with words, rows of CSV."""

import csv
import io
import json
import re
from typing import Annotated

from milepost.core.errors import ToolError
from milepost.core.json import Json
from milepost.tools.decorator import tool

MATCHES_MAX = 200
ROWS_MAX = 1_000

_STEP = re.compile(r"\.?(?P<name>[^.\[\]]+)|\[(?P<index>-?[0-9]{1,9})\]|\[(?P<all>\*)\]")


@tool(effect="read")
def json_query(
    document: Annotated[str, "JSON, as text"],
    path: Annotated[str, "orders[0].items[*].price, or a JSON Pointer such as /orders/0/items"],
) -> Json:
    """Take a part out of JSON: members by name, items by number, [*] for each item of a list."""
    try:
        value: Json = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the document is no JSON: {error}") from error
    steps = _pointer(path) if path.startswith("/") else _path(path)
    return _walk(value, steps, path)


@tool(effect="read")
def text_search(
    text: str,
    words: Annotated[str, "Found as it is written; it is no pattern"],
    ignore_case: bool = True,
) -> list[dict[str, Json]]:
    """Find the lines of a text that have these words, with their numbers: the first 200."""
    if not words:
        raise ToolError("no words to look for were given")
    wanted = words.casefold() if ignore_case else words
    lines = enumerate(text.splitlines(), start=1)
    found = (
        (at, line) for at, line in lines if wanted in (line.casefold() if ignore_case else line)
    )
    return [{"line": at, "text": line} for (at, line), _ in zip(found, range(MATCHES_MAX))]  # noqa: B905 - the shorter one ends it


@tool(effect="read")
def table_from_csv(
    text: Annotated[str, "CSV whose first line names the columns"],
    delimiter: Annotated[str, "What stands between the fields: one character"] = ",",
) -> dict[str, Json]:
    """Read CSV as a table: its columns, its rows as lists of text, and how many rows there are."""
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ToolError(f"the delimiter is one character, not {delimiter!r}")
    try:
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter) if line]
    except csv.Error as error:
        raise ToolError(f"that is no CSV: {error}") from error
    if not lines:
        raise ToolError("there is no line that names the columns")
    columns, *rows = lines
    for at, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise ToolError(f"row {at} has {len(row)} fields, and there are {len(columns)} columns")
    shown: list[Json] = [list[Json](row) for row in rows[:ROWS_MAX]]
    return {"columns": list[Json](columns), "rows": shown, "row_count": len(rows)}


def _pointer(path: str) -> list[str | int | None]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


def _path(path: str) -> list[str | int | None]:
    """Return the steps: a name, a number, or None for each item."""
    steps: list[str | int | None] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ToolError(f"{path!r} is no path from {path[at:]!r} on; write a.b[0].c or a[*].b")
        number = step["index"]
        steps.append(None if step["all"] else step["name"] if number is None else int(number))
        at = step.end()
    return steps


def _walk(value: Json, steps: list[str | int | None], path: str) -> Json:
    for at, step in enumerate(steps):
        if step is None:
            if not isinstance(value, list):
                raise ToolError(f"{path!r}: [*] is for lists, and there is none")
            return [_walk(item, steps[at + 1 :], path) for item in value]
        value = _member(value, step, path)
    return value


def _member(value: Json, step: str | int, path: str) -> Json:
    match value:
        case dict() if str(step) in value:
            return value[str(step)]
        case dict():
            known = ", ".join(list(value)[:20]) or "nothing"
            raise ToolError(f"{path!r}: there is no {step!r}; there is: {known}")
        case list() if re.fullmatch(r"-?[0-9]{1,9}", str(step)):
            try:
                return value[int(step)]
            except IndexError as error:
                raise ToolError(f"{path!r}: there are {len(value)} items, no {step}") from error
        case _:
            raise ToolError(f"{path!r}: {step!r} of something that has no such parts")
