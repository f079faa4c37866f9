"""What the two databases say differently gives the same answers."""

from typing import Any

import pytest
from sqlalchemy import ColumnElement, literal, select

from milepost.store.dialect import (
    DIALECTS,
    DialectName,
    day_of,
    hour_of,
    json_text,
    now_ms,
    rows,
    rows_of,
    text,
    word,
    words,
)
from milepost.store.engine import Engine
from milepost.store.work import Statement, Work

MOMENT_MS = 1_795_234_559_999  # 2026-11-21T04:15:59.999Z
LAST_MOMENT_OF_A_DAY_MS = 1_735_689_599_999


def one(*columns: ColumnElement[Any]) -> Work[tuple[Any, ...]]:
    (row,) = yield Statement(select(*columns))()
    return tuple(row)


async def test_days_and_hours_are_those_of_utc(engine: Engine) -> None:
    asked = [
        spelled(literal(moment))
        for moment in (MOMENT_MS, LAST_MOMENT_OF_A_DAY_MS, 0)
        for spelled in (day_of, hour_of)
    ]

    assert await engine.read(one(*asked)) == (
        "2026-11-21", "2026-11-21T04:00Z",
        "2024-12-31", "2024-12-31T23:00Z",
        "1970-01-01", "1970-01-01T00:00Z",
    )  # fmt: skip


async def test_the_database_s_clock_moves_on_within_a_transaction(engine: Engine) -> None:
    def twice() -> Work[tuple[int, int]]:
        (first,) = yield from one(now_ms())
        second = first
        while second == first:
            (second,) = yield from one(now_ms())
        return first, second

    first, second = await engine.write(twice())

    assert 0 < second - first < 10_000


@pytest.mark.parametrize("key", ["plain", "with space", "a.b", "$", "ключ", "0", "it's", "%s"])
async def test_a_member_of_a_json_object_is_found_by_any_key(engine: Engine, key: str) -> None:
    document = rows_of([{key: "value", "other": "x"}])[1:-1]

    found = await engine.read(
        one(json_text(literal(document), key), json_text(literal(document), "none"))
    )

    assert found == ("value", None)


async def test_a_member_that_is_an_object_comes_as_its_json(engine: Engine) -> None:
    document = literal('{"error":{"code":"x"},"nothing":null}')

    found = await engine.read(
        one(
            json_text(json_text(document, "error"), "code"),
            json_text(document, "nothing"),
            json_text(json_text(document, "nothing"), "code"),
        )
    )

    assert found == ("x", None, None)


async def test_a_batch_is_read_as_a_table(engine: Engine) -> None:
    batch: list[dict[str, Any]] = [
        {"name": "a", "data": '{"quoted":"\\"","deep":[1,2]}', "count": 2**62},
        {"name": "ü — ✓", "data": "", "count": -1},
        {"name": None, "count": None},
    ]
    table = rows("batch", "name", "data", numbers=("count",))

    def read() -> Work[list[tuple[Any, ...]]]:
        found = yield Statement(select(table.c.name, table.c.data, table.c.count))(
            batch=rows_of(batch)
        )
        return [tuple(row) for row in found]

    assert await engine.read(read()) == [
        (row.get("name"), row.get("data"), row["count"]) for row in batch
    ]


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_constants_stand_in_the_text_where_a_partial_index_looks_for_them(
    dialect: DialectName,
) -> None:
    statement = Statement(select(text("x") == word("queued"), text("x").in_(words(("a", "b")))))

    written, parameters = statement(x="y").rendered(dialect)

    assert "'queued'" in written
    assert "'a', 'b'" in written
    assert parameters == {"x": "y"}


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_a_statement_is_compiled_once(dialect: DialectName) -> None:
    statement = Statement(select(text("x")))

    first, _ = statement(x="1").rendered(dialect)
    again, _ = statement(x="2").rendered(dialect)

    assert first is again
