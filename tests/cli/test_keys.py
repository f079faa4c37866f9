"""API keys from the command line: straight in the database, and never beside a service."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from milepost.cli.keys import create_key, list_keys, revoke_key
from milepost.core.errors import ConfigurationError, InvalidError, NotFoundError
from milepost.runtime.credentials import key_hash
from milepost.settings import Settings
from milepost.store import audit, keys, lockfile
from milepost.store.address import parse_address
from milepost.store.audit import AuditFilter, AuditRow
from milepost.store.keys import KeyRow
from milepost.store.opening import open_thread_store
from milepost.store.records import Page
from tests.cli.typed import FAILED, typed
from tests.databases import database, named


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/new/milepost.db"


@pytest.fixture
def empty_postgres_url(postgres_url: str) -> Iterator[str]:
    """A database without tables."""
    with database(postgres_url) as name:
        yield named(postgres_url, name)


@pytest.fixture(params=["sqlite_url", "empty_postgres_url"])
def settings(request: pytest.FixtureRequest) -> Settings:
    """Settings that name an empty database of each kind."""
    return Settings(database_url=request.getfixturevalue(request.param))


def known(settings: Settings, secret: str) -> KeyRow | None:
    """Return what the database says of a key."""
    store = open_thread_store(parse_address(settings.database_url))
    try:
        return store.write(keys.by_hash(key_hash(secret)))
    finally:
        store.close()


def acts(settings: Settings, tenant: str) -> list[AuditRow]:
    """Return the tenant's audit trail."""
    store = open_thread_store(parse_address(settings.database_url))
    try:
        return store.write(audit.search(tenant, AuditFilter(), Page(10)))
    finally:
        store.close()


def test_the_first_key_is_made_in_a_database_that_is_not_there_yet(settings: Settings) -> None:
    secret = create_key(
        settings, tenant="acme", name="me", scopes=["admin"], subject="ann", expires_days=7
    )

    row = known(settings, secret)
    assert row is not None
    assert (row.tenant, row.name, row.subject) == ("acme", "me", "ann")
    assert orjson.loads(row.scopes) == ["admin"]
    assert row.expires_ms == row.created_ms + 7 * 86_400_000
    assert secret not in str(row)


def test_keys_are_listed_for_their_tenant_newest_first(settings: Settings) -> None:
    for name in ("one", "two"):
        create_key(settings, tenant="acme", name=name, scopes=["runs:read"])
    create_key(settings, tenant="globex", name="theirs", scopes=["runs:read"])

    assert [row.name for row in list_keys(settings, tenant="acme")] == ["two", "one"]


def test_a_revoked_key_counts_no_longer(settings: Settings) -> None:
    secret = create_key(settings, tenant="acme", name="me", scopes=["admin"])
    (row,) = list_keys(settings, tenant="acme")

    revoked = revoke_key(settings, tenant="acme", key_id=row.id)

    assert revoked.revoked_ms is not None
    assert known(settings, secret) is None
    assert list_keys(settings, tenant="acme") == [revoked]


def test_a_key_of_another_tenant_is_not_revoked(settings: Settings) -> None:
    secret = create_key(settings, tenant="acme", name="me", scopes=["admin"])
    (row,) = list_keys(settings, tenant="acme")

    with pytest.raises(NotFoundError):
        revoke_key(settings, tenant="globex", key_id=row.id)

    assert known(settings, secret) is not None


def test_what_is_done_is_written_down(settings: Settings) -> None:
    create_key(settings, tenant="acme", name="me", scopes=["admin"])
    (row,) = list_keys(settings, tenant="acme")
    revoke_key(settings, tenant="acme", key_id=row.id)

    trail = acts(settings, "acme")

    assert [(act.actor, act.action, act.target) for act in trail] == [
        ("cli", "key.revoked", row.id),
        ("cli", "key.created", row.id),
    ]


def test_a_file_that_a_service_holds_is_left_alone(sqlite_url: str) -> None:
    settings = Settings(database_url=sqlite_url)

    with (
        lockfile.held(parse_address(sqlite_url)),
        pytest.raises(ConfigurationError) as refused,
    ):
        create_key(settings, tenant="acme", name="me", scopes=["admin"])

    assert refused.value.code == "database_in_use"


def test_whoever_lists_or_revokes_beside_a_service_is_told_of_the_request(sqlite_url: str) -> None:
    settings = Settings(database_url=sqlite_url)

    with lockfile.held(parse_address(sqlite_url)):
        with pytest.raises(ConfigurationError, match="takes GET /v1/keys, from a key"):
            list_keys(settings, tenant="acme")
        with pytest.raises(ConfigurationError, match="takes DELETE /v1/keys/key_x, from a key"):
            revoke_key(settings, tenant="acme", key_id="key_x")


def test_an_old_schema_is_left_alone_if_told_so(sqlite_url: str) -> None:
    settings = Settings(database_url=sqlite_url, migrate=False)

    with pytest.raises(ConfigurationError, match="milepost migrate"):
        create_key(settings, tenant="acme", name="me", scopes=["admin"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scopes": ["root"]}, "--scope cannot be 'root': there is no such scope"),
        ({"scopes": []}, r"--scope cannot be \[\]: "),
        ({"scopes": ["admin", "admin"]}, r"--scope cannot be .*: a scope is named twice"),
        ({"name": ""}, "NAME cannot be '': "),
        ({"name": "two\nlines"}, r"NAME cannot be 'two\\nlines': "),
        ({"subject": ""}, "--subject cannot be '': "),
        ({"expires_days": 0}, "--expires-days cannot be 0: .* greater than or equal to 1"),
        ({"tenant": " "}, "--tenant cannot be ' ': write 1 to 128 characters"),
        ({"tenant": "x" * 129}, "--tenant cannot be 'xxx"),
    ],
)
def test_what_does_not_fit_is_named_as_it_is_typed(
    sqlite_url: str, change: dict[str, object], told: str
) -> None:
    wanted = {"tenant": "acme", "name": "me", "scopes": ["admin"], **change}

    with pytest.raises(InvalidError, match=f"^{told}"):
        create_key(Settings(database_url=sqlite_url), **wanted)  # type: ignore[arg-type]  # wrong on purpose


def test_a_scope_that_there_is_none_of_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidError) as refused:
        create_key(Settings(), tenant="acme", name="ci", scopes=["runs:read", "nonsense"])

    said = str(refused.value)
    assert said.startswith(
        "--scope cannot be 'nonsense': there is no such scope; there are runs:read, runs:write,"
    )
    assert said.endswith("and your own, as in scope:name")


def test_a_scope_is_refused_to_whoever_typed_it_in_one_line(tmp_path: Path) -> None:
    said = typed(tmp_path, "keys", "create", "ci", "--scope", "nonsense")

    assert said.complaint.startswith("--scope cannot be 'nonsense': there is no such scope; ")
    assert (said.code, said.out) == (FAILED, "")
    assert list(tmp_path.iterdir()) == []
