"""What every list shares: filters that may be absent, metadata, and keyset pages."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select

from milepost.store.dialect import json_text
from milepost.store.records import Page

Query = Select[Any]


def where_equal(query: Query, wanted: Mapping[Any, str | int | None]) -> Query:
    """Return `query` narrowed to rows whose columns have these values; None means any."""
    for column, value in wanted.items():
        if value is not None:
            query = query.where(column == value)
    return query


def where_between(
    query: Query, column: ColumnElement[Any], after: int | None, before: int | None
) -> Query:
    """Return `query` narrowed to what lies strictly between, where bounds are given."""
    if after is not None:
        query = query.where(column > after)
    if before is not None:
        query = query.where(column < before)
    return query


def where_labelled(query: Query, column: ColumnElement[Any], metadata: Mapping[str, str]) -> Query:
    """Return `query` narrowed to rows whose metadata has all of these pairs."""
    for key, value in metadata.items():
        query = query.where(json_text(column, key) == value)
    return query


def paged(query: Query, key: ColumnElement[Any], page: Page) -> Query:
    """Return `query` cut to a page by its sortable key, and one row more."""
    if page.after is not None:
        after = key.type.python_type(page.after)
        query = query.where(key > after if page.ascending else key < after)
    return query.order_by(key if page.ascending else key.desc()).limit(page.limit + 1)
