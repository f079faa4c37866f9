"""What model calls took, and to whose account."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, cast, func, insert, select

from milepost.core.errors import InvalidError
from milepost.core.usage import Usage
from milepost.store import schema
from milepost.store.dialect import day_of, hour_of, json_text, rows, rows_of, text, word
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

# What stands in a run's log has the number of its event; what was taken beside it, one below zero.
IN_LOG = _U.seq > 0
_TOTAL = Statement(
    select(*TOTALS.values()).where(_U.tenant == text("tenant"), _U.run_id == text("run_id"), IN_LOG)
)
_beside = rows(
    "beside",
    "run_id", "tenant", "session_id", "agent", "model", "user_id", "metadata",
    numbers=("seq", "time_ms", *NUMBERS),
)  # fmt: skip
_ADD = Statement(
    insert(schema.usage).from_select([each.name for each in _beside.c], select(*_beside.c))
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


@dataclass(frozen=True, slots=True)
class Account:
    """Who takes something beside runs' logs: a run, or nobody's in particular, of a tenant."""

    tenant: str
    user: str | None = None
    run_id: str = ""
    session_id: str = ""
    agent: str = ""
    agent_id: str = ""
    metadata: str = "{}"


@dataclass(frozen=True, slots=True)
class Taken:
    """What a model call beside runs' logs took; `number` is one that nobody else has."""

    account: Account
    model: str
    usage: Usage
    number: int
    time_ms: int


def add(taken: Iterable[Taken]) -> Work[None]:
    """Write down what was taken beside runs' logs."""
    yield _ADD(beside=rows_of(map(_row, taken)))


def _row(taken: Taken) -> dict[str, str | int | None]:
    account = taken.account
    return {
        "run_id": account.run_id,
        "seq": -taken.number,
        "tenant": account.tenant,
        "session_id": account.session_id,
        "agent": account.agent,
        "model": taken.model,
        "user_id": account.user,
        "metadata": account.metadata,
        "time_ms": taken.time_ms,
        **asdict(taken.usage),
    }


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
    "agent": func.nullif(_U.agent, word("")),
    "model": _U.model,
    "session": func.nullif(_U.session_id, word("")),
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
    runs = func.count(func.nullif(_U.run_id, word("")).distinct())
    query: Query = select(*keys, runs, *TOTALS.values()).where(_U.tenant == tenant)
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
