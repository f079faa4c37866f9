"""Agents and their versions."""

from dataclasses import dataclass

from sqlalchemy import insert, select, update

from milepost.core.errors import NotFoundError
from milepost.store import schema
from milepost.store.dialect import number, text
from milepost.store.work import Statement, Work

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
)
_ADD = Statement(
    insert(schema.agents).values(
        id=text("agent_id"),
        tenant=text("tenant"),
        name=text("name"),
        version=1,
        created_ms=number("now_ms"),
    )
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
_ADVANCE = Statement(
    update(schema.agents)
    .where(_A.id == text("agent_id"), _A.tenant == text("tenant"), _A.version == number("was"))
    .values(version=_A.version + 1)
    .returning(_A.version)
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


def definition(tenant: str, agent_id: str, version: int) -> Work[str]:
    """Return a version's definition, also of an agent that has been deleted since."""
    found = yield _DEFINITION(tenant=tenant, agent_id=agent_id, version=version)
    if not found:
        raise NotFoundError(f"agent {agent_id} has no version {version}", code="agent_not_found")
    return str(found[0][0])


def apply(tenant: str, name: str, definition: str, *, agent_id: str, now_ms: int) -> Work[AgentRow]:
    """Make the agent be as defined: create it, or give it a new version if it differs."""
    found = yield _FIND(tenant=tenant, named=name)
    if not found:
        yield _ADD(agent_id=agent_id, tenant=tenant, name=name, now_ms=now_ms)
        yield _ADD_VERSION(
            agent_id=agent_id, version=1, tenant=tenant, definition=definition, now_ms=now_ms
        )
        return AgentRow(agent_id, tenant, name, 1, definition, now_ms, now_ms)
    row = AgentRow(*found[0])
    if row.definition == definition:
        return row
    ((version,),) = yield _ADVANCE(agent_id=row.id, tenant=tenant, was=row.version)
    yield _ADD_VERSION(
        agent_id=row.id, version=version, tenant=tenant, definition=definition, now_ms=now_ms
    )
    return AgentRow(row.id, tenant, name, version, definition, row.created_ms, now_ms)
