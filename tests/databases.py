"""Postgres databases that tests make, and drop."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict


@contextmanager
def database(server: str, template: str = "template1") -> Iterator[str]:
    """Make a database, and drop it."""
    name = f"milepost_{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        made = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        connection.execute(made.encode())
        try:
            yield name
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def named(server: str, name: str) -> str:
    """Return the URL of the database `name` on the same server."""
    parts = conninfo_to_dict(server)
    password = f":{parts['password']}" if parts.get("password") else ""
    return f"postgresql://{parts['user']}{password}@{parts['host']}:{parts['port']}/{name}"
