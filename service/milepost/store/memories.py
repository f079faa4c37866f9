"""Memories: what was learned of conversations, each thing once for each owner."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import and_, case, exists, func, literal, null, or_, select, update
from sqlalchemy import delete as delete_from
from sqlalchemy.dialects import postgresql

from milepost.core.errors import NotFoundError
from milepost.core.memories import Finding, MemoryKind, MemoryOrigin, MemoryScope, Owner
from milepost.store import erasures, schema
from milepost.store.dialect import (
    among,
    number,
    owned_by,
    rows,
    rows_of,
    rows_of_ids,
    text,
    tidied_words,
    worded,
)
from milepost.store.listing import Query, paged, where_equal
from milepost.store.records import NewMemory, Page, Source
from milepost.store.versions import moved
from milepost.store.work import Call, Statement, Work

__all__ = [
    "COLUMNS", "DELETE_MAX", "MemoryFilter", "MemoryRow", "NewMemory", "Source", "change", "delete",
    "delete_of_sessions", "delete_of_user", "find", "keep", "keeping", "keys", "known", "matching",
    "pruning", "recent", "search", "unlearning", "worded_like",
]  # fmt: skip

DELETE_MAX = 500

_M = schema.memories.c


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory as it is kept. `attributes` is encoded JSON.

    `updated_ms` is when it was last changed, `seen_ms` when it was last mentioned.
    """

    number: int
    id: str
    tenant: str
    scope: MemoryScope
    owner: str
    kind: MemoryKind
    key: str
    origin: MemoryOrigin
    subject: str
    predicate: str
    object: str
    content: str
    attributes: str
    user: str | None
    run_id: str | None
    session_id: str | None
    place: str | None
    mentions: int
    version: int
    created_ms: int
    updated_ms: int
    seen_ms: int

    @property
    def finding(self) -> Finding:
        """What it says."""
        return Finding(
            self.kind,
            self.content,
            self.subject,
            self.predicate,
            self.object,
            orjson.loads(self.attributes),
        )


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """Which memories a search is after; None means any."""

    scope: str | None = None
    owner: str | None = None
    kind: str | None = None
    user: str | None = None
    run_id: str | None = None
    session_id: str | None = None

    @property
    def equal(self) -> dict[Any, str | int | None]:
        """What the columns must be."""
        return {
            _M.scope: self.scope, _M.owner: self.owner, _M.kind: self.kind, _M.user_id: self.user,
            _M.run_id: self.run_id, _M.session_id: self.session_id,
        }  # fmt: skip


COLUMNS = (
    _M.number, _M.id, _M.tenant, _M.scope, _M.owner, _M.kind, _M.key, _M.origin, _M.subject,
    _M.predicate, _M.object, _M.content, _M.attributes, _M.user_id, _M.run_id, _M.session_id,
    _M.place, _M.mentions, _M.version, _M.created_ms, _M.updated_ms, _M.seen_ms,
)  # fmt: skip
_SAID = ("subject", "object", "content", "predicate", "words", "attributes")
_SOURCE = ("origin", "user_id", "run_id", "session_id", "place")
_TEXTS = ("id", "tenant", "scope", "owner", "kind", "key", *_SAID, *_SOURCE)
_kept = rows("kept", *_TEXTS, numbers=("now_ms",))
_adding = postgresql.insert(schema.memories).from_select(
    [*_TEXTS, "created_ms", "updated_ms", "seen_ms"],
    # Without a WHERE SQLite takes what follows for a join's.
    select(
        *(_kept.c[name] for name in _TEXTS), _kept.c.now_ms, _kept.c.now_ms, _kept.c.now_ms
    ).where(_kept.c.id != ""),
)
_new = _adding.excluded
# A person's word stands, whatever is heard later; and so does what was said at length when it is
# only named again. What is said anew goes with who has said it.
_says_more = and_(
    or_(_M.origin != "client", _new.origin == "client"),
    or_(_new.content != "", _M.content == ""),
    or_(
        *(_new[name] != _M[name] for name in _SAID),
        func.coalesce(_new.user_id, "") != func.coalesce(_M.user_id, ""),
    ),
)
_KEEP = Statement(
    _adding.on_conflict_do_update(
        index_elements=[_M.tenant, _M.scope, _M.owner, _M.kind, _M.key],
        set_={
            # A run that says it twice, or again after a crash, has mentioned it once.
            "mentions": case((_M.run_id == _new.run_id, _M.mentions), else_=_M.mentions + 1),
            "seen_ms": case((_new.seen_ms > _M.seen_ms, _new.seen_ms), else_=_M.seen_ms),
            **{
                name: case((_says_more, _new[name]), else_=_M[name])
                for name in (*_SAID, *_SOURCE, "updated_ms")
            },
            "version": case((_says_more, _M.version + 1), else_=_M.version),
            "embedding": case((_says_more, null()), else_=_M.embedding),
        },
    ).returning(*COLUMNS)
)
_own = _M.tenant == text("tenant")
_one = (_M.id == text("memory_id")) & _own
_FIND = Statement(select(*COLUMNS).where(_one))
_KNOWN = Statement(
    select(*COLUMNS).where(
        _own,
        _M.scope == text("scope"),
        _M.owner == text("owner"),
        _M.kind == text("kind"),
        _M.key == text("key"),
    )
)
_expected = number("expected").is_(None) | (_M.version == number("expected"))
_CHANGE = Statement(
    update(schema.memories)
    .where(_one, _expected)
    .values(
        **{name: text(name) for name in _SAID},
        origin=text("origin"),
        version=_M.version + 1,
        updated_ms=number("now_ms"),
        embedding=null(),
    )
    .returning(*COLUMNS)
)
_DELETE = Statement(delete_from(schema.memories).where(_one, _expected).returning(_M.id))
_old = schema.memories.alias("old")
_PRUNE = Statement(
    delete_from(schema.memories)
    .where(
        _M.number.in_(
            select(_old.c.number)
            .where(
                _old.c.tenant == text("tenant"),
                _old.c.scope == text("scope"),
                _old.c.owner == text("owner"),
                _old.c.kind == text("kind"),
                _old.c.origin != "client",
            )
            .order_by(_old.c.seen_ms.desc(), _old.c.number.desc())
            .limit(DELETE_MAX)
            .offset(number("most"))
            .with_for_update(skip_locked=True)  # Rivals prune too.
        )
    )
    .returning(_M.id)
)
_KEYS = Statement(
    select(_M.kind, _M.key)
    .where(_own, _M.scope == text("scope"), _M.owner == text("owner"), _M.origin != "client")
    .limit(number("limit"))
)
_owners = rows("owners", "scope", "owner")
_RECENT = Statement(
    select(*COLUMNS)
    .where(
        _own,
        _M.scope == text("scope"),
        _M.owner == text("owner"),
        _M.kind == text("kind"),
        _M.seen_ms >= number("after_ms"),
    )
    .order_by(_M.seen_ms.desc(), _M.number.desc())
    .limit(number("limit"))
)
_found = worded()
_of_these = exists().where(_owners.c.scope == _M.scope, _owners.c.owner == _M.owner)
_MATCHING = Statement(
    select(*COLUMNS)
    .select_from(schema.memories.join(_found, _found.c.number == _M.number))
    .where(_own, _of_these, (text("kind") == "") | (_M.kind == text("kind")))
    .order_by(_found.c.score.desc(), _M.seen_ms.desc(), _M.number.desc())
    .limit(number("limit"))
)
_TIDY = Statement(tidied_words())
_closed = rows("closed", "id")
_DELETE_OF_SESSIONS = Statement(
    delete_from(schema.memories)
    .where(_own, _M.scope == "session", _M.owner.in_(select(_closed.c.id)))
    .returning(_M.id)
)
_USER = Statement(
    select(_M.number)
    .where(_own, _M.user_id == text("user_id"))
    .order_by(_M.id)
    .limit(DELETE_MAX)
    .with_for_update()
)
_taught_by = rows("taught_by", "id")
_UNLEARN = Statement(
    delete_from(schema.memories).where(
        _own,
        _M.run_id.is_not(None),
        among(_M.run_id, select(_taught_by.c.id).scalar_subquery()),
        _M.mentions == literal(1, literal_execute=True),
        _M.origin != "client",
    )
)
_gone = rows("gone", numbers=("number",))
_DELETE_THESE = Statement(
    delete_from(schema.memories).where(_own, _M.number.in_(select(_gone.c.number)))
)


def keep(memory: NewMemory) -> Work[MemoryRow]:
    """Keep something; return how it stands, having been said once more if it was known."""
    yield from erasures.require_none(memory.tenant, memory.source.user)
    found = yield keeping([memory])
    return MemoryRow(*found[0])


def keeping(memories: Sequence[NewMemory]) -> Call:
    """Return the statement that keeps them all. No two may have owner, kind and key in common.

    In order, lest two that learn the same wait for each other.
    """
    ordered = sorted(memories, key=_place)
    return _KEEP(kept=rows_of(map(_row, ordered)))


def pruning(tenant: str, owner: Owner, kind: MemoryKind, most: int) -> Call:
    """Return the statement that forgets what was not mentioned for longest, beyond so many.

    What a client has written stays, and does not count.
    """
    return _PRUNE(tenant=tenant, scope=owner.scope, owner=owner.id, kind=kind, most=most)


def unlearning(tenant: str, run_ids: Sequence[str]) -> Call:
    """Return the statement that forgets what these runs alone have said."""
    return _UNLEARN(tenant=tenant, taught_by=rows_of_ids(run_ids))


def keys(tenant: str, owner: Owner, limit: int) -> Work[list[tuple[MemoryKind, str]]]:
    """Return kinds and keys of what the owner has, but for what a client has written."""
    found = yield _KEYS(tenant=tenant, scope=owner.scope, owner=owner.id, limit=limit)
    return [(kind, key) for kind, key in found]


def find(tenant: str, memory_id: str) -> Work[MemoryRow]:
    """Return the memory; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, memory_id=memory_id)
    if not found:
        raise NotFoundError(f"there is no memory {memory_id}", code="memory_not_found")
    return MemoryRow(*found[0])


def known(memory: NewMemory) -> Work[MemoryRow]:
    """Return what is known by the same key; raise `NotFoundError` if nothing is, any more."""
    owner, finding = memory.owner, memory.finding
    found = yield _KNOWN(
        tenant=memory.tenant,
        scope=owner.scope,
        owner=owner.id,
        kind=finding.kind,
        key=finding.key,
    )
    if not found:
        raise NotFoundError("what was kept then is forgotten by now", code="memory_not_found")
    return MemoryRow(*found[0])


def search(tenant: str, wanted: MemoryFilter, page: Page) -> Work[list[MemoryRow]]:
    """Return the tenant's memories that match, one more than the page holds if there are more."""
    query: Query = where_equal(select(*COLUMNS).where(_M.tenant == tenant), wanted.equal)
    found = yield Statement(paged(query, _M.id, page))()
    return [MemoryRow(*row) for row in found]


def worded_like(
    tenant: str, wanted: MemoryFilter, words: Sequence[str], limit: int
) -> Work[list[MemoryRow]]:
    """Return the memories that match and have one of these words, the best first."""
    query: Query = (
        where_equal(select(*COLUMNS), wanted.equal)
        .select_from(schema.memories.join(_found, _found.c.number == _M.number))
        .where(_own)
        .order_by(_found.c.score.desc(), _M.seen_ms.desc(), _M.number.desc())
        .limit(limit)
    )
    scope, owner = wanted.scope, wanted.owner
    owners = [] if scope is None or owner is None else [(scope, owner)]
    found = yield Statement(query)(
        tenant=tenant, words=" ".join(words), owned=owned_by(tenant, owners)
    )
    return [MemoryRow(*row) for row in found]


def matching(
    tenant: str,
    owners: Sequence[Owner],
    words: Sequence[str],
    limit: int,
    *,
    kind: MemoryKind | None = None,
) -> Work[list[MemoryRow]]:
    """Return what these owners have that has one of the words, the best first."""
    told = rows_of({"scope": owner.scope, "owner": owner.id} for owner in owners)
    found = yield _MATCHING(
        tenant=tenant,
        owners=told,
        owned=owned_by(tenant, ((owner.scope, owner.id) for owner in owners)),
        words=" ".join(words),
        kind=kind or "",
        limit=limit,
    )
    return [MemoryRow(*row) for row in found]


def recent(
    tenant: str, owners: Sequence[Owner], most: Mapping[MemoryKind, tuple[int, int]]
) -> Work[list[MemoryRow]]:
    """Return what these owners' runs mentioned last: of each kind so many, not before a time."""
    calls = tuple(
        _RECENT(
            tenant=tenant, scope=owner.scope, owner=owner.id, kind=kind, limit=limit, after_ms=after
        )
        for owner in owners
        for kind, (limit, after) in most.items()
    )
    return [MemoryRow(*row) for found in (yield calls) for row in found]


def change(
    row: MemoryRow, finding: Finding, *, now_ms: int, expected_version: int | None = None
) -> Work[MemoryRow]:
    """Correct what the memory says: from now on it is a client's word, which no run changes.

    It keeps the key of what it said first, so that hearing that again makes no new one. Raises
    `ConflictError` with the code precondition_failed if it has another version by now.
    """
    changed = yield _CHANGE(
        tenant=row.tenant,
        memory_id=row.id,
        origin="client",
        now_ms=now_ms,
        expected=expected_version,
        **_said(finding),
    )
    if not changed:
        raise moved("memory", (yield from find(row.tenant, row.id)), expected_version)
    return MemoryRow(*changed[0])


def delete(tenant: str, memory_id: str, *, expected_version: int | None = None) -> Work[None]:
    """Forget it; a later conversation may bring it up again."""
    if not (yield _DELETE(tenant=tenant, memory_id=memory_id, expected=expected_version)):
        raise moved("memory", (yield from find(tenant, memory_id)), expected_version)
    yield _TIDY()


def delete_of_user(tenant: str, user: str) -> Work[int]:
    """Forget what is known about a user, so much at a time; return how much that was.

    Who gets as many as `DELETE_MAX` goes on: there is more.
    """
    found = yield _USER(tenant=tenant, user_id=user)
    gone = rows_of({"number": each} for (each,) in found)
    # Also where nothing is found: what made room lately may stand in the index of words.
    yield _DELETE_THESE(tenant=tenant, gone=gone), _TIDY()
    return len(found)


def delete_of_sessions(tenant: str, session_ids: Sequence[str]) -> Work[int]:
    """Forget what belongs to these sessions alone; return how much that was."""
    closed = rows_of_ids(session_ids)
    gone = yield _DELETE_OF_SESSIONS(tenant=tenant, closed=closed)
    if gone:  # Tidying takes as long as there are memories: most sessions have none.
        yield _TIDY()
    return len(gone)


def _place(memory: NewMemory) -> tuple[str, ...]:
    owner, finding = memory.owner, memory.finding
    return (memory.tenant, owner.scope, owner.id, finding.kind, finding.key)


def _row(memory: NewMemory) -> dict[str, Any]:
    owner, source = memory.owner, memory.source
    return {
        "id": memory.id,
        "tenant": memory.tenant,
        "scope": owner.scope,
        "owner": owner.id,
        "kind": memory.finding.kind,
        "key": memory.finding.key,
        "origin": source.origin,
        "user_id": owner.id if owner.scope == "user" else source.user,
        "run_id": source.run_id,
        "session_id": source.session_id,
        "place": source.place,
        "now_ms": memory.now_ms,
        **_said(memory.finding),
    }


def _said(finding: Finding) -> dict[str, str]:
    return {
        "subject": finding.subject,
        "predicate": finding.predicate,
        "object": finding.object,
        "content": finding.content,
        "words": finding.words,
        "attributes": orjson.dumps(dict(finding.attributes)).decode(),
    }
