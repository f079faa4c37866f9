"""Going through all rows of a tenant in stretches, where no index finds those that are meant.

A stretch is a transaction, so that nobody waits for long, and the place that it came to is all that
has to be remembered.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, and_, bindparam, select, tuple_
from sqlalchemy.sql import ClauseElement

from milepost.store.dialect import text
from milepost.store.work import Rows, Statement, Work

STRETCH = 1_000

Place = Sequence[str | int]


class Sweep:
    """What is done to the rows of a table in each stretch, in the order of an index.

    `act` is given the condition that a row lies in the stretch.
    """

    def __init__(
        self,
        keys: Sequence[Column[Any]],
        act: Callable[[ColumnElement[bool]], ClauseElement],
        *,
        stretch: int = STRETCH,
    ) -> None:
        self._keys = keys
        tenant = keys[0].table.c.tenant == text("tenant")
        after = tuple_(*keys) > tuple_(*_bound("after", keys))
        until = tuple_(*keys) <= tuple_(*_bound("until", keys))
        self._edge = Statement(
            select(*keys).where(tenant, after).order_by(*keys).offset(stretch - 1).limit(1)
        )
        self._act = Statement(act(and_(tenant, after, until)))
        self._act_last = Statement(act(and_(tenant, after)))

    def go_on(self, tenant: str, after: Place, **named: Any) -> Work[tuple[Rows, Place | None]]:
        """Do the next stretch; return what came of it and where it ends, None if that was all.

        `after` is where the last one ended, and empty at the beginning.
        """
        begin = after or [-1 if _is_number(key) else "" for key in self._keys]
        values = {"tenant": tenant, **_values("after", begin)}
        edge = yield self._edge(**values)
        if not edge:
            return (yield self._act_last(**values, **named)), None
        until: Place = list(edge[0])
        return (yield self._act(**values, **_values("until", until), **named)), until


def _bound(name: str, keys: Sequence[Column[Any]]) -> list[ColumnElement[Any]]:
    return [
        bindparam(f"{name}_{index}", type_=key.type, required=False)
        for index, key in enumerate(keys)
    ]


def _values(name: str, place: Place) -> dict[str, str | int]:
    return {f"{name}_{index}": value for index, value in enumerate(place)}


def _is_number(key: Column[Any]) -> bool:
    return isinstance(key.type, BigInteger)
