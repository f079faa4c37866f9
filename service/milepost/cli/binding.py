"""Taking the port, before anything else is begun."""

import errno
import os
import socket

from milepost.core.errors import ConfigurationError

_REASONS = {
    errno.EADDRINUSE: "something listens there already; choose another --port (0 takes a free one)",
    errno.EACCES: "this user may not take that port; choose one above 1023",
    errno.EADDRNOTAVAIL: "this machine does not have that address; choose --host",
}


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens there: who connects waits until the server is ready.

    Raises `ConfigurationError`. Of the addresses that a name has, an IPv4 one is preferred.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigurationError(
            f"there is no address {host!r} to bind to: choose --host"
        ) from error
    family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    taken = socket.socket(family, kind, protocol)
    if os.name == "posix":
        # Else a restart would have to wait until the old connections are forgotten.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
        taken.listen()
    except OSError as error:
        taken.close()
        reason = _REASONS.get(error.errno or 0, error.strerror)
        raise ConfigurationError(
            f"cannot bind to {host}:{port}: {reason}", code="cannot_bind"
        ) from error
    return taken
