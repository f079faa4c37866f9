"""The lock that keeps an embedded database to one process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.core.errors import ConfigurationError
from milepost.store.address import Address, SqliteAddress

IN_USE = "database_in_use"


@contextmanager
def held(address: Address) -> Iterator[None]:
    """Hold the database for this process alone if it is a file; the kernel lets go at its death.

    SQLite has no time-out for a process that was stopped in a transaction, so there must be no
    second one. Raises `ConfigurationError` if there is.
    """
    if not isinstance(address, SqliteAddress):
        yield
        return
    database = address.path.resolve()  # whatever links lead to it
    path = database.with_name(database.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a+")
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written ({error.strerror}); name another place with --database-url"
        ) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise ConfigurationError(
                f"{address.path} is in use by process {file.read().strip() or 'unknown'};"
                " SQLite serves one process at a time: stop that one, name another file with"
                " --database-url, or use Postgres",
                code=IN_USE,
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
