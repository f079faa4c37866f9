"""Memories' vectors: which have none yet, and which lie nearest to another one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, null, or_, select, update

from milepost.core.memories import Owner
from milepost.store import schema
from milepost.store.dialect import among, distance, has_vectors, number, rows, rows_of, text, word
from milepost.store.listing import Query, where_equal
from milepost.store.memories import COLUMNS, MemoryFilter, MemoryRow
from milepost.store.work import Statement, Work

FORGET_MAX = 500
NO_VECTOR = "[]"
"""What a memory has instead that the model makes none of."""

_M = schema.memories.c

Whose = Sequence[Owner] | MemoryFilter
"""Among which memories one looks: some owners', or those that match."""


@dataclass(frozen=True, slots=True)
class Bare:
    """A memory without a vector, in the version that is to get one."""

    number: int
    tenant: str
    version: int
    user: str | None
    told: str


@dataclass(frozen=True, slots=True)
class Embedded:
    """A memory's vector, as JSON."""

    of: Bare
    vector: str


_HAS_VECTORS = Statement(select(has_vectors()))
_BARE = Statement(
    select(
        _M.number,
        _M.tenant,
        _M.version,
        _M.user_id,
        _M.subject,
        _M.predicate,
        _M.object,
        _M.content,
    )
    .where(_M.embedding.is_(None))
    .order_by(_M.number)
    .limit(number("limit"))
)
_looked_at = rows("looked_at", numbers=("number",))
# Whoever forgets one of them is ahead of us, or waits.
_HOLD = Statement(
    select(_M.number)
    .where(among(_M.number, select(_looked_at.c.number).scalar_subquery()))
    .order_by(_M.number)
    .with_for_update(read=True, key_share=True, skip_locked=True)
)
_found = rows("found", "tenant", "vector", numbers=("number", "version"))
_EMBED = Statement(
    update(schema.memories)
    .where(
        _M.number == _found.c.number,
        _M.tenant == _found.c.tenant,
        _M.version == _found.c.version,
    )
    .values(embedding=_found.c.vector, embedded_by=text("model"))
)
_commas = func.length(_M.embedding) - func.length(func.replace(_M.embedding, word(","), word("")))
_is_as_long = _commas == number("commas")
_old = schema.memories.alias("old")
_FORGET_OTHERS = Statement(
    update(schema.memories)
    .where(
        _M.number.in_(
            select(_old.c.number)
            .where(_old.c.embedding.is_not(None), _old.c.embedded_by != text("model"))
            .limit(FORGET_MAX)
        )
    )
    .values(embedding=null(), embedded_by=null())
    .returning(_M.number)
)


def are_at_hand() -> Work[bool]:
    """Say whether the database can compare vectors itself."""
    ((found,),) = yield _HAS_VECTORS()
    return bool(found)


def bare(limit: int) -> Work[list[Bare]]:
    """Return memories without a vector, whoever's they are, the oldest first."""
    found = yield _BARE(limit=limit)
    return [
        Bare(row, tenant, version, user, " ".join(filter(None, told)))
        for row, tenant, version, user, *told in found
    ]


def embed(found: Sequence[Embedded], model: str) -> Work[None]:
    """Keep vectors that this model has made; what was told differently meanwhile waits for another.

    In order, lest two processes wait for each other.
    """
    ordered = sorted(found, key=lambda each: each.of.number)
    yield _EMBED(
        model=model,
        found=rows_of(
            {
                "number": each.of.number,
                "tenant": each.of.tenant,
                "version": each.of.version,
                "vector": each.vector,
            }
            for each in ordered
        ),
    )


def hold(looked_at: Sequence[Bare]) -> Work[set[int]]:
    """Have nobody forget these memories before the transaction ends; return which are there yet."""
    numbers = rows_of({"number": each.number} for each in looked_at)
    return {row for (row,) in (yield _HOLD(looked_at=numbers))}


def forget_others(model: str) -> Work[int]:
    """Let go of vectors that another model has made, so many at a time; return how many."""
    return len((yield _FORGET_OTHERS(model=model)))


def nearest(
    tenant: str, whose: Whose, vector: str, model: str, limit: int
) -> Work[list[MemoryRow]]:
    """Return the memories whose vectors lie nearest, as the database compares them.

    Those of another length are passed over: the database would refuse to compare them.
    """
    query = _among(select(*COLUMNS), tenant, whose, model).where(_is_as_long)
    apart = distance(_M.embedding, text("vector"))
    nearest_first = Statement(query.order_by(apart, _M.number).limit(limit))
    found = yield nearest_first(vector=vector, commas=vector.count(","))
    return [MemoryRow(*row) for row in found]


def latest(tenant: str, whose: Whose, model: str, limit: int) -> Work[list[tuple[int, str]]]:
    """Return the vectors of what was mentioned last, each with its memory's number."""
    query = _among(select(_M.number, _M.embedding), tenant, whose, model)
    found = yield Statement(query.order_by(_M.seen_ms.desc(), _M.number).limit(limit))()
    return [(row, vector) for row, vector in found]


def these(tenant: str, numbers: Sequence[int]) -> Work[list[MemoryRow]]:
    """Return the memories of these numbers, in their order."""
    found = yield Statement(
        select(*COLUMNS).where(_M.tenant == tenant, _M.number.in_([*numbers]))
    )()
    by_number = {row[0]: MemoryRow(*row) for row in found}
    return [by_number[each] for each in numbers if each in by_number]


def _among(query: Query, tenant: str, whose: Whose, model: str) -> Query:
    has_vector = _M.embedding.is_not(None) & (_M.embedding != NO_VECTOR)
    query = query.where(_M.tenant == tenant, has_vector, _M.embedded_by == model)
    if isinstance(whose, MemoryFilter):
        return where_equal(query, whose.equal)
    return query.where(or_(false(), *map(_is, whose)))  # Of nobody's there are none.


def _is(owner: Owner) -> ColumnElement[Any]:
    return and_(_M.scope == owner.scope, _M.owner == owner.id)
