"""The real PgBouncer in transaction mode, on machines that have it."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests import devservices
from tests.ports import free_port

_PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
_CONFIGURATION = """
[databases]
* = host={host} port={server_port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_round_robin = 1
max_client_conn = 500
default_pool_size = {sessions}
server_login_retry = 1
"""


def program() -> str | None:
    """Return where this machine has PgBouncer, if it has."""
    return shutil.which("pgbouncer", path=_PLACES)


def version() -> str:
    """Return what it calls itself."""
    told = subprocess.run(
        [program() or "", "--version"], capture_output=True, check=True, text=True
    )
    return told.stdout.splitlines()[0]


@contextmanager
def bounced(url: str, sessions: int = 8) -> Iterator[str]:
    """Give the URL of a PgBouncer before the server that `url` names; skip where there is none.

    It has as many `sessions` at the server, for everybody together.
    """
    there = program()
    if there is None:
        pytest.skip("no pgbouncer on this machine; tests.pooler stands for it")
    parts = conninfo_to_dict(url)
    names = {"host": parts["host"], "server_port": parts["port"], "user": parts["user"]}
    port = free_port()
    with devservices._scratch_directory(in_memory=True) as folder:
        user = devservices._unprivileged_user()
        if user:
            os.chown(folder, user.uid, user.gid)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(_CONFIGURATION.format(port=port, sessions=sessions, **names))
        with devservices._running(
            [there, str(configuration)],
            log=folder / "log",
            ready=lambda: _accepts(port),
            stop_signal=signal.SIGINT,
            user=user,
        ):
            yield f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
