"""API keys: only hashes are stored."""

from dataclasses import dataclass

from sqlalchemy import select

from milepost.store import schema
from milepost.store.dialect import now_ms, text
from milepost.store.work import Statement, Work

_K = schema.keys.c
_valid = _K.revoked_ms.is_(None) & (_K.expires_ms.is_(None) | (_K.expires_ms > now_ms()))


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key; `scopes` is encoded JSON."""

    id: str
    tenant: str
    name: str
    hint: str
    scopes: str
    subject: str | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


_COLUMNS = (
    _K.id, _K.tenant, _K.name, _K.hint, _K.scopes, _K.subject, _K.created_ms, _K.expires_ms,
    _K.revoked_ms,
)  # fmt: skip
_BY_HASH = Statement(select(*_COLUMNS).where(_K.hash == text("hash"), _valid))
_EXIST = Statement(select(_K.id).where(_valid).limit(1))


def by_hash(hashed: str) -> Work[KeyRow | None]:
    """Return the valid key with this hash, whosever it is."""
    found = yield _BY_HASH(hash=hashed)
    return KeyRow(*found[0]) if found else None


def exist() -> Work[bool]:
    """Say whether there is any valid key at all."""
    return bool((yield _EXIST()))
