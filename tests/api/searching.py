"""Looking for a text wherever a service keeps anything: for tests of what is erased."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from redis.asyncio import Redis


def tables_with(database_url: str, needle: str) -> set[str]:
    """Return the tables that have the text in any of their rows."""
    if database_url.startswith("sqlite"):
        return set(_in_sqlite(Path(database_url.removeprefix("sqlite:///")), needle))
    return set(_in_postgres(database_url, needle))


def files_with(folder: Path, needle: str) -> set[str]:
    """Return the files below the folder that have the text, as they lie on the disk."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and needle.encode() in path.read_bytes()
    }


def database_files_with(database_url: str, needle: str) -> set[str]:
    """Return which files of an SQLite database have the text: the journal is one of them."""
    path = Path(database_url.removeprefix("sqlite:///"))
    return {
        each.name
        for each in path.parent.glob(f"{path.name}*")
        if needle.encode() in each.read_bytes()
    }


async def keys_with(redis_url: str, needle: str) -> set[str]:
    """Return the keys in Redis that have the text, in their name or in what they hold."""
    redis: Any = Redis.from_url(redis_url)
    try:
        found = set()
        async for key in redis.scan_iter():
            held = await _held(redis, key)
            if needle.encode() in key + held:
                found.add(key.decode())
        return found
    finally:
        await redis.aclose()


async def _held(redis: Any, key: bytes) -> bytes:
    match await redis.type(key):
        case b"string":
            return await redis.get(key) or b""
        case b"set":
            return b" ".join(await redis.smembers(key))
        case b"zset":
            return b" ".join(await redis.zrange(key, 0, -1))
        case b"hash":
            return b" ".join(part for pair in (await redis.hgetall(key)).items() for part in pair)
        case _:
            return b""


def _in_sqlite(path: Path, needle: str) -> Iterator[str]:
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    try:
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (name,) in listed.fetchall():
            rows = connection.execute(f'SELECT * FROM "{name.decode()}"')
            if any(needle.encode() in _bytes(value) for row in rows for value in row):
                yield name.decode()
    finally:
        connection.close()


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _in_postgres(url: str, needle: str) -> Iterator[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        listed = connection.execute(
            "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE nspname = 'public' AND relkind = 'r'"
        )
        for (name,) in listed.fetchall():
            copy = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(name))
            with connection.cursor().copy(copy) as rows:
                kept = b"".join(bytes(row) for row in rows)
            # A content is written as hexadecimal digits there.
            if needle.encode() in kept or needle.encode().hex().encode() in kept:
                yield name
