"""Who calls, for which tenant, and with which rights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import orjson

from milepost.core.approvers import OPEN_ID
from milepost.core.errors import ForbiddenError, UnauthorizedError
from milepost.runtime.clock import Clock
from milepost.runtime.credentials import SCOPES, Scope, key_hash
from milepost.runtime.recent import Recent
from milepost.store import keys
from milepost.store.store import Store
from milepost.telemetry.logs import logger

DEFAULT_TENANT = "default"
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
LOOK_S = 10
REMEMBERED_S = 10
REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller that is known. `subject` is the person or system that the key stands for.

    `id` is the key's, and says who did something; `name` is what people call it, which is not
    unique.
    """

    tenant: str
    id: str
    name: str
    scopes: frozenset[str]
    subject: str | None = None

    def require(self, scope: Scope) -> None:
        """Raise `ForbiddenError` unless the caller has the right; `admin` has every one."""
        if scope not in self.scopes and "admin" not in self.scopes:
            raise ForbiddenError(
                f"this needs the scope {scope}, and the key has"
                f" {', '.join(sorted(self.scopes)) or 'none'}",
                code="missing_scope",
            )

    @property
    def may_act_for_others(self) -> bool:
        """Whether the caller may act for users whom the key does not stand for."""
        return keys.may_act_for_others(self.scopes)

    def acting_as(self, user: str | None) -> str | None:
        """Return the user for whom this caller acts; raise if it may not act for `user`."""
        if user is None or user == self.subject:
            return self.subject
        self.require("users:act_as")
        return user


class Access(Protocol):
    """A way to know callers."""

    async def admit(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Return who calls. Raises `UnauthorizedError` or `ForbiddenError`."""

    async def require_ours(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `ForbiddenError` if not even a page that holds nothing may be shown here."""

    def forget(self) -> None:
        """Ask the store about every caller anew, since a key has been revoked here."""


class OpenAccess:
    """Nobody is asked: for loopback only, where every caller is the machine's own user.

    A page of any web site can make a browser send requests to loopback. So `Host` must be a name
    of this machine (else DNS rebinding would get in), and an `Origin` must be ours.
    """

    def __init__(self) -> None:
        self._principal = Principal(DEFAULT_TENANT, OPEN_ID, "local", frozenset(SCOPES))

    async def admit(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Return the local user, unless a foreign page speaks."""
        host = headers.get(b"host", b"").decode("latin-1")
        if _name_of(host) not in LOOPBACK_HOSTS:
            raise ForbiddenError(
                f"without keys only localhost is served, not {host!r}; create a key with"
                " `milepost keys create`",
                code="misdirected_host",
            )
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host:
            raise ForbiddenError(
                f"pages of {origin!r} may not call this server", code="foreign_origin"
            )
        if headers.get(b"sec-fetch-site") == b"cross-site":
            raise ForbiddenError("pages of other sites may not call this", code="foreign_origin")
        return self._principal

    async def require_ours(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise where the API would, too: under another name a page could call it as its own."""
        await self.admit(headers)

    def forget(self) -> None:
        """Nothing is remembered where nobody is asked."""


def _name_of(host: str) -> str:
    """Return the host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


class KeyAccess:
    """API keys, `Authorization: Bearer mp_...`; only their hashes are stored."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._remembered: Recent[str, Principal] = Recent(
            self._read, clock=clock, fresh_ms=REMEMBERED_S * 1000, known_max=REMEMBERED_MAX
        )

    async def admit(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Return whose key this is; a revoked key is refused within ten seconds."""
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise UnauthorizedError(
                "no API key was sent; send Authorization: Bearer mp_...", code="missing_key"
            )
        return await self._remembered.of(key_hash(key.strip()))

    async def require_ours(self, headers: Mapping[bytes, bytes]) -> None:
        """Show pages to anybody: without a key they can do nothing."""

    def forget(self) -> None:
        """Ask the store about every key anew."""
        self._remembered.forget_where(lambda _: True)

    async def _read(self, hashed: str) -> Principal:
        row = await self._store.read(keys.by_hash(hashed))
        if row is None:
            raise UnauthorizedError(
                "this API key is not known, or no longer valid", code="invalid_key"
            )
        return Principal(
            row.tenant, row.id, row.name, frozenset(orjson.loads(row.scopes)), row.subject
        )


class OpenUntilKeyed:
    """Asks nobody as long as there is no key; from the first one on it asks for keys, for good.

    Whether there is one is looked up by the requests, one of them every `LOOK_S` seconds at most.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._open = OpenAccess()
        self._keyed = KeyAccess(store, clock)
        self._store = store
        self._clock = clock
        self._looked_ms = clock()
        self._is_open = True
        self._ignored_a_key = False
        self._log = logger("api")

    async def admit(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Return the local user, or whose key this is, once there are any."""
        if not await self._still_open():
            return await self._keyed.admit(headers)
        if b"authorization" in headers and not self._ignored_a_key:
            self._ignored_a_key = True
            self._log.warning(
                "keys are not asked for, since there is none: the one sent is ignored"
            )
        return await self._open.admit(headers)

    async def require_ours(self, headers: Mapping[bytes, bytes]) -> None:
        """Show pages under this machine's names alone, until there are keys."""
        if await self._still_open():
            await self._open.require_ours(headers)

    def forget(self) -> None:
        """Ask the store about every key anew."""
        self._keyed.forget()

    async def _still_open(self) -> bool:
        """Say whether nobody is asked for a key."""
        if self._is_open:
            await self._look()
        return self._is_open

    async def _look(self) -> None:
        now = self._clock()
        # Clocks are set back at times: a look in the future says nothing.
        if 0 <= now - self._looked_ms < LOOK_S * 1000:
            return
        before, self._looked_ms = self._looked_ms, now
        try:
            keyed = await self._store.read(keys.exist())
        except BaseException:
            self._looked_ms = before  # Whoever asks next looks.
            raise
        if keyed and self._is_open:
            self._is_open = False
            self._log.warning("there is a key now: from here on callers need one")
