"""A connection to a Postgres whose machine is gone does not wait for an answer for hours."""

import os
import socket
from contextlib import closing

from milepost.store import postgres_session


def test_a_server_that_fell_silent_is_asked_within_seconds_whether_it_is_there(
    postgres_url: str,
) -> None:
    with (
        closing(postgres_session.connect(postgres_url)) as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as opened,
    ):
        asked = opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        patience_ms = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert asked
    assert idle_s == postgres_session.KEEPALIVE_S
    assert patience_ms == postgres_session.TCP_USER_TIMEOUT_MS
