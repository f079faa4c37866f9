"""Query strings: pages, filters, and what is refused about them."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from milepost.api.paging import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    METADATA_MAX,
    allow,
    choice,
    flag,
    integer,
    listed,
    metadata,
    moment_ms,
    page,
    stretch_of,
    words,
)
from milepost.core.errors import InvalidError
from milepost.store.records import Page
from tests.api.making import refusal
from tests.api.surface import stocked
from tests.contract import CONTRACT


def asking(query: str) -> Request:
    """Return a request with this query string."""
    return Request({"type": "http", "method": "GET", "query_string": query.encode(), "headers": []})


def test_a_page_is_of_the_newest_unless_said_otherwise() -> None:
    assert page(asking("")) == Page(LIMIT_DEFAULT, None, ascending=False)
    assert page(asking(""), order="asc") == Page(LIMIT_DEFAULT, None, ascending=True)
    assert page(asking("limit=5&after=run_1&order=asc")) == Page(5, "run_1", ascending=True)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "bad_query"),
        (f"limit={LIMIT_MAX + 1}", "bad_query"),
        ("limit=-1", "bad_query"),
        ("limit=1e1", "bad_query"),
        ("limit=%C2%B2", "bad_query"),
        ("limit=" + "9" * 5000, "bad_query"),
        ("limit=", "bad_query"),
        ("order=up", "bad_query"),
        ("after=", "bad_cursor"),
        ("after=a%00", "bad_cursor"),
        ("after=a%20b", "bad_cursor"),
        ("after=" + "a" * 201, "bad_cursor"),
    ],
)
def test_a_page_that_cannot_be_is_refused(query: str, code: str) -> None:
    with pytest.raises(InvalidError) as refused:
        page(asking(query))

    assert refused.value.code == code


@pytest.mark.parametrize("after", ["agt_1", "run_", "run", "run_1.1", "arun_1", "run_" + "1" * 61])
def test_a_cursor_of_another_list_is_refused(after: str) -> None:
    """Beyond all ids of this one, it would be its end: a client would believe that it has all."""
    with pytest.raises(InvalidError) as refused:
        page(asking(f"after={after}"), of="run")

    assert refused.value.code == "bad_cursor"
    assert page(asking("after=run_1"), of="run").after == "run_1"


def lists() -> Iterator[tuple[str, str]]:
    """Yield the lists that are sorted by id, and what those ids begin with."""
    for path, item in CONTRACT["paths"].items():
        for parameter in item.get("get", {}).get("parameters", ()):
            if parameter.get("name") == "after" and "_" in parameter["schema"].get("pattern", ""):
                yield path, parameter["schema"]["pattern"].lstrip("^").partition("_")[0]


async def test_every_list_takes_cursors_of_its_own_alone(client: httpx2.AsyncClient) -> None:
    things = await stocked(client)

    for path, own in lists():
        there = re.sub(r"{(\w+)}", lambda name: things[name[1]], path)
        taken = await client.get(f"{there}?after={own}_0")
        refused = await client.get(f"{there}?after={'agt' if own != 'agt' else 'run'}_0")
        assert (path, taken.status_code) == (path, 200), taken.text
        assert (path, *refusal(refused)) == (path, 400, "bad_cursor")


@pytest.mark.parametrize("query", ["stauts=x", "limit=1&limit=2", "metadata[a]=1", "=1", "a"])
def test_a_parameter_that_is_not_known_or_comes_twice_is_refused(query: str) -> None:
    with pytest.raises(InvalidError) as refused:
        allow(asking(query), "limit", "status")

    assert refused.value.code == "bad_query"


def test_what_is_known_is_allowed() -> None:
    request = asking("limit=1&status=x&metadata[a]=1&metadata[b]=2")

    allow(request, "limit", "status", "metadata")

    with pytest.raises(InvalidError, match="metadata"):
        allow(request, "limit", "status")


@pytest.mark.parametrize("name", ["metadata", "metadata[]", "metadata[a"])
def test_labels_asked_for_without_a_key_are_refused_and_told_how_to_ask(name: str) -> None:
    with pytest.raises(InvalidError, match=r"metadata\[team\]=support") as refused:
        allow(asking(f"{name}=support"), "limit", "metadata")

    assert refused.value.code == "bad_query"


def test_metadata_filters_are_read_by_key() -> None:
    assert metadata(asking("metadata[a]=1&metadata[b%20c]=%C3%BC&limit=1")) == {
        "a": "1",
        "b c": "ü",
    }


@pytest.mark.parametrize("query", ["metadata[a]=%00", "metadata[%00]=1"])
def test_metadata_filters_have_no_nul(query: str) -> None:
    with pytest.raises(InvalidError):
        metadata(asking(query))


@pytest.mark.parametrize("name", ['metadata[a"b]', "metadata[]", "metadata[a]]", "metadata"])
def test_metadata_filters_that_no_database_could_take_are_refused(name: str) -> None:
    request = Request(
        {
            "type": "http",
            "method": "GET",
            "query_string": f"{name.replace(chr(34), '%22')}=1".encode(),
            "headers": [],
        }
    )

    with pytest.raises(InvalidError):
        allow(request, "limit", "metadata")


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00.250Z", 1_769_860_800_250),
        ("2026-01-31T13:00:00%2B01:00", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),  # a plus is a space in a query
        ("1969-12-31T23:59:59Z", -1_000),
    ],
)
def test_times_are_read_with_their_offset(text: str, time_ms: int) -> None:
    assert moment_ms(asking(f"since={text}"), "since") == time_ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31", "2026-01-31T12:00:00"])
def test_times_without_an_offset_or_a_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        moment_ms(asking(f"since={text}"), "since")


def test_absent_parameters_are_their_defaults() -> None:
    request = asking("")

    assert integer(request, "n", 7, low=1, high=9) == 7
    assert flag(request, "deltas", default=True) is True
    assert choice(request, "status", ("a",)) is None
    assert words(request, "user") is None
    assert moment_ms(request, "since") is None


def test_parameters_are_read_as_what_they_are() -> None:
    request = asking("n=3&deltas=false&status=a&user=%C3%BC")

    assert integer(request, "n", 7, low=1, high=9) == 3
    assert flag(request, "deltas", default=True) is False
    assert choice(request, "status", ("a",)) == "a"
    assert words(request, "user") == "ü"


def test_parameters_that_do_not_fit_are_refused() -> None:
    request = asking(f"n=10&deltas=1&status=c&user=%00&name={'x' * 501}")

    for read in (
        lambda: integer(request, "n", 7, low=1, high=9),
        lambda: flag(request, "deltas", default=True),
        lambda: choice(request, "status", ("a", "b")),
        lambda: words(request, "user"),
        lambda: words(request, "name"),
    ):
        with pytest.raises(InvalidError) as refused:
            read()
        assert refused.value.code == "bad_query"


@pytest.mark.parametrize(
    ("rows", "body"),
    [
        (["a", "b", "c"], {"data": ["A", "B"], "has_more": True, "next_cursor": "b"}),
        (["a", "b"], {"data": ["A", "B"], "has_more": False, "next_cursor": None}),
        ([], {"data": [], "has_more": False, "next_cursor": None}),
    ],
)
def test_a_list_says_whether_there_is_more(rows: list[str], body: dict[str, Any]) -> None:
    answer = listed(rows, Page(2), str.upper, str)

    assert orjson.loads(bytes(answer.body)) == body


@given(names=st.sets(st.text("abcdef", min_size=1)), limit=st.integers(1, 5), up=st.booleans())
def test_pages_of_what_is_in_memory_show_everything_once(
    names: set[str], limit: int, up: bool
) -> None:
    seen: list[str] = []
    after = None
    while True:
        found = stretch_of(names, Page(limit, after, ascending=up), str)
        seen += found[:limit]
        if len(found) <= limit:
            break
        after = seen[-1]

    assert seen == sorted(names, reverse=not up)


def test_as_many_pairs_of_metadata_are_asked_for_as_anything_may_have() -> None:
    pairs = [f"metadata[k{n}]=v" for n in range(METADATA_MAX + 1)]

    assert len(metadata(asking("&".join(pairs[:-1])))) == METADATA_MAX
    with pytest.raises(InvalidError) as refused:
        metadata(asking("&".join(pairs)))
    assert refused.value.code == "bad_query"
