"""Lists: keyset pages by sortable id, and the filters of a query string."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from milepost.api.accepting import JSON
from milepost.core.errors import InvalidError
from milepost.store.records import Page

LIMIT_DEFAULT = 20
LIMIT_MAX = 100
METADATA_MAX = 32

_CURSOR = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_METADATA = re.compile(r"metadata\[([^\]\"]{1,64})\]")

D = TypeVar("D", int, None)
F = TypeVar("F", bool, None)
T = TypeVar("T")


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return JSON, encoded once."""
    return Response(orjson.dumps(value), status, headers, JSON)


def allow(request: Request, *names: str) -> None:
    """Raise `InvalidError` for a query parameter that is none of `names`, or comes twice."""
    labelled = "metadata" in names
    plain = [name for name in names if name != "metadata"]
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in plain and not (labelled and _METADATA.fullmatch(name)):
            raise InvalidError(_unknown(name, plain, labelled=labelled), code="bad_query")
        if name in seen:
            raise InvalidError(f"query parameter {name!r} comes twice", code="bad_query")
        seen.add(name)


def _unknown(name: str, plain: Sequence[str], *, labelled: bool) -> str:
    if labelled and name.startswith("metadata"):
        return f"labels are asked for by their key, as metadata[team]=support, not by {name!r}"
    known = [*plain, "metadata[key]"] if labelled else plain
    return f"there is no query parameter {name!r}; there are: {', '.join(known) or 'none'}"


def page(request: Request, *, of: str | None = None, order: str = "desc") -> Page:
    """Return which stretch of a list the query asks for; `order` is what it is in unless said.

    `of` is what the ids begin with by which the list is sorted, where it is by ids. A cursor of
    another list lies before all of them or behind, and would end this one or begin it anew.
    """
    after = request.query_params.get("after")
    cursor = _CURSOR if of is None else re.compile(rf"{of}_[A-Za-z0-9]{{1,60}}")
    if after is not None and not cursor.fullmatch(after):
        raise InvalidError(f"{after!r} is no cursor of this list", code="bad_cursor")
    order = request.query_params.get("order", order)
    if order not in {"asc", "desc"}:
        raise InvalidError(f"order is asc or desc, not {order!r}", code="bad_query")
    limit = integer(request, "limit", LIMIT_DEFAULT, low=1, high=LIMIT_MAX)
    return Page(limit, after, ascending=order == "asc")


def listed(
    rows: Sequence[T], wanted: Page, show: Callable[[T], Any], key: Callable[[T], str]
) -> Response:
    """Return a page of `rows`, of which the store gave one more where there are more."""
    return json_response(shown_page(rows, wanted, show, key))


def shown_page(
    rows: Sequence[T], wanted: Page, show: Callable[[T], Any], key: Callable[[T], str]
) -> dict[str, Any]:
    """Return such a page as a part of something larger."""
    shown = rows[: wanted.limit]
    more = len(rows) > wanted.limit
    return {
        "data": [show(row) for row in shown],
        "has_more": more,
        "next_cursor": key(shown[-1]) if more else None,
    }


def stretch_of(rows: Iterable[T], wanted: Page, key: Callable[[T], str]) -> list[T]:
    """Return what the store would of `rows` that are in memory: a page, and one more."""
    ordered = sorted(rows, key=key, reverse=not wanted.ascending)
    if (after := wanted.after) is not None:
        ordered = [
            row for row in ordered if (key(row) > after if wanted.ascending else key(row) < after)
        ]
    return ordered[: wanted.limit + 1]


def integer(request: Request, name: str, default: D, *, low: int, high: int) -> int | D:
    """Return a query parameter that is a number within bounds, or `default`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
        raise InvalidError(
            f"{name} is a number from {low} to {high}, not {text!r}", code="bad_query"
        )
    return int(text)


def flag(request: Request, name: str, *, default: F) -> bool | F:
    """Return a query parameter that is true or false, or `default`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if text not in {"true", "false"}:
        raise InvalidError(f"{name} is true or false, not {text!r}", code="bad_query")
    return text == "true"


def choice(request: Request, name: str, choices: Sequence[str]) -> str | None:
    """Return a query parameter that is one of `choices`, or None."""
    text = request.query_params.get(name)
    if text is not None and text not in choices:
        raise InvalidError(f"{name} is one of {', '.join(choices)}, not {text!r}", code="bad_query")
    return text


def words(request: Request, name: str) -> str | None:
    """Return a query parameter that is free text, or None."""
    text = request.query_params.get(name)
    if text is not None and ("\x00" in text or len(text) > 500):
        raise InvalidError(f"{name} is up to 500 characters without NUL", code="bad_query")
    return text


def moment_ms(request: Request, name: str) -> int | None:
    """Return a query parameter that is an RFC 3339 time, in Unix milliseconds."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        if moment.tzinfo is None:
            raise ValueError("no offset")  # noqa: TRY301 - one message for every way to be wrong
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidError(
            f"{name} is a time such as 2026-01-31T12:00:00Z, not {text!r}", code="bad_query"
        ) from error


def metadata(request: Request) -> dict[str, str]:
    """Return the filters of the form `metadata[key]=value`."""
    found = {}
    for name, value in request.query_params.multi_items():
        if matched := _METADATA.fullmatch(name):
            if "\x00" in name + value:
                raise InvalidError(f"{name} has a NUL character", code="bad_query")
            found[matched[1]] = value
    if len(found) > METADATA_MAX:
        raise InvalidError(
            f"up to {METADATA_MAX} pairs of metadata can be asked for, not {len(found)}: nothing"
            " has more",
            code="bad_query",
        )
    return found
