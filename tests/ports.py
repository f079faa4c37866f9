"""Ports that a test may give to a process which it starts."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a port that nobody has, below those that systems give to connections."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports were taken")
