"""Addresses of databases: two kinds are known, and no password is ever shown."""

from pathlib import Path

import pytest

from milepost.core.errors import ConfigurationError
from milepost.store.address import PostgresAddress, SqliteAddress, parse_address


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///some/file.db", "some/file.db"), ("sqlite:////tmp/file.db", "/tmp/file.db")],
)
def test_a_file_s_address_names_its_path(url: str, path: str) -> None:
    address = parse_address(url)

    assert address == SqliteAddress(Path(path))
    assert address.sqlalchemy_url == url


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_spelling_of_postgres_is_the_same_address(scheme: str) -> None:
    address = parse_address(f"{scheme}://ann@localhost:5432/milepost")

    assert address == PostgresAddress("postgresql://ann@localhost:5432/milepost")
    assert address.sqlalchemy_url == "postgresql+psycopg://ann@localhost:5432/milepost"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:opensesame@db:5432/milepost",
        "postgresql://ann:open@sesame@db:5432/milepost?password=opensesame",
        "postgresql://db:5432/milepost?user=ann&password=opensesame",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    assert parse_address(url).shown == "Postgres at db:5432/milepost"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://localhost/x",
        "sqlite://",
        "sqlite:///",
        "sqlite:////",
        "sqlite:///.",
        "sqlite:///x/..",
        "milepost.db",
        "",
        "sqlite:///:memory:",
    ],
)
def test_anything_else_is_refused_with_what_would_do(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:///path|name a file"):
        parse_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:sesame@db:port/milepost",
        "postgresql://ann:ses:ame@db:54:32/milepost",
        "postgresql://ann:sesame@[::1/milepost",
        "postgresql://ann:sesame@db/milepost?no_such_option=1",
        "postgresql://ann:sesame@db/milepost?connect_timeout",
        "postgresql://ann:%zz@db/milepost",
    ],
)
def test_a_url_of_postgres_that_cannot_be_read_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="user:password@host:port/name") as refused:
        parse_address(url)

    assert "ses" not in str(refused.value)
