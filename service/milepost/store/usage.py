"""What model calls took, and to whose account."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, cast, func, select

from milepost.core.errors import InvalidError
from milepost.core.usage import Usage
from milepost.store import schema
from milepost.store.dialect import day_of, hour_of, json_text, text
from milepost.store.listing import Query, where_equal, where_labelled
from milepost.store.work import Rows, Statement, Work

GROUPS_MAX = 10_000
METADATA = "metadata."

_U = schema.usage.c


def total_of(number: ColumnElement[Any]) -> ColumnElement[int]:
    """Return the sum as an integer: Postgres makes a numeric of it, and NULL of nothing."""
    return cast(func.coalesce(func.sum(number), 0), BigInteger)


NUMBERS = tuple(each.name for each in fields(Usage))
TOTALS = {name: total_of(_U[name]) for name in NUMBERS}

_TOTAL = Statement(
    select(*TOTALS.values()).where(_U.tenant == text("tenant"), _U.run_id == text("run_id"))
)

_SAVED = Statement(
    select(
        func.count(),
        *(
            TOTALS[name]
            for name in ("saved_input_tokens", "saved_output_tokens", "saved_cost_nanos")
        ),
    ).where(_U.tenant == text("tenant"), _U.saved_input_tokens + _U.saved_output_tokens > 0)
)


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which usage is counted; None means any. Time goes from the one up to the other, exclusive."""

    run_id: str | None = None
    agent: str | None = None
    session_id: str | None = None
    user: str | None = None
    model: str | None = None
    tool: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    """What replies from the cache have spared: how many there were, and what they would cost."""

    replies: int
    input_tokens: int
    output_tokens: int
    cost_nanos: int


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """What belongs together: `key` has a value for each name that was grouped by."""

    key: tuple[str | None, ...]
    runs: int
    usage: Usage


def saved(tenant: str) -> Work[Saved]:
    """Return what the cache has spared the tenant in all."""
    found = yield _SAVED(tenant=tenant)
    return Saved(*found[0])


def total(tenant: str, run_id: str) -> Work[Usage]:
    """Return what the run has used so far."""
    ((*sums,),) = yield _TOTAL(tenant=tenant, run_id=run_id)
    return Usage(*sums)


_USAGE_KEYS: Mapping[str, ColumnElement[Any]] = {
    "day": day_of(_U.time_ms),
    "hour": hour_of(_U.time_ms),
    "agent": _U.agent,
    "model": _U.model,
    "session": _U.session_id,
    "user": _U.user_id,
    "tenant": _U.tenant,
}


def grouped(tenant: str, group_by: Sequence[str], wanted: UsageFilter) -> Work[list[UsageGroup]]:
    """Return the tenant's model calls by day, hour, agent, model, session, user, tenant or
    `metadata.<key>`, or any of them together, in the order of the keys.
    """
    if wanted.tool is not None:
        raise InvalidError("a model call belongs to no tool; group by tool", pointer="/tool")
    keys = keys_of(group_by, _USAGE_KEYS, _U.metadata)
    query: Query = select(*keys, func.count(_U.run_id.distinct()), *TOTALS.values()).where(
        _U.tenant == tenant
    )
    query = where_equal(
        query,
        {
            _U.run_id: wanted.run_id,
            _U.agent: wanted.agent,
            _U.session_id: wanted.session_id,
            _U.user_id: wanted.user,
            _U.model: wanted.model,
        },
    )
    query = within(query, _U.time_ms, wanted)
    query = where_labelled(query, _U.metadata, wanted.metadata)
    found = yield Statement(by_keys(keys, query))()
    width = len(keys)
    return [
        UsageGroup(tuple(row[:width]), row[width], Usage(*row[width + 1 :]))
        for row in bounded(found)
    ]


def keys_of(
    group_by: Sequence[str], known: Mapping[str, ColumnElement[Any]], metadata: ColumnElement[Any]
) -> list[ColumnElement[Any]]:
    """Return what is grouped by, one expression for each name. Raises `InvalidError`."""
    keys: list[ColumnElement[Any]] = []
    for name in group_by:
        if name.startswith(METADATA):
            keys.append(json_text(metadata, name.removeprefix(METADATA)))
        elif name in known:
            keys.append(known[name])
        else:
            raise InvalidError(
                f"this has no {name!r}; group by any of {', '.join(known)} and metadata.<key>",
                code="unknown_group",
                pointer="/group_by",
            )
    return keys


def within(query: Query, time_ms: ColumnElement[int], wanted: UsageFilter) -> Query:
    """Return `query` narrowed to the time that is asked about."""
    if wanted.from_ms is not None:
        query = query.where(time_ms >= wanted.from_ms)
    if wanted.until_ms is not None:
        query = query.where(time_ms < wanted.until_ms)
    return query


def by_keys(keys: Sequence[ColumnElement[Any]], query: Query) -> Query:
    """Return `query` in groups, in the order of their keys, and one more than there may be."""
    ordered = [key.nulls_last() for key in keys]
    return query.group_by(*keys).order_by(*ordered).limit(GROUPS_MAX + 1)


def bounded(found: Rows) -> Rows:
    """Return the groups. Raises `InvalidError` where there are too many to show."""
    if len(found) > GROUPS_MAX:
        raise InvalidError(
            f"there are more than {GROUPS_MAX} groups; narrow the time, or group by less",
            code="too_many_groups",
            pointer="/group_by",
        )
    return found
