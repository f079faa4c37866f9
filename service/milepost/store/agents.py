"""Agents and their versions. A version never changes: a change makes the next one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import case, insert, select, update

from milepost.core.errors import ConflictError, InvalidError, NotFoundError
from milepost.store import schema
from milepost.store.dialect import insert_new, json_text, number, text
from milepost.store.listing import Query, paged, where_between, where_labelled
from milepost.store.records import Page
from milepost.store.versions import moved
from milepost.store.work import Call, Statement, Work

_A = schema.agents.c
_V = schema.agent_versions.c


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent at its newest version; `definition` is encoded JSON."""

    id: str
    tenant: str
    name: str
    version: int
    definition: str
    created_ms: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of an agent; `definition` is encoded JSON."""

    version: int
    definition: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class AgentFilter:
    """Which agents a search is after; None means any."""

    created_after_ms: int | None = None
    created_before_ms: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


_newest = select(
    _A.id,
    _A.tenant,
    _A.name,
    _A.version,
    _V.definition,
    _A.created_ms,
    _V.created_ms.label("changed_ms"),
).select_from(
    schema.agents.join(schema.agent_versions, (_V.agent_id == _A.id) & (_V.version == _A.version))
)
_FIND = Statement(
    _newest.where(
        _A.tenant == text("tenant"),
        (_A.name == text("named")) | (_A.id == text("named")),
        _A.deleted_ms.is_(None),
    )
    # An agent may be named like another one's id: the id goes before.
    .order_by(case((_A.id == text("named"), 0), else_=1))
    .limit(1)
)
# A statement of its own: a join that waited for the lock would see the version from before.
_LOCK = Statement(
    select(_A.id)
    .where(_A.tenant == text("tenant"), _A.name == text("named"), _A.deleted_ms.is_(None))
    .with_for_update()
)
_ADD = Statement(
    insert_new(schema.agents)
    .values(
        id=text("agent_id"),
        tenant=text("tenant"),
        name=text("name"),
        version=1,
        created_ms=number("now_ms"),
    )
    .returning(_A.id)
)
_ADD_VERSION = Statement(
    insert(schema.agent_versions).values(
        agent_id=text("agent_id"),
        version=number("version"),
        tenant=text("tenant"),
        definition=text("definition"),
        created_ms=number("now_ms"),
    )
)
_expected = number("expected").is_(None) | (_A.version == number("expected"))
_ADVANCE = Statement(
    update(schema.agents)
    .where(
        _A.id == text("agent_id"), _A.tenant == text("tenant"), _A.deleted_ms.is_(None), _expected
    )
    .values(version=_A.version + 1)
    .returning(_A.version)
)
_DELETE = Statement(
    update(schema.agents)
    .where(
        _A.id == text("agent_id"), _A.tenant == text("tenant"), _A.deleted_ms.is_(None), _expected
    )
    .values(deleted_ms=number("now_ms"))
    .returning(_A.id)
)
_DEFINITION = Statement(
    select(_V.definition).where(
        _V.agent_id == text("agent_id"),
        _V.version == number("version"),
        _V.tenant == text("tenant"),
    )
)


def find(tenant: str, named: str) -> Work[AgentRow]:
    """Return the agent with this name or id; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, named=named)
    if not found:
        raise NotFoundError(f"there is no agent {named!r}", code="agent_not_found")
    return AgentRow(*found[0])


def search(tenant: str, wanted: AgentFilter, page: Page) -> Work[list[AgentRow]]:
    """Return the tenant's agents that match, one more than the page holds if there are more."""
    query: Query = _newest.where(_A.tenant == tenant, _A.deleted_ms.is_(None))
    query = where_between(query, _A.created_ms, wanted.created_after_ms, wanted.created_before_ms)
    query = where_labelled(query, json_text(_V.definition, "metadata"), wanted.metadata)
    found = yield Statement(paged(query, _A.id, page))()
    return [AgentRow(*row) for row in found]


def create(
    tenant: str, name: str, definition: str, *, agent_id: str, now_ms: int
) -> Work[AgentRow]:
    """Make an agent's first version; raise `ConflictError` if another one has the name."""
    if (yield from _add(tenant, name, definition, agent_id, now_ms)):
        return AgentRow(agent_id, tenant, name, 1, definition, now_ms, now_ms)
    raise ConflictError(
        f"there is an agent {name!r} already; change that one, or choose another name",
        code="agent_exists",
    )


def _add(tenant: str, name: str, definition: str, agent_id: str, now_ms: int) -> Work[bool]:
    added = yield _ADD(agent_id=agent_id, tenant=tenant, name=name, now_ms=now_ms)
    if added:
        yield _version(tenant, agent_id, 1, definition, now_ms)
    return bool(added)


def _version(tenant: str, agent_id: str, version: int, definition: str, now_ms: int) -> Call:
    return _ADD_VERSION(
        agent_id=agent_id, version=version, tenant=tenant, definition=definition, now_ms=now_ms
    )


def apply(tenant: str, name: str, definition: str, *, agent_id: str, now_ms: int) -> Work[AgentRow]:
    """Make the agent be as defined: create it, or give it a new version if it differs."""
    if (yield from _add(tenant, name, definition, agent_id, now_ms)):
        return AgentRow(agent_id, tenant, name, 1, definition, now_ms, now_ms)
    yield _LOCK(tenant=tenant, named=name)
    row = yield from find(tenant, name)
    if row.definition == definition:
        return row
    return (yield from revise(tenant, row.id, definition, now_ms=now_ms))


def revise(
    tenant: str, agent_id: str, definition: str, *, now_ms: int, expected_version: int | None = None
) -> Work[AgentRow]:
    """Make the agent's next version.

    Raises `ConflictError` with the code precondition_failed if a version was expected and the
    agent has another one by now.
    """
    advanced = yield _ADVANCE(agent_id=agent_id, tenant=tenant, expected=expected_version)
    if not advanced:
        raise moved("agent", (yield from find(tenant, agent_id)), expected_version)
    yield _version(tenant, agent_id, advanced[0][0], definition, now_ms)
    return (yield from find(tenant, agent_id))


def delete(
    tenant: str, agent_id: str, *, now_ms: int, expected_version: int | None = None
) -> Work[None]:
    """Take an agent away from new runs; those made already keep their version."""
    deleted = yield _DELETE(
        agent_id=agent_id, tenant=tenant, expected=expected_version, now_ms=now_ms
    )
    if not deleted:
        raise moved("agent", (yield from find(tenant, agent_id)), expected_version)


def definition(tenant: str, agent_id: str, version: int) -> Work[str]:
    """Return a version's definition, also of an agent that has been deleted since."""
    found = yield _DEFINITION(tenant=tenant, agent_id=agent_id, version=version)
    if not found:
        raise NotFoundError(f"agent {agent_id} has no version {version}", code="agent_not_found")
    return str(found[0][0])


def versions(tenant: str, agent_id: str, page: Page) -> Work[list[VersionRow]]:
    """Return the agent's versions; the page's cursor is a version's number."""
    query: Query = select(_V.version, _V.definition, _V.created_ms).where(
        _V.agent_id == agent_id, _V.tenant == tenant
    )
    if page.after is not None and not page.after.isdecimal():
        raise InvalidError(f"{page.after!r} is no cursor of this list", code="bad_cursor")
    found = yield Statement(paged(query, _V.version, page))()
    return [VersionRow(*row) for row in found]
