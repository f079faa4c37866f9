"""The rules of tenants and sessions, and what people have granted for a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from milepost.core.approvers import Asker
from milepost.core.policy import NOTHING_STANDS, Grant, Policy, Standing
from milepost.runtime.clock import Clock
from milepost.runtime.policy_spec import read_policy, read_terms
from milepost.runtime.recent import Recent
from milepost.store import policies
from milepost.store.grants import GrantRow
from milepost.store.policies import StandingRows
from milepost.store.store import Store

FRESH_MS = 1_000
KNOWN_MAX = 10_000


class _Session(NamedTuple):
    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What the store says of a session, and what it means."""

    rows: StandingRows
    standing: Standing


class TenantPolicies:
    """What stands besides agents' own policies. A change is seen everywhere within `FRESH_MS`.

    Here it is seen at once. A tenant without any rules costs one look in that time.
    """

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._tenants: Recent[str, bool] = Recent(
            lambda tenant: store.read(policies.exist(tenant)),
            clock=clock,
            fresh_ms=FRESH_MS,
            known_max=KNOWN_MAX,
        )
        self._sessions: Recent[_Session, _Known] = Recent(
            self._read, clock=clock, fresh_ms=FRESH_MS, known_max=KNOWN_MAX
        )

    async def of(self, tenant: str, session_id: str, /, *, fresh: bool = False) -> Standing:
        """Return the rules of a tenant and of a session; `fresh` ones are as they are just now."""
        session = _Session(tenant, session_id)
        if fresh:
            standing = (await self._sessions.anew(session)).standing
            if standing is not NOTHING_STANDS and not self._tenants.last(tenant):
                self._tenants.forget(tenant)  # Or the next look would find nothing, for a while.
            return standing
        if not await self._tenants.of(tenant):
            return NOTHING_STANDS
        return (await self._sessions.of(session)).standing

    def forget(self, tenant: str) -> None:
        """Look anew at what holds for the tenant and its sessions."""
        self._tenants.forget(tenant)
        self._sessions.forget_where(lambda session: session.tenant == tenant)

    async def _read(self, session: "_Session") -> "_Known":
        rows = await self._store.read(policies.standing(session.tenant, session.id))
        known = self._sessions.last(session)
        # The same rules are the same object, so that whoever has them knows that nothing changed.
        return known if known is not None and known.rows == rows else _Known(rows, _standing(rows))


def _standing(rows: StandingRows) -> Standing:
    if (rows.tenant, rows.session, rows.grants, rows.above) == (None, None, (), ()):
        return NOTHING_STANDS
    session = _below(_policy(rows.session), [_policy(each) for each in rows.above])
    return Standing(_policy(rows.tenant), session, tuple(map(_grant, rows.grants)))


def _below(own: Policy | None, above: Sequence[Policy | None]) -> Policy | None:
    """Return a session's policy with what those above forbid and ask about.

    Nobody gets around a session's rules by having another agent make the call. What they allow
    they allow themselves.
    """
    for policy in above:
        if policy is None:
            continue
        known = own or Policy()
        own = Policy(
            known.deny + policy.deny,
            known.ask + policy.ask,
            known.allow,
            known.deny_when + policy.deny_when,
        )
    return own


def _policy(said: str | None) -> Policy | None:
    shown: Mapping[str, object] | None = None if said is None else orjson.loads(said)
    return read_policy(shown)


def _grant(row: GrantRow) -> Grant:
    terms = read_terms({} if row.terms is None else orjson.loads(row.terms))
    asker = None if terms.self_approval else Asker(row.made_by, row.requester)
    return Grant(
        row.id, row.tool, row.digest, row.granted_by, row.expires_ms, terms.approvers, asker
    )
