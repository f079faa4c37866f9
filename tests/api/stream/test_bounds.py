"""Streams over real sockets, many and unread: what they may cost is bounded."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest

from milepost.api import stream
from milepost.api.access import DEFAULT_TENANT
from milepost.api.gathering import GATHERED_BYTES_MAX
from milepost.api.log_pages import PAGE_BYTES
from milepost.api.stream import DELTA_CHARS_MAX
from milepost.live.hub import Hub
from milepost.store.address import PostgresAddress
from milepost.store.migrate import migrate
from milepost.store.store import Store
from tests.api.serving import Service, serving, settings_for
from tests.api.stream.reading import TEXT, tail_of
from tests.databases import database, named
from tests.live.client import Client, parsed
from tests.live.unread import RECEIVE_BYTES, long_log, unread
from tests.runtime.writing import Run, claimed
from tests.store.conftest import opened
from tests.store.conftest import serving as stored

TIMEOUT_S = 60.0
MANY = 500
UNREAD = 20
LOOK_S = 0.01
# Four are the service's and four the test's own; the lease's thread has one.
CONNECTIONS_MAX = 9
# What uvicorn takes before it makes a sender wait, and the piece that was taken last.
BUFFERED_BYTES_MAX = 65_536 + PAGE_BYTES + GATHERED_BYTES_MAX


@dataclass(slots=True)
class Written:
    """A service that drives nothing, and a run beside it that the test writes."""

    service: Service
    run: Run
    database_url: str

    @property
    def port(self) -> int:
        """Where the service listens."""
        port = urlsplit(self.service.base_url).port
        assert port
        return port

    @property
    def buffered(self) -> list[int]:
        """How many bytes wait in the service for each of its clients."""
        return [
            connection.transport.get_write_buffer_size()
            for connection in self.service.server.server_state.connections
        ]


@pytest.fixture
async def written(postgres_url: str) -> AsyncIterator[Written]:
    """On Postgres, with four connections."""
    with database(postgres_url) as name:
        address = PostgresAddress(named(postgres_url, name))
        await asyncio.to_thread(migrate, address)
        async with (
            serving(settings_for(address.url, slots=0, demo=False, pool_max=4)) as service,
            opened(address) as engine,
            stored(Store(engine)) as store,
        ):
            yield Written(service, await claimed(store, Hub(), tenant=DEFAULT_TENANT), address.url)


async def test_clients_that_read_nothing_cost_a_buffer_each_that_does_not_grow(
    written: Written,
) -> None:
    async with unread(written.port, written.run.id, UNREAD):
        await long_log(written.run)
        first = await asyncio.wait_for(all_stuck(written), TIMEOUT_S)
        await long_log(written.run)
        later = written.buffered

    assert max(first) <= BUFFERED_BYTES_MAX
    assert max(later) <= BUFFERED_BYTES_MAX


async def test_a_client_that_is_given_up_keeps_neither_its_connection_nor_its_buffer(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SEND_TIMEOUT_S", 0.3)

    async with unread(written.port, written.run.id, UNREAD):
        await long_log(written.run)
        kept = written.service.server.server_state
        async with asyncio.timeout(TIMEOUT_S):
            # What answered a connection ends a moment after it.
            while written.buffered or kept.tasks:  # noqa: ASYNC110 - neither tells of its end
                await asyncio.sleep(LOOK_S)

    assert (written.buffered, kept.tasks) == ([], set())


async def all_stuck(written: Written) -> list[int]:
    """Wait until something waits for each client; return how much."""
    while True:
        buffered = written.buffered
        if sum(size > 0 for size in buffered) >= UNREAD:
            return buffered
        await asyncio.sleep(LOOK_S)


async def test_many_open_streams_hold_no_connection_of_the_database(written: Written) -> None:
    async with unread(written.port, written.run.id, MANY) as clients:
        await told(clients, b"event: run.started")
        idle = await idle_connections(written.database_url)

        await written.run.end()
        await told(clients, b"event: run.completed")

    assert idle <= CONNECTIONS_MAX


async def told(clients: Sequence[socket.socket], part: bytes) -> None:
    """Wait until every client was sent this."""
    loop = asyncio.get_running_loop()

    async def listen(client: socket.socket) -> None:
        received = b""
        while part not in received:
            piece = await loop.sock_recv(client, RECEIVE_BYTES)
            assert piece, f"the stream ended: {received!r}"
            received += piece

    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*map(listen, clients))


async def idle_connections(database_url: str) -> int:
    """Wait until no connection to the database is at work; return how many there are."""
    async with (
        asyncio.timeout(TIMEOUT_S),
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as observer,
    ):
        while True:
            answer = await observer.execute(
                """SELECT count(*), count(*) FILTER (WHERE state <> 'idle') FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()"""
            )
            [(there, busy)] = await answer.fetchall()
            if not busy:
                return int(there)


@pytest.mark.parametrize("size", [DELTA_CHARS_MAX, DELTA_CHARS_MAX + 1, 10 * DELTA_CHARS_MAX])
async def test_a_long_text_comes_in_pieces_of_bounded_size_and_whole(run: Run, size: int) -> None:
    said = (TEXT * (size // len(TEXT) + 1))[:size]
    client, pieces = Client(), []
    async with asyncio.timeout(TIMEOUT_S), aclosing(tail_of(run).pieces()) as sent:
        written = await run.start()
        with run.hub.hold(run.id):
            run.say(written, said)
            while client.texts.get("msg_1") != said:
                pieces.append(await anext(sent))
                for each in parsed(pieces[-1]):
                    client.take(each)
            await run.complete(said)
            await run.end()
            async for piece in sent:
                for each in parsed(piece):
                    client.take(each)

    deltas = [each.data["text"] for each in client.seen if each.event == "message.delta"]
    assert max(map(len, deltas)) <= DELTA_CHARS_MAX
    assert "".join(deltas) == said
    assert client.types[-1] == "run.completed"
