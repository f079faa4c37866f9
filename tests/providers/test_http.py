"""The client of the model wires over real sockets, with servers of every temper."""

import asyncio
import gzip
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from itertools import repeat

import pytest
from httptools import HttpParserError

from milepost.core.errors import ConfigurationError
from milepost.providers.http import Destination, Http
from milepost.providers.http_connection import (
    BUFFERED_BYTES_MAX,
    HEAD_BYTES_MAX,
    INFLATED_BYTES_MAX,
    Answer,
)
from milepost.providers.http_connections import Connections
from tests.stubs.raw_server import After, RawServer, serving

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WHOLE = HEAD + b"content-length: 5\r\n\r\nhello"


@asynccontextmanager
async def a_server(talk: Talk) -> AsyncIterator[str]:
    """Yield the address of a server that talks like this, and outlast its talks."""
    talks: set[asyncio.Task[None]] = set()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            talks.add(task)
        with closing(writer):
            await talk(reader, writer)

    server = await asyncio.start_server(welcome, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        if talks:
            _, unfinished = await asyncio.wait(talks, timeout=10)
            assert not unfinished


@asynccontextmanager
async def asking(
    *pieces: bytes, after: After = "close"
) -> AsyncIterator[tuple[RawServer, Destination]]:
    """Yield a server that answers with these pieces, and the way to it; outlast its answers."""
    async with serving(pieces, after) as stub:
        async with Http() as http:
            yield stub, http.to(stub.base_url, {})
        await asyncio.wait_for(stub.hung_up.wait(), 10)


async def text_of(answer: Answer) -> bytes:
    with closing(answer):
        pieces = []
        while piece := await asyncio.wait_for(answer.readany(), 10):
            pieces.append(piece)
    assert answer.at_eof()
    return b"".join(pieces)


async def posted(*pieces: bytes) -> tuple[Answer, bytes]:
    """Return a server's answer to a request, and the whole of its body."""
    async with asking(*pieces) as (_, vendor):
        answer = await vendor.post("/x", b"{}")
        return answer, await text_of(answer)


async def test_an_answer_has_a_status_headers_in_small_letters_and_a_body() -> None:
    answer, body = await posted(b"HTTP/1.1 404 Nope\r\nX-Why: gone\r\ncontent-length: 2\r\n\r\nno")

    assert (answer.status, answer.headers["x-why"], body) == (404, "gone", b"no")


async def test_an_answer_that_says_no_length_ends_with_its_connection() -> None:
    _, body = await posted(HEAD + b"\r\nhel", b"lo")

    assert body == b"hello"


async def test_that_an_answer_will_come_is_not_the_answer() -> None:
    answer, body = await posted(b"HTTP/1.1 100 Continue\r\nx-early: 1\r\n\r\n", WHOLE)

    assert (answer.status, body) == (200, b"hello")
    assert "x-early" not in answer.headers


async def test_no_body_is_waited_for_where_none_can_come() -> None:
    answer, body = await posted(b"HTTP/1.1 204 No Content\r\n\r\n")

    assert (answer.status, body) == (204, b"")


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
async def test_line_ends_may_be_those_of_careless_servers(line_end: bytes) -> None:
    head = [b"HTTP/1.1 200 OK", b"content-length: 5", b"", b"hello"]

    _, body = await posted(line_end.join(head))

    assert body == b"hello"


@pytest.mark.parametrize(
    "said",
    [HEAD + b"content-length: 9\r\n\r\nhello", HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhe"],
    ids=["by length", "in chunks"],
)
async def test_a_body_that_breaks_off_is_an_error_behind_what_came_of_it(said: bytes) -> None:
    async with asking(said) as (_, vendor):
        answer = await vendor.post("/x", b"{}")
        came = await answer.readany()
        with pytest.raises(ConnectionResetError):
            await answer.readany()

    assert b"hello".startswith(came)
    assert not answer.at_eof()


async def test_a_compressed_body_is_read_in_pieces_of_bounded_size() -> None:
    flood = gzip.compress(b"\0" * 20_000_000)
    head = HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(flood)
    sizes = []
    async with asking(head + flood) as (_, vendor):
        answer = await vendor.post("/x", b"{}")
        while piece := await answer.readany():
            sizes.append(len(piece))

    assert sum(sizes) == 20_000_000
    assert max(sizes) <= INFLATED_BYTES_MAX


@pytest.mark.parametrize("encoding", ["gzip", "br"])
async def test_a_body_that_cannot_be_unpacked_is_no_proper_http(encoding: str) -> None:
    head = HEAD + b"content-encoding: %s\r\ncontent-length: 5\r\n\r\n" % encoding.encode()
    with pytest.raises(HttpParserError):
        await posted(head + b"hello")


async def test_headers_without_end_are_no_answer() -> None:
    header = b"x-more: %s\r\n" % (b"x" * 1_000)
    with pytest.raises(HttpParserError, match="without end"):
        await posted(HEAD, *[header * 100] * 12)


@pytest.mark.parametrize(
    ("begun", "piece"),
    [
        (b"0\r\n", b"x-name: %s\r\n" % (b"x" * 50_000)),
        (b"0\r\nx-name: ", b"x" * 50_000),
        (b"5;name=", b"x" * 50_000),
    ],
    ids=["trailers", "a trailer", "an extension of a chunk"],
)
async def test_what_follows_a_body_without_end_is_given_up(begun: bytes, piece: bytes) -> None:
    said = HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n" + begun
    flood = repeat(piece, 2 * HEAD_BYTES_MAX // len(piece))
    async with asking(said, *flood, after="hold") as (_, vendor):
        answer = await vendor.post("/x", b"{}")
        with pytest.raises(HttpParserError, match="without end"):
            await text_of(answer)


async def test_another_protocol_is_no_answer() -> None:
    upgrade = b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
    with pytest.raises((HttpParserError, ConnectionResetError)):
        await posted(upgrade)


async def test_a_reader_that_is_behind_lets_the_server_wait() -> None:
    size, sent = 64 * BUFFERED_BYTES_MAX, 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"{}")
        writer.write(HEAD + b"content-length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * BUFFERED_BYTES_MAX)
            await writer.drain()
            sent += BUFFERED_BYTES_MAX

    async with a_server(talk) as base_url, Http() as http:
        answer = await http.to(base_url, {}).post("/x", b"{}")
        first = await answer.readany()
        for _ in range(200):
            await asyncio.sleep(0)  # As many turns as would bring all of it.
        sent_meanwhile = sent
        rest = await text_of(answer)

    assert len(first) + len(rest) == size
    assert sent_meanwhile < size


async def test_requests_one_after_another_share_a_connection_until_it_was_idle_for_long() -> None:
    peers, over = [], asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        while await reader.readline():
            await reader.readuntil(b"{}")
            writer.write(WHOLE)
        over.set()

    async with a_server(talk) as base_url:
        http = Http(connections=Connections(kept_s=0.2))
        async with http:
            for _ in range(3):
                await text_of(await http.to(base_url, {}).post("/x", b"{}"))
            shared = len(peers)
            await asyncio.wait_for(over.wait(), 10)
            await text_of(await http.to(base_url, {}).post("/x", b"{}"))

    assert (shared, len(peers)) == (1, 2)


async def test_a_connection_that_says_more_than_it_was_asked_is_not_asked_again() -> None:
    talks = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal talks
        talks += 1
        await reader.readuntil(b"{}")
        writer.write(WHOLE + WHOLE)
        await reader.read()

    async with a_server(talk) as base_url, Http() as http:
        vendor = http.to(base_url, {})
        texts = [await text_of(await vendor.post("/x", b"{}")) for _ in range(2)]

    assert texts == [b"hello", b"hello"]
    assert talks == 2


async def test_leaving_before_the_answer_begins_closes_the_connection() -> None:
    heard, last = asyncio.Event(), b"?"

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal last
        await reader.readuntil(b"{}")
        heard.set()
        last = await reader.read()

    async with a_server(talk) as base_url, Http() as http:
        post = asyncio.create_task(http.to(base_url, {}).post("/x", b"{}"))
        await asyncio.wait_for(heard.wait(), 10)
        post.cancel()
        await asyncio.wait([post])

    assert post.cancelled()
    assert last == b""


async def test_nobody_at_the_address_is_told_as_such() -> None:
    async with serving(()) as stub:
        gone = stub.base_url
    async with Http() as http:
        with pytest.raises(ConnectionError):
            await http.to(gone, {}).post("/x", b"{}")


async def test_a_request_names_its_host_and_its_length_and_goes_before_the_clients_headers() -> (
    None
):
    async with serving((WHOLE,)) as stub:
        async with Http({"X-Team": "a", "accept": "b"}) as http:
            vendor = http.to(stub.base_url, {"Accept": "text/event-stream"})
            await text_of(await vendor.post("/x?alt=sse", b'{"a": 1}'))
        await asyncio.wait_for(stub.hung_up.wait(), 10)

    head = stub.requests[0].head
    host = stub.base_url.removeprefix("http://").removesuffix("/v1")
    assert head.startswith(f"POST /v1/x?alt=sse HTTP/1.1\r\nHost: {host}\r\n")
    assert "X-Team: a\r\n" in head
    assert "Accept: text/event-stream\r\n" in head
    assert "accept: b" not in head
    assert "Content-Length: 8\r\n" in head


async def test_whatever_a_target_says_stays_in_one_line() -> None:
    async with asking(WHOLE) as (stub, vendor):
        await text_of(await vendor.post("/a b\r\nX: 1#é%20", b"{}"))

    assert stub.requests[0].head.startswith("POST /v1/a%20b%0D%0AX:%201%23%C3%A9%20 HTTP/1.1\r\n")


async def test_a_user_and_a_password_in_the_address_are_sent_as_such() -> None:
    async with serving((WHOLE,)) as stub:
        async with Http() as http:
            address = stub.base_url.replace("://", "://ann:s%40cret@")
            await text_of(await http.to(address, {}).post("/x", b"{}"))
        await asyncio.wait_for(stub.hung_up.wait(), 10)

    told = b64encode(b"ann:s@cret").decode()
    assert f"Authorization: Basic {told}\r\n" in stub.requests[0].head


@pytest.mark.parametrize("header", [("X-A", "b\r\nX-C: d"), ("X-A\n", "b"), ("", "b")])
def test_a_header_with_a_line_end_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="cannot be sent"):
        Http(dict([header])).to("http://127.0.0.1:1", {})
