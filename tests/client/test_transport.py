"""Requests are repeated where that does no harm, and what goes wrong has a code."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest

from milepost.client import Milepost, Patience
from milepost.core.errors import ApiError, ConfigurationError, InvalidError, UnavailableError
from tests.client.conftest import EAGER
from tests.client.scripted_server import answer, frame, scripted, stream

RUN: dict[str, object] = {
    "id": "run_1",
    "status": "queued",
    "agent": "demo",
    "ended_at": None,
    "metadata": {},
}
BUSY = {"code": "queue_full", "detail": "the queue is full", "retryable": True, "request_id": "r1"}


def as_lines(given: bytes) -> bytes:
    """Return an answer that says that it is JSON lines."""
    return given.replace(b"application/json", b"application/x-ndjson")


async def test_a_post_whose_answer_was_lost_is_sent_again_under_the_same_key() -> None:
    async with (
        scripted([None, answer("202 Accepted", RUN)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        run = await client.runs.create("demo", "hello", metadata={"team": "a"})

    first, second = server.asked
    assert run.id == "run_1"
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    assert orjson.loads(first.body) == {
        "agent": "demo", "input": "hello", "metadata": {"team": "a"},
    }  # fmt: skip


async def test_the_first_of_the_failures_in_a_row_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        scripted([None, None, answer("200 OK", RUN), None, answer("200 OK", RUN)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        await client.runs.get("run_1")
        assert len(caplog.records) == 1
        await client.runs.get("run_1")

    first, second = caplog.records
    assert (first.name, first.levelname) == ("milepost.client", "WARNING")
    assert first.getMessage().startswith(f"trying again: no answer from {server.base_url} (")
    assert second.getMessage() == first.getMessage()


async def test_two_posts_have_two_keys() -> None:
    async with (
        scripted([answer("202 Accepted", RUN)] * 2) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        await client.runs.create("demo", "hello")
        await client.runs.create("demo", "hello")

    first, second = server.asked
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


async def test_a_change_whose_answer_was_lost_is_not_made_twice() -> None:
    async with (
        scripted([None, answer("200 OK", {})]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(UnavailableError):
            await client.agents.update("clerk", model="demo/offline")

    assert len(server.asked) == 1


async def test_a_busy_server_is_asked_again_when_it_said() -> None:
    busy = answer("503 Busy", BUSY, retry_after="1")
    patience = Patience(asked_s_max=0.1)

    async with (
        scripted([busy, answer("200 OK", RUN)]) as server,
        Milepost(server.base_url, patience=patience) as client,
    ):
        await client.runs.get("run_1")

    first, second = server.asked
    assert second.at_s - first.at_s >= 0.1


async def test_a_busy_server_may_say_by_its_clock_when_to_ask_again() -> None:
    said = {"date": "Sat, 21 Nov 2026 10:00:00 GMT", "retry_after": "Sat, 21 Nov 2026 10:00:30 GMT"}

    async with (
        scripted([answer("503 Busy", BUSY, **said)]) as server,
        Milepost(server.base_url, patience=Patience(tries_max=1)) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.runs.get("run_1")

    assert caught.value.retry_after_s == 30.0


@asynccontextmanager
async def endless(head: bytes) -> AsyncIterator[str]:
    """Give the address of a server that begins all its answers so, and never ends one."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"connection: close\r\n\r\n")
        with suppress(OSError):
            while True:
                writer.write(b"<p>no</p>" * 1_000)
                await writer.drain()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("path", ["/v1/runs/run_1", "/v1/runs/run_1/events"])
async def test_of_a_refusal_without_an_end_enough_is_read(path: str) -> None:
    async with (
        endless(b"HTTP/1.1 403 Forbidden\r\n") as address,
        Milepost(address, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match=r"the server answered 403: <p>no</p>"):
            await refused(client, path)


@pytest.mark.parametrize("path", ["/v1/runs/run_1", "/v1/runs/run_1/events"])
async def test_of_a_page_without_an_end_enough_is_read(path: str) -> None:
    async with (
        endless(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n") as address,
        Milepost(address, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match=r"is no Milepost server: '<p>no.* as text/html"):
            await refused(client, path)


async def refused(client: Milepost, path: str) -> None:
    """Ask for what is at the path."""
    if path.endswith("/events"):
        async for _ in client.runs.stream("run_1"):
            pass
    else:
        await client.runs.get("run_1")


async def test_a_refusal_has_the_code_and_all_that_the_server_said() -> None:
    problem = {**BUSY, "code": "approval_decided", "retryable": False, "approval": {"id": "apr_1"}}

    async with (
        scripted([answer("409 Conflict", problem)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.approvals.decide("apr_1", "approve")

    error = caught.value
    assert (error.status, error.code, error.request_id) == (409, "approval_decided", "r1")
    assert error.problem["approval"] == {"id": "apr_1"}


async def test_a_key_is_not_taken_where_a_server_sends_us_and_where_that_is_is_said() -> None:
    async with scripted([answer("200 OK", RUN)]) as elsewhere:
        sent = answer("307 Temporary Redirect", location=f"{elsewhere.base_url}/v1/runs/run_1")
        async with (
            scripted([sent]) as server,
            Milepost(server.base_url, "mp_secret", patience=EAGER) as client,
        ):
            with pytest.raises(ApiError) as caught:
                await client.runs.get("run_1")

    assert elsewhere.asked == []
    assert str(caught.value) == (
        f"the server answered 307: it sends us to '{elsewhere.base_url}/v1/runs/run_1', where the"
        " key does not go; if that is Milepost, give its address"
    )


@pytest.mark.parametrize("code", [404, None, [], {}])
async def test_a_refusal_of_somebody_else_is_told_in_its_own_words(code: object) -> None:
    refusal = {"code": code, "message": "no such pipeline"}
    async with (
        scripted([answer("404 Not Found", refusal)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match=r"answered 404: .*no such pipeline") as caught:
            await client.runs.get("run_1")

    assert caught.value.code == "not_a_problem"


async def test_a_proxys_own_error_page_is_tried_again_if_it_may_pass() -> None:
    page = b"HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n<html>bad gateway</html>"

    async with (
        scripted([page, page]) as server,
        Milepost(server.base_url, patience=Patience(tries_max=2, wait_s=0.0)) as client,
    ):
        with pytest.raises(ApiError, match="<html>bad gateway") as caught:
            await client.runs.get("run_1")

    assert caught.value.code == "not_a_problem"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    "told",
    [
        b"HTTP/1.1 502 Bad Gateway\r\nconnection: close\r\n\r\n<html>no answer</html>",
        b"HTTP/1.1 504 Gateway Timeout\r\nconnection: close\r\n\r\n<html>no answer</html>",
        *(
            answer("503 Busy", {"code": code, "detail": "no answer", "retryable": True})
            for code in ("unavailable", "database_unavailable")
        ),
    ],
)
async def test_a_change_that_may_have_been_made_is_not_made_twice(told: bytes) -> None:
    gone = answer("412 Precondition Failed", {"code": "precondition_failed"})

    async with (
        scripted([told, gone]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match="no answer"):
            await client.sessions.update("ses_1", if_still=1, title="Oslo")

    assert len(server.asked) == 1


async def test_a_change_that_was_put_off_is_made_later() -> None:
    page = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n<html>nobody</html>"

    async with (
        scripted([page, answer("503 Busy", BUSY), answer("200 OK", RUN)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        await client.sessions.update("ses_1", title="Oslo")

    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "text", ["\ud800", 2**64, {1, 2}, [None, {"cents": float("nan")}], -math.inf]
)
async def test_what_cannot_be_sent_is_refused_and_nobody_is_asked(text: Any) -> None:
    async with scripted([]) as server, Milepost(server.base_url, patience=EAGER) as client:
        with pytest.raises(InvalidError, match="cannot be sent as JSON"):
            await client.runs.create("demo", text)
        with pytest.raises(InvalidError, match="cannot be sent as JSON"):
            await client.batches.upload("demo", ["hello", text])

    assert server.asked == []


async def test_lines_are_asked_for_again_but_not_once_they_have_begun() -> None:
    busy = answer("503 Service Unavailable", {"code": "draining", "retryable": True})
    whole = as_lines(answer("200 OK", {"n": 1}))
    short = whole.replace(b"content-length: 7", b"content-length: 70")
    async with (
        scripted([None, busy, short + b"\n", whole]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        things = client.users.export("ann")
        first = await anext(things)
        with pytest.raises(UnavailableError):
            await anext(things)

    assert first == {"n": 1}
    assert len(server.asked) == 3
    assert server.asked[2].headers["accept"] == "application/x-ndjson"


async def test_the_key_is_sent_and_ids_stay_one_segment_of_the_path() -> None:
    async with (
        scripted([answer("200 OK", RUN)]) as server,
        Milepost(server.base_url, "mp_secret", patience=EAGER) as client,
    ):
        await client.runs.get("../agents?x=1")

    (asked,) = server.asked
    assert asked.headers["authorization"] == "Bearer mp_secret"
    assert asked.line.startswith("GET /v1/runs/..%2Fagents%3Fx%3D1 ")


async def test_filters_are_sent_as_the_api_wants_them() -> None:
    empty = {"data": [], "has_more": False, "next_cursor": None}

    async with (
        scripted([answer("200 OK", empty)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        await client.runs.list(status="failed", user=None, metadata={"team": "a"}, limit=5)

    (asked,) = server.asked
    assert asked.line == "GET /v1/runs?status=failed&limit=5&metadata%5Bteam%5D=a HTTP/1.1"


@pytest.mark.parametrize(
    "address",
    [
        "localhost:8000",
        "ftp://localhost",
        "http://",
        "http://[::1",
        "http://localhost:99999",
        "http://localhost:0",
        "http://localhost:http",
        "http://localhost/\n",
        "",
    ],
)
async def test_what_is_no_address_is_refused_with_words(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is no server's address; name one such as"):
        Milepost(address)


@pytest.mark.parametrize("key", ["mp_secret\n", "mp_s\u00e9cret", "mp_\x00secret"])
async def test_what_can_be_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ConfigurationError, match="the API key holds") as refused:
        Milepost("http://localhost:8000", key)

    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("body", [b"<html>Welcome!</html>", b"[1]", b'"hello"', b"\xff"])
async def test_a_server_of_another_kind_is_noticed(body: bytes) -> None:
    page = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body

    async with (
        scripted([page]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match="is no Milepost server") as caught:
            await client.runs.list()

    assert caught.value.code == "not_milepost"


@pytest.mark.parametrize("body", [{"status": "ok"}, {}, None])
async def test_an_object_of_somebody_else_is_none_of_ours(body: object) -> None:
    async with (
        scripted([answer("200 OK", body)] * 3) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        for ask in (client.runs.get("run_1"), client.runs.list(), client.users.erase("ann")):
            with pytest.raises(ApiError, match="is no Milepost server") as caught:
                await ask
            assert caught.value.code == "not_milepost"


@pytest.mark.parametrize("media", ["text/html", "application/json", "text/event-stream, text/html"])
async def test_a_stream_that_is_none_is_told_of_by_what_came_instead(media: str) -> None:
    page = answer("200 OK", {"hello": "world"}).replace(b"application/json", media.encode())
    async with (
        scripted([page]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await anext(client.runs.stream("run_1"))

    told = str(caught.value)
    assert f"what answers at {server.base_url} is no Milepost server: " in told
    assert told.endswith(f" as {media}; give the address of one")
    assert len(server.asked) == 1


async def test_a_stream_is_utf_8_whatever_its_header_says() -> None:
    ended = stream(frame("run.completed", {"output": "Grüße"}, seq=1))
    async with (
        scripted([ended.replace(b"utf-8", b"utf-16")]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        event = await anext(client.runs.stream("run_1"))

    assert event.data == {"output": "Grüße"}


async def test_a_page_of_somebody_else_is_no_export() -> None:
    async with (
        scripted([answer("200 OK", {"n": 1})]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match="is no Milepost server"):
            await anext(client.users.export("ann"))


async def test_an_export_that_ends_in_the_middle_of_a_line_is_not_whole() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
    async with (
        scripted([head + b'{"n":1}\n{"n":2,"te']) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        things = client.users.export("ann")
        assert await anext(things) == {"n": 1}
        with pytest.raises(UnavailableError, match="in the middle of a line"):
            await anext(things)


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"[1]",
        b"{}",
        b'{"type":"x","run_id":1}',
        b"null",
        b'"run.queued"',
        b'{"type":"run.failed","run_id":"run_1","seq":1,"data":"it failed"}',
        b'{"type":7,"run_id":"run_1","seq":1,"data":{}}',
        b'{"type":"run.failed","run_id":"run_1","seq":"1","data":{}}',
        b'{"type":"approval.requested","run_id":7,"time":7,"data":{"id":"apr_1","version":1}}',
    ],
)
async def test_a_frame_of_somebody_else_is_noticed(data: bytes) -> None:
    foreign = stream(b"retry: " + b"9" * 500 + b"\n\nid: 1\nevent: x\ndata: " + data + b"\n\n")
    async with (
        scripted([foreign] * 3) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(ApiError, match="is no Milepost server"):
            await anext(client.runs.stream("run_1"))
        with pytest.raises(ApiError, match="is no Milepost server"):
            await anext(client.sessions.stream("ses_1"))
        with pytest.raises(ApiError, match="is no Milepost server"):
            await anext(client.approvals.follow())


async def test_an_answer_that_cannot_be_unpacked_is_asked_for_again() -> None:
    broken = answer("200 OK", RUN, content_encoding="gzip")
    async with (
        scripted([broken, answer("200 OK", RUN)]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        run = await client.runs.get("run_1")

    assert run.id == "run_1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTPS_PROXY", "socks5://127.0.0.1:1"),
        ("ALL_PROXY", "foo://127.0.0.1:1"),
        ("ALL_PROXY", "http://[::1"),
        ("SSL_CERT_FILE", "/nowhere/to/be/found"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match="HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL"):
        Milepost("https://milepost.example")


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_what_a_path_would_lose_is_no_id(name: str) -> None:
    async with (
        scripted([]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(InvalidError, match="no id of anything"):
            await client.runs.get(name)

    assert server.asked == []


@pytest.mark.parametrize("text", ["\ud800", "run_1\ud800x"])
async def test_what_is_no_text_is_refused_wherever_it_stands(text: str) -> None:
    async with (
        scripted([]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        for ask in (
            client.runs.get(text),
            client.runs.list(metadata={text: "a"}),
            client.runs.list(user=text),
            anext(client.runs.stream("run_1", types=[text])),
            anext(client.runs.stream("run_1", after=text)),
        ):
            with pytest.raises(InvalidError):
                await ask

    assert server.asked == []


@pytest.mark.parametrize("after", ["1\n2", "1\r\nauthorization: Bearer mp_other", "é", "\x00"])
async def test_what_can_be_no_events_id_is_refused_and_nobody_is_asked(after: str) -> None:
    async with (
        scripted([]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        with pytest.raises(InvalidError, match="is the id of no event"):
            await anext(client.runs.stream("run_1", after=after))

    assert server.asked == []


async def test_what_is_too_long_for_an_address_is_refused_with_words() -> None:
    long = "x" * 100_000
    async with (
        scripted([]) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        for ask in (
            client.runs.get(long),
            client.runs.list(user=long),
            client.agents.delete(long),
            anext(client.runs.stream("run_1", after=None, types=[long])),
            anext(client.users.export(long)),
        ):
            with pytest.raises(InvalidError, match=r"too long.*shorter ids and filters"):
                await ask

    assert server.asked == []


async def test_streams_leave_room_for_requests_however_many_there_are() -> None:
    held: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        held.add(writer)
        if b"/events" in asked:
            writer.write(stream(frame("run.queued", {}, seq=1)))
        else:
            writer.write(answer("200 OK", RUN))
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Milepost(f"http://127.0.0.1:{port}", patience=EAGER) as client:
        streams = [client.runs.stream("run_1") for _ in range(150)]
        events = await asyncio.gather(*(anext(each) for each in streams))
        run = await client.runs.get("run_1")
        for each in streams:
            await each.aclose()
    for writer in held:
        writer.close()

    assert len(events) == 150
    assert run.id == "run_1"


async def test_nobody_there_is_said_so() -> None:
    async with (
        scripted([]) as server,
        Milepost(server.base_url, patience=Patience(tries_max=1)) as client,
    ):
        pass

    async with Milepost(server.base_url, patience=Patience(tries_max=1)) as client:
        with pytest.raises(UnavailableError, match="no answer from http"):
            await client.runs.get("run_1")


async def test_a_client_that_is_used_on_two_event_loops_says_so() -> None:
    async with (
        scripted([answer("200 OK", RUN)] * 2) as server,
        Milepost(server.base_url, patience=EAGER) as client,
    ):
        await client.runs.get("run_1")
        for ask in (client.runs.get("run_1"), anext(client.runs.stream("run_1"))):
            with pytest.raises(RuntimeError, match="connections are on another event loop; make"):
                await asyncio.to_thread(asyncio.run, alone(ask))
        await client.runs.get("run_1")

    assert len(server.asked) == 2


async def alone(ask: Awaitable[object]) -> object:
    """Wait for an answer on whichever event loop this is."""
    return await ask


async def test_a_client_that_was_closed_says_so() -> None:
    async with scripted([]) as server:
        client = Milepost(server.base_url, patience=EAGER)
        await client.aclose()

        for ask in (
            client.runs.get("run_1"),
            anext(client.runs.stream("run_1")),
            anext(client.users.export("ann")),
        ):
            with pytest.raises(RuntimeError, match="this client was closed; make a new one"):
                await ask
