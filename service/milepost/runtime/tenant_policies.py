"""The rules of tenants and sessions, and what people have granted for a session."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import orjson

from milepost.core.policy import NOTHING_STANDS, Grant, Policy, Standing
from milepost.runtime.clock import Clock
from milepost.runtime.policy_spec import read_policy
from milepost.store import policies
from milepost.store.grants import GrantRow
from milepost.store.policies import StandingRows
from milepost.store.store import Store

FRESH_MS = 1_000
KNOWN_MAX = 10_000

K = TypeVar("K")
V = TypeVar("V")


class TenantPolicies:
    """What stands besides agents' own policies. A change is seen everywhere within `FRESH_MS`.

    Here it is seen at once. A tenant without any rules costs one look in that time.
    """

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tenants: dict[str, tuple[int, bool]] = {}
        self._sessions: dict[tuple[str, str], tuple[int, StandingRows, Standing]] = {}

    async def of(self, tenant: str, session_id: str, /, *, fresh: bool = False) -> Standing:
        """Return the rules of a tenant and of a session; `fresh` ones are as they are just now."""
        if not fresh and not await self._has_any(tenant):
            return NOTHING_STANDS
        known = self._sessions.get((tenant, session_id))
        now = self._clock()
        if known is not None and not fresh and _is_fresh(known[0], now):
            return known[2]
        rows = await self._store.read(policies.standing(tenant, session_id))
        # The same rules are the same object, so that whoever has them knows that nothing changed.
        standing = known[2] if known is not None and known[1] == rows else _standing(rows)
        _keep(self._sessions, (tenant, session_id), (now, rows, standing))
        return standing

    def forget(self, tenant: str) -> None:
        """Look anew at what holds for the tenant and its sessions."""
        self._tenants.pop(tenant, None)
        for key in [key for key in self._sessions if key[0] == tenant]:
            del self._sessions[key]

    async def _has_any(self, tenant: str) -> bool:
        now = self._clock()
        seen = self._tenants.get(tenant)
        if seen is not None and _is_fresh(seen[0], now):
            return seen[1]
        found = await self._store.read(policies.exist(tenant))
        _keep(self._tenants, tenant, (now, found))
        return found


def _is_fresh(since: int, now: int) -> bool:
    """Clocks are set back at times: what was read in the future is old."""
    return 0 <= now - since < FRESH_MS


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Keep what was read last longest."""
    known.pop(key, None)
    known[key] = value
    if len(known) > KNOWN_MAX:
        del known[next(iter(known))]


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
    return Grant(row.id, row.tool, row.digest, row.granted_by, row.expires_ms)
