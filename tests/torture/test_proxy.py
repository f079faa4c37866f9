"""The proxy breaks what it is told to break, and loses nothing that TCP would not lose."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.torture.proxy import Fault, Network, network

WAIT_S = 30.0
MOMENT_S = 0.2


@pytest.fixture
async def way() -> AsyncIterator[Network]:
    """A way to a server that says back what it is told."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1024):
            writer.write(piece)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with network(f"postgresql://test@127.0.0.1:{port}/postgres") as opened:
        yield opened
    server.close()


async def connect(way: Network) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect by this way."""
    port = int(way.url.rpartition(":")[2].partition("/")[0])
    return await asyncio.open_connection("127.0.0.1", port)


def test_its_url_is_the_servers_but_for_the_port() -> None:
    way = Network("postgresql://test@127.0.0.1:5432/postgres")

    assert way.url == "postgresql://test@127.0.0.1:0/postgres"


@pytest.mark.parametrize("fault", ["blackhole", "unheard", "unanswered"])
async def test_what_is_held_comes_when_the_network_is_whole_again(
    way: Network, fault: Fault
) -> None:
    reader, writer = await connect(way)
    failing = asyncio.create_task(way.fail(fault, MOMENT_S, reset=False))
    await asyncio.sleep(0)

    writer.write(b"is anybody there?")
    async with asyncio.timeout(WAIT_S):
        answer = await reader.readexactly(17)

    assert failing.done()
    assert answer == b"is anybody there?"
    await failing
    writer.close()


async def test_a_cut_breaks_what_is_connected_and_lets_nobody_in(way: Network) -> None:
    reader, writer = await connect(way)
    writer.write(b"hello")
    await reader.readexactly(5)

    failing = asyncio.create_task(way.fail("cut", WAIT_S, reset=False))
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        late, writing = await connect(way)
        with pytest.raises(ConnectionResetError):
            await late.readexactly(1)

    failing.cancel()
    await asyncio.wait({failing})
    writer.close()
    writing.close()
