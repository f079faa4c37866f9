"""The edge: what every request passes, whatever it asks for."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
import orjson
import pytest
from starlette.requests import Request
from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from milepost.api.access import Access, OpenAccess, Principal
from milepost.api.edge import Edge
from milepost.store.engine import DatabaseUnavailableError
from tests.api.asking import parked
from tests.api.making import refusal
from tests.api.serving import TIMEOUT_S, Service

JSON = "application/json"
START = {"type": "http.response.start", "status": 200, "headers": []}


@asynccontextmanager
async def behind_the_edge(
    app: ASGIApp, access: Access | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Put an application behind the edge, without a socket."""
    router = Router([Mount("/", app)])
    edge = Edge(router, access or OpenAccess(), lambda prefix: f"{prefix}_1")
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(edge), base_url="http://localhost"
    ) as client:
        yield client


async def sent(service: Service, request: str) -> bytes:
    """Return what the service answers to these bytes, before it hangs up."""
    port = service.server.servers[0].sockets[0].getsockname()[1]
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.encode())
        told = await reader.read()
        writer.close()
    return told


async def test_a_request_is_named_and_its_name_is_echoed(client: httpx2.AsyncClient) -> None:
    ours = await client.get("/v1/runs")
    theirs = await client.get("/v1/runs", headers={"x-request-id": "abc-1"})
    refused = await client.get("/v1/runs/run_0", headers={"x-request-id": "abc-2"})

    assert ours.headers["x-request-id"].startswith("req_")
    assert theirs.headers["x-request-id"] == "abc-1"
    assert refused.json()["request_id"] == "abc-2"


@pytest.mark.parametrize("sent", ["two words", "x" * 129, "ümlaut"])
async def test_a_name_that_could_harm_a_log_is_replaced(sent: str) -> None:
    async def answer(_: Scope, __: Receive, send: Send) -> None:
        await send(dict(START))
        await send({"type": "http.response.body"})

    async with behind_the_edge(answer) as client:
        headers = {b"x-request-id": sent.encode("latin-1")}
        given = await client.get("/", headers=headers)

    assert given.headers["x-request-id"] == "req_1"


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/v1", "/v1/runs/", "/v1/agents/a/b/c", "//v1/runs"]
)
async def test_a_path_that_nobody_serves_is_a_problem(
    client: httpx2.AsyncClient, path: str
) -> None:
    answer = await client.get(path)

    assert refusal(answer) == (404, "not_found")
    assert answer.json()["instance"] == httpx2.URL(str(answer.url)).path


async def test_a_path_with_a_nul_character_is_not_found(client: httpx2.AsyncClient) -> None:
    for path in ("/v1/runs/run%00", "/v1/agents/a%00b", "/v1/sessions/%00/messages"):
        assert refusal(await client.get(path)) == (404, "not_found")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Authorization", ("Bearer mp_one", "Bearer mp_two")),
        ("Content-Type", (JSON, "text/csv")),
        ("Idempotency-Key", ("a", "b")),
        ("Last-Event-ID", ("1", "2")),
    ],
)
async def test_a_header_that_means_one_thing_is_refused_where_it_stands_twice(
    client: httpx2.AsyncClient, name: str, values: tuple[str, str]
) -> None:
    twice = [(name, value) for value in values]

    refused = await client.get("/v1/runs", headers=twice)

    assert refusal(refused) == (400, "malformed_http")
    assert refused.json()["detail"] == f"the request has 2 {name.lower()} headers; send one"


async def test_two_hosts_are_refused_before_either_is_believed() -> None:
    async def answer(_: Scope, __: Receive, ___: Send) -> None:
        raise AssertionError("it came as far as the routes")

    async with behind_the_edge(answer) as client:
        refused = await client.get("/", headers=[("host", "elsewhere"), ("host", "localhost")])

    assert refusal(refused) == (400, "malformed_http")
    assert refused.json()["detail"] == "the request has 2 host headers; send one"


@pytest.mark.parametrize(
    ("line", "status"), [("GET /healthz HTTP/1.1", b"400"), ("GET /healthz HTTP/1.0", b"200")]
)
async def test_who_speaks_http_1_1_says_whom_they_mean(
    service: Service, line: str, status: bytes
) -> None:
    """RFC 9112, section 3.2: without a host it is no request. Before 1.1 there was none."""
    told = await sent(service, f"{line}\r\nconnection: close\r\n\r\n")

    assert told.split()[1] == status
    assert (b'"code":"malformed_http"' in told) == (status == b"400")


@pytest.mark.parametrize(
    "codings", [["gzip, chunked"], ["gzip", "chunked"], ["identity, Chunked"], ["chunked;q=1"]]
)
async def test_a_body_that_was_packed_on_its_way_is_not_taken_as_it_is(
    service: Service, codings: list[str]
) -> None:
    """RFC 9112, section 6.1: it would be read as other bytes than were sent."""
    lines = "".join(f"transfer-encoding: {coding}\r\n" for coding in codings)
    told = await sent(
        service,
        f"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n"
        f"connection: close\r\n{lines}\r\n2\r\n{{}}\r\n0\r\n\r\n",
    )

    assert told.split()[1] == b"400"
    assert b'"code":"malformed_http"' in told


async def test_a_body_in_chunks_is_taken_however_that_is_spelt(service: Service) -> None:
    told = await sent(
        service,
        f"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n"
        "connection: close\r\ntransfer-encoding: Chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    )

    assert told.split()[1] == b"201"


async def test_a_header_that_is_a_list_may_stand_in_several_lines(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/v1/runs", headers=[("accept", JSON), ("accept", "text/html")])

    assert answer.status_code == 200


async def test_a_version_is_meant_in_whichever_line_it_stands(client: httpx2.AsyncClient) -> None:
    session = (await client.post("/v1/sessions", json={"title": "Sums"})).json()
    path, change = f"/v1/sessions/{session['id']}", {"title": "More sums"}

    lines = [("if-match", '"7"'), ("if-match", '"1"')]
    timely = await client.patch(path, json=change, headers=lines)
    late = await client.patch(path, json=change, headers=lines)

    assert (timely.status_code, timely.json()["version"]) == (200, 2)
    assert refusal(late) == (412, "precondition_failed")
    assert 'If-Match says "7", "1"' in late.json()["detail"]


async def test_a_preference_counts_in_whichever_line_it_stands(client: httpx2.AsyncClient) -> None:
    """RFC 7240, section 2, has this very example."""
    answer = await client.post(
        "/v1/runs",
        json={"agent": "demo", "input": "hello"},
        headers=[("prefer", "respond-async"), ("prefer", "wait=100")],
    )

    assert (answer.status_code, answer.json()["status"]) == (200, "completed")


async def test_a_body_is_refused_in_whichever_line_its_encoding_stands(
    client: httpx2.AsyncClient,
) -> None:
    lines = [("content-type", JSON), ("content-encoding", "identity"), ("content-encoding", "br")]

    answer = await client.post("/v1/sessions", content="{}", headers=lines)

    assert refusal(answer) == (415, "unsupported_media_type")
    assert "'br'" in answer.json()["detail"]


async def test_a_method_that_is_not_served_says_which_are(client: httpx2.AsyncClient) -> None:
    answer = await client.delete("/v1/agents")

    assert refusal(answer) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert answer.json()["detail"] == "/v1/agents does not take DELETE, but GET, HEAD, POST"


async def test_a_path_of_its_own_is_no_id(client: httpx2.AsyncClient) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        answer = await client.request(method, "/v1/approvals/decisions")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_who_asks_for_headers_alone_waits_for_no_run(client: httpx2.AsyncClient) -> None:
    run_id = (await parked(client))["run_id"]

    for path, media in (("events", "text/event-stream; charset=utf-8"), ("wait", JSON)):
        answer = await client.head(f"/v1/runs/{run_id}/{path}", timeout=5)
        assert (answer.status_code, answer.headers["content-type"]) == (200, media)
        assert answer.content == b""


@pytest.mark.parametrize("origin", ["null", "http://[", "http://", "localhost", "file://"])
async def test_an_origin_that_is_none_of_ours_is_refused_however_it_is_written(
    client: httpx2.AsyncClient, origin: str
) -> None:
    answer = await client.get("/v1/runs", headers={"origin": origin})

    assert refusal(answer) == (403, "foreign_origin")


async def test_who_leaves_in_the_middle_of_a_body_is_no_failure_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(f"{message} is for nobody")

    async def reads(scope: Scope, receive: Receive, _: Send) -> None:
        await Request(scope, receive).body()

    edge = Edge(Router([Mount("/", reads)]), OpenAccess(), lambda prefix: f"{prefix}_1")
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "POST", "path": "/v1/runs", "headers": headers}
    await edge(scope, leave, send)

    assert caplog.records == []


async def test_other_web_pages_are_kept_out(client: httpx2.AsyncClient) -> None:
    body = {"agent": "demo", "input": "hello"}
    page = await client.post("/v1/runs", json=body, headers={"origin": "https://evil.example"})
    rebound = await client.post("/v1/runs", json=body, headers={"host": "evil.example"})
    ours = await client.post(
        "/v1/runs", json=body, headers={"origin": str(client.base_url).rstrip("/")}
    )

    assert refusal(page) == (403, "foreign_origin")
    assert refusal(rebound) == (421, "misdirected_host")
    assert ours.status_code == 202
    assert len((await client.get("/v1/runs")).json()["data"]) == 1


async def test_no_other_page_is_told_that_it_may_call(client: httpx2.AsyncClient) -> None:
    asked = await client.options(
        "/v1/runs",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )

    assert refusal(asked) == (403, "foreign_origin")
    assert not [name for name in asked.headers if name.startswith("access-control-")]


async def test_what_breaks_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(_: Scope, __: Receive, ___: Send) -> None:
        raise RuntimeError("password=hunter2")

    async with behind_the_edge(breaks) as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.get("/v1/runs")

    assert refusal(answer) == (500, "internal")
    assert "hunter2" not in answer.text
    assert "a request failed" in caplog.text


@pytest.mark.parametrize(
    "lack",
    [
        RuntimeError("can't start new thread"),
        OSError(errno.EMFILE, "Too many open files", "/var/lib/secret"),
    ],
)
async def test_what_the_machine_has_none_left_of_is_to_be_asked_for_again(
    lack: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(_: Scope, __: Receive, ___: Send) -> None:
        raise lack

    with caplog.at_level(logging.WARNING):
        async with behind_the_edge(breaks) as client:
            answer = await client.get("/")

    assert refusal(answer) == (503, "unavailable")
    assert answer.json()["retryable"]
    assert answer.headers["retry-after"] == "1"
    assert "secret" not in answer.text
    assert str(lack) in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_database_that_is_away_is_said_so_with_when_to_come_back() -> None:
    async def breaks(_: Scope, __: Receive, ___: Send) -> None:
        raise DatabaseUnavailableError('Postgres: connection to server at "10.1.2.3" failed')

    async with behind_the_edge(breaks) as client:
        answer = await client.get("/v1/runs")

    assert refusal(answer) == (503, "database_unavailable")
    assert "10.1.2.3" not in answer.text, "where the database is, is for the log"
    assert "may have been done" in answer.json()["detail"]
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("1", "1000")
    assert answer.headers["x-should-retry"] == "true"


async def test_an_answer_that_breaks_off_is_not_followed_by_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks_off(_: Scope, __: Receive, send: Send) -> None:
        await send(dict(START))
        raise RuntimeError("too late")

    async with behind_the_edge(breaks_off) as client:
        with pytest.raises(RuntimeError, match="too late"):
            await client.get("/v1/runs")

    assert "a response broke off" in caplog.text


async def test_bytes_that_are_no_http_do_not_stop_the_server(
    service: Service, client: httpx2.AsyncClient
) -> None:
    url = httpx2.URL(service.base_url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"\x00\xff not http at all\r\n\r\n")
    answered = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert answered.startswith(b"HTTP/1.1 400")
    assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_a_request_that_a_stopping_server_cuts_off_may_be_made_again() -> None:
    asked, sent = asyncio.Event(), []

    async def think(_: Scope, __: Receive, ___: Send) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    edge = Edge(Router([Mount("/", think)]), OpenAccess(), lambda prefix: f"{prefix}_1")
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/v1/runs", "headers": headers}
    answering = asyncio.create_task(edge(scope, _nothing, send))
    await asked.wait()
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering

    start, body = sent
    said = orjson.loads(body["body"])
    assert (start["status"], said["code"], said["retryable"]) == (503, "unavailable", True)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


class LostAccess:
    """Knows who comes, and then has no database to look again."""

    def __init__(self) -> None:
        self.looks = 0

    async def admit(self, _: Mapping[bytes, bytes]) -> Principal:
        self.looks += 1
        if self.looks > 1:
            await asyncio.Event().wait()
        return Principal("acme", "key_1", "ann", frozenset())

    async def require_ours(self, _: Mapping[bytes, bytes]) -> None:
        """Show pages to anybody."""

    def forget(self) -> None:
        """Know nothing more that could be forgotten."""


async def test_a_stream_goes_on_while_nobody_can_look_whether_its_key_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("milepost.api.edge.STILL_ADMITTED_S", 0)
    monkeypatch.setattr("milepost.api.edge.LOOK_S", 0.01)
    access = LostAccess()

    async def answer(_: Scope, __: Receive, send: Send) -> None:
        await send(dict(START))
        await send({"type": "http.response.body", "body": b"word by ", "more_body": True})
        await send({"type": "http.response.body", "body": b"word"})

    async with behind_the_edge(answer, access) as client:
        given = await client.get("/v1/runs")

    assert (given.text, access.looks) == ("word by word", 2)
