"""The rules of tenants and of sessions: one policy each, of which each change is a version."""

from dataclasses import dataclass

import orjson
from sqlalchemy import select, update

from milepost.core.errors import ConflictError
from milepost.store import grants, schema
from milepost.store.dialect import insert_new, now_ms, number, text, word
from milepost.store.grants import GrantRow
from milepost.store.work import Statement, Work

TENANT = "tenant"
"""The scope of a tenant's own policy; any other scope is a session's id."""

NOTHING = "null"
"""What stands in the place of a policy that was removed: a version never stands for two."""

_STRICT = ("deny_when", "deny", "ask")

_P = schema.policies.c


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy, as JSON. Version 0 is that of a scope which has none."""

    tenant: str
    scope: str
    policy: str = NOTHING
    version: int = 0
    updated_ms: int | None = None

    @property
    def id(self) -> str:
        """What it is called."""
        return f"the policy of {self.scope}"


@dataclass(frozen=True, slots=True)
class StandingRows:
    """What holds for a session besides its agents' own policies; JSON is still encoded.

    `above` are the policies of sessions whose runs have started those of this one.
    """

    tenant: str | None
    session: str | None
    grants: tuple[GrantRow, ...]
    above: tuple[str, ...] = ()


_COLUMNS = (_P.tenant, _P.scope, _P.policy, _P.version, _P.updated_ms)
_mine = (_P.tenant == text("tenant"), _P.scope == text("scope"))
_is_there = _P.policy != word(NOTHING)
_GET = Statement(select(*_COLUMNS).where(*_mine, _is_there))
_ANY = Statement(select(_P.scope).where(_P.tenant == text("tenant"), _is_there).limit(1))
_children, _parents = schema.runs.alias("children").c, schema.runs.alias("parents").c
_family = select(text("session_id").label("session_id")).cte("family", recursive=True)
_family = _family.union(
    select(_parents.session_id).where(
        _children.session_id == _family.c.session_id,
        _children.tenant == text("tenant"),
        _parents.id == _children.parent_run_id,
        _parents.tenant == text("tenant"),
    )
)
_OF_SESSIONS = Statement(
    select(_P.scope, _P.policy)
    .where(_P.tenant == text("tenant"), _P.scope == _family.c.session_id, _is_there)
    .order_by(_P.scope)
)
_ADD = Statement(
    insert_new(schema.policies)
    .values(
        tenant=text("tenant"),
        scope=text("scope"),
        policy=text("policy"),
        version=1,
        updated_ms=now_ms(),
    )
    .returning(_P.version, _P.updated_ms)
)
_next = {"policy": text("policy"), "version": _P.version + 1, "updated_ms": now_ms()}
_ADD_ANEW = Statement(
    update(schema.policies)
    .where(*_mine, _P.policy == word(NOTHING))
    .values(**_next)
    .returning(_P.version, _P.updated_ms)
)
_is_this = (*_mine, _is_there, _P.version == number("expected"))
_REPLACE = Statement(
    update(schema.policies).where(*_is_this).values(**_next).returning(_P.version, _P.updated_ms)
)
_REMOVE = Statement(
    update(schema.policies)
    .where(*_is_this)
    .values(policy=word(NOTHING), updated_ms=now_ms())
    .returning(_P.version)
)


def get(tenant: str, scope: str) -> Work[PolicyRow]:
    """Return the scope's policy, one of version 0 where it has none."""
    found = yield _GET(tenant=tenant, scope=scope)
    return PolicyRow(*found[0]) if found else PolicyRow(tenant, scope)


def replace(before: PolicyRow, policy: str) -> Work[PolicyRow]:
    """Put another policy in the place of exactly this one; `ConflictError` if it moved since."""
    bound = {"tenant": before.tenant, "scope": before.scope, "policy": policy}
    if before.version:
        changed = yield _REPLACE(**bound, expected=before.version)
    else:
        changed = (yield _ADD_ANEW(**bound)) or (yield _ADD(**bound))
    if not changed:
        raise _moved(before)
    return PolicyRow(before.tenant, before.scope, policy, *changed[0])


def remove(before: PolicyRow) -> Work[None]:
    """Remove exactly this policy; `ConflictError` if it moved since."""
    removed = yield _REMOVE(tenant=before.tenant, scope=before.scope, expected=before.version)
    if not removed:
        raise _moved(before)


def _moved(row: PolicyRow) -> ConflictError:
    return ConflictError(
        f"{row.id} was changed meanwhile; read it again", code="precondition_failed"
    )


def standing(tenant: str, session_id: str) -> Work[StandingRows]:
    """Return what holds for the session just now, by the database's clock."""
    whole, sessions, granted = yield (
        _GET(tenant=tenant, scope=TENANT),
        _OF_SESSIONS(tenant=tenant, session_id=session_id),
        grants.STANDING(tenant=tenant, session_id=session_id),
    )
    said = dict(sessions)
    own = said.pop(session_id, None)
    return StandingRows(
        PolicyRow(*whole[0]).policy if whole else None,
        own,
        tuple(GrantRow(*row) for row in granted),
        tuple(said.values()),
    )


def hand_down(tenant: str, session_id: str, fork: str) -> Work[None]:
    """Have a session's fork begin with what that one forbids and asks about, its own first.

    What is allowed there is not handed down: whoever forks need not be one who may change rules.
    """
    found = yield _OF_SESSIONS(tenant=tenant, session_id=session_id)
    found = sorted(found, key=lambda row: row[0] != session_id)
    stands = [orjson.loads(policy) for _, policy in found]
    handed = {name: [rule for each in stands for rule in each.get(name, ())] for name in _STRICT}
    if said := {name: rules for name, rules in handed.items() if rules}:
        policy = orjson.dumps({"deny": [], "ask": [], "allow": [], **said}).decode()
        yield _ADD(tenant=tenant, scope=fork, policy=policy)


def exist(tenant: str) -> Work[bool]:
    """Say whether the tenant has any rules or grants at all."""
    found, granted = yield _ANY(tenant=tenant), grants.ANY(tenant=tenant)
    return bool(found or granted)
