"""What tool calls came to, by whatever one likes: read from their spans, in two statements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Subquery, case, cast, func, select

from milepost.core.errors import InvalidError
from milepost.core.spans import CACHE_HIT, CHUNKS, COERCED, ERROR_TYPE
from milepost.store import schema
from milepost.store.dialect import day_of, hour_of, json_text, word
from milepost.store.listing import Query, where_equal, where_labelled
from milepost.store.usage import UsageFilter, bounded, by_keys, keys_of, total_of, within
from milepost.store.work import Row, Statement, Work

_S = schema.spans.c
_R = schema.runs.c


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """The tool calls that belong together: attempts that ran, and how many were denied beside.

    `duration_ms` is the time that they took in all; half of them took `p50_ms` at most. `coerced`
    are those whose arguments were mended, `cached` those whose result was there already, `chunks`
    the pieces of text that they showed. A failure is counted by its code too.
    """

    key: tuple[str | None, ...]
    runs: int = 0
    calls: int = 0
    failures: int = 0
    cancelled: int = 0
    denied: int = 0
    coerced: int = 0
    cached: int = 0
    chunks: int = 0
    duration_ms: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None
    failures_by_code: Mapping[str, int] = field(default_factory=dict)


_KEYS: Mapping[str, ColumnElement[Any]] = {
    "day": day_of(_S.start_ms),
    "hour": hour_of(_S.start_ms),
    "agent": _R.agent,
    "tool": _S.tool,
    "session": _R.session_id,
    "user": _R.user_id,
    "tenant": _S.tenant,
}
_CALL = word("execute_tool")
_DENIAL = word("denial")


def grouped(tenant: str, group_by: Sequence[str], wanted: UsageFilter) -> Work[list[ToolGroup]]:
    """Return the tenant's tool calls by day, hour, agent, tool, session, user, tenant or
    `metadata.<key>`, or any of them together, in the order of the keys.
    """
    if wanted.model is not None:
        raise InvalidError("a tool call belongs to no model; group by model", pointer="/model")
    keys = keys_of(group_by, _KEYS, _R.metadata)
    counted, failed = yield (
        Statement(_counts(tenant, keys, wanted))(),
        Statement(_failures(tenant, keys, wanted))(),
    )
    width = len(keys)
    codes: dict[tuple[str | None, ...], dict[str, int]] = {}
    for row in bounded(failed):
        codes.setdefault(tuple(row[:width]), {})[row[width]] = row[width + 1]
    return [_group(row, width, codes) for row in bounded(counted)]


def _group(
    row: Row, width: int, codes: Mapping[tuple[str | None, ...], Mapping[str, int]]
) -> ToolGroup:
    key = tuple(row[:width])
    return replace(ToolGroup(key, *row[width:]), failures_by_code=codes.get(key, {}))


def _counts(tenant: str, keys: Sequence[ColumnElement[Any]], wanted: UsageFilter) -> Query:
    """Return the sums of each group, and the durations at two places of its order."""
    calls = _ranked(tenant, keys, wanted)
    c = calls.c
    is_call = c.kind == _CALL
    query: Query = select(
        *(c[_name(place)] for place in range(len(keys))),
        func.count(case((is_call, c.run_id)).distinct()),
        _count(is_call),
        _count(is_call & (c.status == word("error"))),
        _count(is_call & (c.status == word("cancelled"))),
        _count(c.kind == _DENIAL),
        _count(is_call & c.coerced.is_not(None)),
        _count(is_call & c.cached.is_not(None)),
        total_of(case((is_call, c.chunks), else_=0)),
        total_of(case((is_call, c.took_ms), else_=0)),
        *(
            func.min(case((is_call & (c.place * 100 >= c.of * share), c.took_ms)))
            for share in (50, 95)
        ),
    )
    return by_keys([c[_name(place)] for place in range(len(keys))], query)


def _ranked(tenant: str, keys: Sequence[ColumnElement[Any]], wanted: UsageFilter) -> Subquery:
    """Return the calls one by one, each with its place among its group's by how long it took."""
    took_ms = _S.end_ms - _S.start_ms
    apart = [*keys, _S.kind]
    query: Query = select(
        *(key.label(_name(place)) for place, key in enumerate(keys)),
        _S.run_id,
        _S.kind,
        _S.status,
        took_ms.label("took_ms"),
        json_text(_S.attributes, word(COERCED)).label("coerced"),
        json_text(_S.attributes, word(CACHE_HIT)).label("cached"),
        cast(json_text(_S.attributes, word(CHUNKS)), BigInteger).label("chunks"),
        func.row_number().over(partition_by=apart, order_by=took_ms).label("place"),
        func.count().over(partition_by=apart).label("of"),
    )
    return _wanted(query, tenant, wanted).subquery("calls")


def _failures(tenant: str, keys: Sequence[ColumnElement[Any]], wanted: UsageFilter) -> Query:
    """Return how many calls of each group failed with which code."""
    code = func.coalesce(json_text(_S.attributes, word(ERROR_TYPE)), word("unknown"))
    query: Query = select(*keys, code, func.count()).where(
        _S.kind == _CALL, _S.status == word("error")
    )
    return by_keys([*keys, code], _wanted(query, tenant, wanted))


def _wanted(query: Query, tenant: str, wanted: UsageFilter) -> Query:
    query = query.select_from(schema.spans.join(schema.runs, _R.id == _S.run_id)).where(
        _S.tenant == tenant, _S.kind.in_([_CALL, _DENIAL])
    )
    if wanted.run_id is None:  # A run's spans are few: they must not be looked for by their tools.
        query = query.where(_S.tool.is_not(None))
    query = where_equal(
        query,
        {
            _S.run_id: wanted.run_id,
            _R.agent: wanted.agent,
            _R.session_id: wanted.session_id,
            _R.user_id: wanted.user,
            _S.tool: wanted.tool,
        },
    )
    return where_labelled(within(query, _S.start_ms, wanted), _R.metadata, wanted.metadata)


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return total_of(case((condition, 1), else_=0))


def _name(place: int) -> str:
    return f"key_{place}"
