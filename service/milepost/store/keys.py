"""API keys: only their hashes are stored."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, ScalarSelect, func, insert, select, update

from milepost.core.errors import NotFoundError, UnauthorizedError
from milepost.store import erasures, schema
from milepost.store.dialect import now_ms, number, rows, rows_of_ids, text
from milepost.store.listing import Query, paged
from milepost.store.records import Page
from milepost.store.work import Statement, Work

ID_PREFIX = "key_"

_K = schema.keys.c
_valid = _K.revoked_ms.is_(None) & (_K.expires_ms.is_(None) | (_K.expires_ms > now_ms()))


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key; `scopes` is encoded JSON, `hint` what may be shown of the key itself."""

    id: str
    tenant: str
    name: str
    hint: str
    scopes: str
    subject: str | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be known from now on; `hash` is the hex SHA-256 of its text."""

    id: str
    tenant: str
    name: str
    hash: str
    hint: str
    scopes: str
    subject: str | None
    created_ms: int
    expires_ms: int | None


_COLUMNS = (
    _K.id, _K.tenant, _K.name, _K.hint, _K.scopes, _K.subject, _K.created_ms, _K.expires_ms,
    _K.revoked_ms,
)  # fmt: skip
_CREATE = Statement(
    insert(schema.keys)
    .values(
        id=text("key_id"),
        tenant=text("tenant"),
        name=text("name"),
        hash=text("hash"),
        hint=text("hint"),
        scopes=text("scopes"),
        subject=text("subject"),
        created_ms=number("created_ms"),
        expires_ms=number("expires_ms"),
    )
    .returning(*_COLUMNS)
)
_BY_HASH = Statement(select(*_COLUMNS).where(_K.hash == text("hash"), _valid))
_FIND = Statement(select(*_COLUMNS).where(_K.id == text("key_id"), _K.tenant == text("tenant")))
_named = rows("named", "id")
_NAMES = Statement(select(_K.id, _K.name).where(_K.id == _named.c.id, _K.tenant == text("tenant")))
_OF_SUBJECT = Statement(
    select(_K.id, _K.name).where(_K.tenant == text("tenant"), _K.subject == text("subject"))
)
_IS_VALID = Statement(
    select(_K.id).where(_K.id == text("key_id"), _K.tenant == text("tenant"), _valid)
)
_EXIST = Statement(select(_K.id).where(_valid).limit(1))
_REVOKE = Statement(
    update(schema.keys)
    .where(_K.id == text("key_id"), _K.tenant == text("tenant"))
    .values(revoked_ms=func.coalesce(_K.revoked_ms, number("now_ms")))
    .returning(*_COLUMNS)
)


def revoked_ms_of(key_id: ColumnElement[str], tenant: ColumnElement[str]) -> ScalarSelect[int]:
    """Return when the key was revoked, for the database; NULL if it was not, or is none."""
    return select(_K.revoked_ms).where(_K.id == key_id, _K.tenant == tenant).scalar_subquery()


def create(key: NewKey) -> Work[KeyRow]:
    """Make a key known. Raises `UserBeingErasedError` if it speaks for such a user."""
    yield from erasures.require_none(key.tenant, key.subject)
    ((*row,),) = yield _CREATE(
        key_id=key.id,
        tenant=key.tenant,
        name=key.name,
        hash=key.hash,
        hint=key.hint,
        scopes=key.scopes,
        subject=key.subject,
        created_ms=key.created_ms,
        expires_ms=key.expires_ms,
    )
    return KeyRow(*row)


def by_hash(hashed: str) -> Work[KeyRow | None]:
    """Return the valid key with this hash, whosever it is."""
    found = yield _BY_HASH(hash=hashed)
    return KeyRow(*found[0]) if found else None


def find(tenant: str, key_id: str) -> Work[KeyRow]:
    """Return a key, valid or not; raise `NotFoundError` if the tenant has none such."""
    found = yield _FIND(tenant=tenant, key_id=key_id)
    if not found:
        raise _not_found(key_id)
    return KeyRow(*found[0])


def names(tenant: str, key_ids: Iterable[str]) -> Work[dict[str, str]]:
    """Return what the tenant calls those of its keys; what is no key's id is left out."""
    named = rows_of_ids(key_ids)
    found = yield _NAMES(tenant=tenant, named=named)
    return dict(found)


def of_subject(tenant: str, subject: str) -> Work[frozenset[str]]:
    """Return the ids of all keys that stand for one person or system, valid or not."""
    return frozenset((yield from named_of_subject(tenant, subject)))


def named_of_subject(tenant: str, subject: str) -> Work[dict[str, str]]:
    """Return by its id what each of those keys is called."""
    return dict((yield _OF_SUBJECT(tenant=tenant, subject=subject)))


def require_valid(tenant: str, maker: str) -> Work[None]:
    """Raise `UnauthorizedError` if `maker` is a key of the tenant's that is valid no longer.

    Who had none, when none was asked for, may go on.
    """
    if not maker.startswith(ID_PREFIX):
        return
    if not (yield _IS_VALID(tenant=tenant, key_id=maker)):
        raise UnauthorizedError(f"the key {maker} is valid no longer", code="invalid_key")


def may_act_for_others(scopes: Collection[str]) -> bool:
    """Say whether who has these scopes may act for users whom the key does not stand for."""
    return "users:act_as" in scopes or "admin" in scopes


def exist() -> Work[bool]:
    """Say whether there is any valid key at all."""
    return bool((yield _EXIST()))


def search(tenant: str, page: Page) -> Work[list[KeyRow]]:
    """Return the tenant's keys, revoked ones too, and one more if there are more."""
    query: Query = select(*_COLUMNS).where(_K.tenant == tenant)
    found = yield Statement(paged(query, _K.id, page))()
    return [KeyRow(*row) for row in found]


def revoke(tenant: str, key_id: str, now_ms: int) -> Work[KeyRow]:
    """End a key's validity for good; one that was revoked before keeps its time."""
    revoked = yield _REVOKE(tenant=tenant, key_id=key_id, now_ms=now_ms)
    if not revoked:
        raise _not_found(key_id)
    return KeyRow(*revoked[0])


def _not_found(key_id: str) -> NotFoundError:
    return NotFoundError(f"there is no key {key_id}", code="key_not_found")
