"""API keys from the command line, straight in the database: the first one cannot come over HTTP."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from pydantic import ValidationError

from milepost.core.errors import ConfigurationError, InvalidError
from milepost.runtime.clock import Ids, now_ms
from milepost.runtime.credentials import KeySpec, issue, key_of, new_secret, revoke
from milepost.runtime.spec import first_fault
from milepost.settings import Settings
from milepost.store import keys, lockfile, migrate
from milepost.store.address import Address, parse_address
from milepost.store.keys import KeyRow
from milepost.store.opening import open_thread_store
from milepost.store.records import Page
from milepost.store.thread import ThreadStore

ACTOR = "cli"
LISTED_MAX = 1_000

# How fields of a key are typed.
_TYPED: Mapping[str, str] = {
    "name": "NAME",
    "scopes": "--scope",
    "subject": "--subject",
    "expires_days": "--expires-days",
}


def create_key(
    settings: Settings,
    *,
    tenant: str,
    name: str,
    scopes: Sequence[str],
    subject: str | None = None,
    expires_days: int | None = None,
) -> str:
    """Make a key and return its text, which nothing can show again.

    A service that runs without keys asks for them within ten seconds. Raises `InvalidError` for a
    scope that there is none of, and `ConfigurationError` while a service holds the file.
    """
    spec = _spec(tenant, name=name, scopes=list(scopes), subject=subject, expires_days=expires_days)
    ids, secret = Ids(), new_secret()
    key = key_of(spec, secret, tenant=tenant, key_id=ids("key"), now_ms=now_ms())
    with _opened(settings, meanwhile="POST /v1/keys") as store:
        store.write(issue(key, actor=ACTOR, act_id=ids("aud")))
    return secret


def list_keys(settings: Settings, *, tenant: str) -> list[KeyRow]:
    """Return the tenant's keys, the newest first and at most the last thousand, without secrets."""
    with _opened(settings, meanwhile="GET /v1/keys") as store:
        return store.write(keys.search(tenant, Page(LISTED_MAX)))[:LISTED_MAX]


def revoke_key(settings: Settings, *, tenant: str, key_id: str) -> KeyRow:
    """End a key's validity for good. Raises `NotFoundError` if the tenant has none such."""
    act_id = Ids()("aud")
    with _opened(settings, meanwhile=f"DELETE /v1/keys/{key_id}") as store:
        return store.write(revoke(tenant, key_id, actor=ACTOR, act_id=act_id, now_ms=now_ms()))


def _spec(tenant: str, **fields: object) -> KeySpec:
    if not tenant.strip() or "\x00" in tenant or len(tenant) > 128:
        raise InvalidError(f"--tenant cannot be {tenant[:200]!r}: write 1 to 128 characters")
    try:
        return KeySpec.model_validate(fields)
    except ValidationError as error:
        (field, *_), why = first_fault(error)
        given = error.errors()[0]["input"]
        raise InvalidError(f"{_TYPED[field]} cannot be {given!r}: {why}") from error


@contextmanager
def _opened(settings: Settings, *, meanwhile: str) -> Iterator[ThreadStore]:
    """Open the database, migrated, for this process alone where it is a file.

    `meanwhile` is the request that does the same while a service holds the file.
    """
    address = parse_address(settings.database_url)
    with _held(address, meanwhile):
        migrate.prepare(address, may_migrate=settings.migrate)
        with closing(open_thread_store(address)) as store:
            yield store


@contextmanager
def _held(address: Address, meanwhile: str) -> Iterator[None]:
    try:
        with lockfile.held(address):
            yield
    except ConfigurationError as error:
        if error.code != lockfile.IN_USE:
            raise
        raise ConfigurationError(
            f"{error}; meanwhile a service that runs on it takes {meanwhile}, from a key of the"
            " same tenant with the scope admin, or from anybody while there are no keys",
            code=lockfile.IN_USE,
        ) from error
