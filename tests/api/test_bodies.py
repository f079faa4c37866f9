"""Request bodies: what does not fit is refused with words, and nothing of it is stored."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from milepost.api.bodies import BODY_BYTES_MAX, Body, parse, read_body, read_bytes, require_none
from milepost.api.problems import BodyError
from milepost.api.session_exports import IMPORT_BYTES_MAX
from milepost.core.errors import InvalidError
from milepost.runtime.agent_spec import AgentSpec
from tests.api.making import a_schedule, an_agent, made, refusal
from tests.api.serving import Service
from tests.api.surface import SURFACE, Endpoint, stocked, stored

TAKE_BODIES = [endpoint for endpoint in SURFACE if endpoint.body is not None]
LARGER = {"/v1/session_imports": IMPORT_BYTES_MAX}
JSON = {"content-type": "application/json"}
POST = {"type": "http", "method": "POST"}
DEEP = b"[" * 100 + b"]" * 100
MALFORMED = [b"", b"{", b"nul", b'{"a": NaN}', b'{"a": 1e999}', b"\xff\xfe", b'"\\ud800"', b"'a'"]


class Small(Body):
    """A body of each kind of field."""

    name: str = Field(max_length=5)
    count: int = 0
    share: float = 0
    words: list[str] = Field(default_factory=list)
    choice: str | list[int] = ""
    labels: dict[Annotated[str, Field(min_length=1)], str] = Field(default_factory=dict)


def a_request(*parts: bytes, headers: dict[str, str] | None = None) -> Request:
    """Return a request whose body comes in these parts."""
    waiting = list(parts)

    async def receive() -> Message:
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting)}

    sent = {"content-type": "application/json"} if headers is None else headers
    raw = [(name.encode(), value.encode()) for name, value in sent.items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive)


@pytest.fixture
async def things(client: httpx2.AsyncClient) -> dict[str, str]:
    """One of everything, so that only the body can be what is wrong."""
    return await stocked(client)


async def send(
    client: httpx2.AsyncClient, endpoint: Endpoint, things: dict[str, str], content: bytes
) -> httpx2.Response:
    path = endpoint.path_to(things)
    return await client.request(endpoint.method, path, content=content, headers=JSON)


async def test_what_takes_no_body_says_so_and_does_nothing(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    """Whoever names what to delete in a body would else have more deleted than that."""
    take_none = [endpoint for endpoint in SURFACE if endpoint.method in {"GET", "DELETE"}]
    take_none.append(Endpoint("PUT", "/v1/sessions/{session_id}/messages/{place}/pin", ()))
    before = await stored(client)

    for endpoint in take_none:
        answer = await send(client, endpoint, things, b'{"agent": "demo"}')
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 400, "unexpected_body")

    assert await stored(client) == before


async def test_a_body_of_unknown_length_is_one_only_if_anything_comes(
    client: httpx2.AsyncClient,
) -> None:
    """What passes a gateway may be chunked though there is nothing in it."""

    async def parts(*content: bytes) -> AsyncIterator[bytes]:
        for part in content:
            yield part

    empty = await client.request("DELETE", "/v1/cache", content=parts())
    full = await client.request("DELETE", "/v1/cache", content=parts(b"{", b"}"))

    assert empty.status_code == 200
    assert refusal(full) == (400, "unexpected_body")


async def test_a_body_where_no_method_takes_one_is_the_lesser_mistake(
    client: httpx2.AsyncClient,
) -> None:
    for path, fault in (("/v1/keys", "method_not_allowed"), ("/v1/nothing", "not_found")):
        answer = await client.request("DELETE", path, content=b"{}", headers=JSON)
        assert refusal(answer)[1] == fault


async def test_a_body_that_is_not_wanted_is_not_waited_for() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")

    headers = [(b"transfer-encoding", b"chunked")]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers}, receive)
    with pytest.raises(InvalidError) as refused:
        await require_none(request, within_s=0.01)

    assert refused.value.code == "unexpected_body"


async def test_who_forgets_the_body_is_told_so(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/v1/sessions", headers=JSON)

    assert refusal(answer) == (400, "malformed_json")
    assert answer.json()["detail"] == "there is no body; send JSON, if only {}"


async def test_what_should_be_an_object_is_told_so_without_names_of_classes(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.post("/v1/agents", json=an_agent(memory={"extract": True}))

    assert refusal(answer) == (422, "invalid_request")
    assert answer.json()["detail"] == "/memory/extract: Input should be an object, not true"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"enabled": 0}, "/enabled: Input should be a valid boolean, not 0"),
        ({"late_max_s": -1}, "/late_max_s: Input should be greater than or equal to 1, not -1"),
        ({"late_max_s": "soon"}, "/late_max_s: Input should be a valid number, not a string"),
        ({"overlap": "both"}, "/overlap: Input should be 'skip' or 'allow', not 'both'"),
        ({"cron": None}, "/cron: Input should be a valid string, not null"),
        ({"cron": {}}, "/cron: Input should be a valid string, not an object"),
        ({"run": []}, "/run: Input should be an object, not a list"),
        ({"name": ""}, "/name: String should have at least 1 character, not 0"),
    ],
)
async def test_what_is_refused_is_named_beside_what_is_wanted(
    client: httpx2.AsyncClient, changes: dict[str, Any], told: str
) -> None:
    answer = await client.post("/v1/schedules", json=a_schedule(**changes))

    assert refusal(answer) == (422, "invalid_request")
    assert answer.json()["detail"] == told


async def test_what_is_secret_is_not_named_as_it_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.put("/v1/secrets/PIN", json={"value": 40725199})

    assert answer.json()["detail"] == "/value: Input should be a valid string"


async def test_no_endpoint_takes_what_is_not_json(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    before = await stored(client)

    for endpoint in TAKE_BODIES:
        for content in MALFORMED:
            answer = await send(client, endpoint, things, content or b" ")
            assert (str(endpoint), *refusal(answer)) == (str(endpoint), 400, "malformed_json")

    assert await stored(client) == before


async def test_no_endpoint_takes_what_cannot_be_stored(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    before = await stored(client)
    unstorable = [b'{"a": "\\u0000"}', b'{"\\u0000": 1}', b'{"a": 18446744073709551615}', DEEP]
    unstorable += [b'{"a": ' + b"[" * 1_000 + b"9" * 30 + b"]" * 1_000 + b"}"]
    unstorable += [b'{"a": [99999999999999999999999]}', b'{"a": -9223372036854775809}']

    for endpoint in TAKE_BODIES:
        for content in unstorable:
            answer = await send(client, endpoint, things, content)
            assert (str(endpoint), *refusal(answer)) == (str(endpoint), 422, "unstorable")

    assert await stored(client) == before


async def test_no_endpoint_takes_a_field_that_it_does_not_know(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    before = await stored(client)

    for endpoint in TAKE_BODIES:
        body = {**(endpoint.body or {}), "surprise~/": 1}
        answer = await send(client, endpoint, things, json.dumps(body).encode())
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 422, "invalid_request")
        assert [each["pointer"] for each in answer.json()["errors"]] == ["/surprise~0~1"]
        assert answer.json()["error"]["param"] == "/surprise~0~1"

    assert await stored(client) == before


@pytest.mark.parametrize(
    "twice",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1, "a": 1}',
        b'{"\\u0061" : 1, "b": "", "a"\n:2}',
        b'{"b": {"c": [{"a": {}, "a": []}]}}',
        b'{"a\\\\": "\\":", "a\\\\": 1}',
    ],
)
async def test_no_endpoint_takes_an_object_that_says_a_field_twice(
    client: httpx2.AsyncClient, things: dict[str, str], twice: bytes
) -> None:
    """Readers differ in which they take: whoever checked the body may have read the other."""
    before = await stored(client)

    for endpoint in TAKE_BODIES:
        answer = await send(client, endpoint, things, twice)
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 400, "malformed_json")
        assert "twice" in answer.json()["detail"]

    assert await stored(client) == before


async def test_text_that_looks_like_json_may_say_a_field_twice(client: httpx2.AsyncClient) -> None:
    text = '{"a": 1, "a" : 2}'

    session = await made(client, "/v1/sessions", {"title": text, "metadata": {"a": text}})

    assert session["title"] == text


async def test_no_endpoint_takes_another_type_than_an_object(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    for endpoint in TAKE_BODIES:
        for content in (b"[]", b"null", b"7", b'"text"'):
            answer = await send(client, endpoint, things, content)
            assert (str(endpoint), *refusal(answer)) == (str(endpoint), 422, "invalid_request")


async def test_no_endpoint_takes_another_content_type(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    for endpoint in TAKE_BODIES:
        for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = await client.request(
                endpoint.method,
                endpoint.path_to(things),
                content=json.dumps(endpoint.body),
                headers={"content-type": media},
            )
            assert (str(endpoint), *refusal(answer)) == (
                str(endpoint), 415, "unsupported_media_type",
            )  # fmt: skip


async def test_no_endpoint_takes_a_body_in_another_encoding_than_none(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    for endpoint in TAKE_BODIES:
        for coding in ("gzip", "identity, gzip"):
            answer = await client.request(
                endpoint.method,
                endpoint.path_to(things),
                content=gzip.compress(json.dumps(endpoint.body).encode()),
                headers={**JSON, "content-encoding": coding},
            )
            assert (str(endpoint), *refusal(answer)) == (
                str(endpoint), 415, "unsupported_media_type",
            )  # fmt: skip


async def test_a_body_that_is_said_to_be_as_it_is_is_taken(client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        "/v1/runs",
        content=json.dumps({"agent": "demo", "input": "hello"}),
        headers={**JSON, "content-encoding": "Identity"},
    )

    assert answer.status_code == 202


async def test_no_endpoint_takes_more_than_a_mebibyte_but_those_that_say_so(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    for endpoint in TAKE_BODIES:
        most = LARGER.get(endpoint.path, BODY_BYTES_MAX)
        answer = await send(client, endpoint, things, b" " * (most + 1))
        assert (str(endpoint), *refusal(answer)) == (str(endpoint), 413, "body_too_large")


async def test_a_body_that_never_said_how_long_it_is_has_the_same_bound(
    client: httpx2.AsyncClient,
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 65_536 + 1):
            yield b" " * 65_536

    answer = await client.post("/v1/agents", content=parts(), headers=JSON)

    assert refusal(answer) == (413, "body_too_large")
    assert (await client.get("/healthz")).status_code == 200


async def test_a_body_that_may_be_left_out_is_read_however_it_comes(
    client: httpx2.AsyncClient, things: dict[str, str]
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"reason": '
        yield b'"enough"}'

    path = f"/v1/runs/{things['run_id']}"
    await client.post(f"{path}/cancel", content=parts(), headers=JSON)

    log = await client.get(f"{path}/events", headers={"accept": "application/json"})
    assert log.json()["data"][-1]["data"]["reason"] == "enough"


async def test_a_charset_beside_the_content_type_is_fine(client: httpx2.AsyncClient) -> None:
    answer = await client.post(
        "/v1/agents",
        content=json.dumps(an_agent()),
        headers={"content-type": "Application/JSON; charset=utf-8"},
    )

    assert answer.status_code == 201


@pytest.mark.parametrize("charset", ["utf-16", '"ISO-8859-1"', "windows-1252; x=y", "utf"])
async def test_a_body_in_another_charset_is_not_read_as_if_it_were_in_ours(
    client: httpx2.AsyncClient, charset: str
) -> None:
    for path, media in (
        ("/v1/sessions", "application/json"),
        ("/v1/batches", "application/x-ndjson"),
    ):
        answer = await client.post(
            path, content="{}", headers={"content-type": f"{media}; Charset={charset}"}
        )
        assert refusal(answer) == (415, "unsupported_media_type")
        assert "UTF-8" in answer.json()["detail"]


@pytest.mark.parametrize("charset", ["UTF-8", '"utf-8"', "utf8", "us-ascii"])
async def test_a_charset_that_utf_8_is_or_holds_is_fine(
    client: httpx2.AsyncClient, charset: str
) -> None:
    answer = await client.post(
        "/v1/sessions",
        content="{}",
        headers={"content-type": f"application/json;q=1 ; charset={charset}"},
    )

    assert answer.status_code == 201


async def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing(
    service: Service, client: httpx2.AsyncClient
) -> None:
    url = httpx2.URL(service.base_url)
    _, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(
        b"POST /v1/agents HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b'content-length: 500\r\n\r\n{"name": "half'
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()

    agents = (await client.get("/v1/agents")).json()["data"]
    assert [agent["name"] for agent in agents] == ["demo"]


async def test_text_of_every_script_is_kept_as_it_is(client: httpx2.AsyncClient) -> None:
    text = "ünï \N{GRINNING FACE} \u202e日本 \u2028 \\ \" ' </script>"

    session = await made(client, "/v1/sessions", {"title": text, "metadata": {"k ö": text}})

    shown = (await client.get(f"/v1/sessions/{session['id']}")).json()
    assert (shown["title"], shown["metadata"]) == (text, {"k ö": text})


async def test_a_body_that_never_ends_is_not_waited_for() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")

    with pytest.raises(InvalidError) as refused:
        await read_bytes(Request({**POST, "headers": []}, receive), within_s=0.01)

    assert refused.value.code == "body_too_slow"


@pytest.mark.parametrize("wide", ["[1,{}]", '{"a":[{}]}'])
async def test_a_body_of_too_many_values_is_not_looked_through(wide: str) -> None:
    few, many = [("[" + ",".join([wide] * n) + "]").encode() for n in (10_000, 20_000)]

    with pytest.raises(BodyError):
        await read_body(a_request(few), Small)
    with pytest.raises(InvalidError) as refused:
        await read_body(a_request(many), Small)

    assert refused.value.code == "body_too_large"


def test_of_many_places_that_do_not_fit_the_first_are_named() -> None:
    with pytest.raises(BodyError) as refused:
        parse(Small, {"name": "x", **{f"k{n}": 1 for n in range(1_000)}})

    assert [each.pointer for each in refused.value.errors] == [f"/k{n}" for n in range(100)]
    assert "and 999 more" in str(refused.value)


async def test_a_body_is_read_in_whatever_parts_it_comes() -> None:
    body, raw = await read_body(a_request(b'{"na', b'me": ', b'"x"}'), Small)

    assert (body.name, raw) == ("x", b'{"name": "x"}')


def test_a_body_that_came_with_its_request_is_read_without_a_wait_or_a_timer() -> None:
    reading = read_bytes(a_request(b"whole"))

    with pytest.raises(StopIteration) as read:  # No event loop runs in which one could be set.
        reading.send(None)

    assert read.value.value == b"whole"


async def test_a_body_that_comes_later_is_waited_for() -> None:
    waiting, came = [b"wh", b"ole"], asyncio.Event()

    async def receive() -> Message:
        await came.wait()
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    reading = asyncio.create_task(read_bytes(Request({**POST, "headers": []}, receive)))
    asyncio.get_running_loop().call_soon(came.set)

    assert await asyncio.wait_for(reading, 10) == b"whole"


@pytest.mark.parametrize("before", [0, 1])
async def test_a_client_that_left_has_no_body(before: int) -> None:
    part: Message = {"type": "http.request", "body": b"{", "more_body": True}
    waiting: list[Message] = [*[part] * before, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return waiting.pop(0)

    with pytest.raises(ClientDisconnect):
        await read_bytes(Request({**POST, "headers": []}, receive))


async def test_reading_stops_at_the_bound() -> None:
    with pytest.raises(InvalidError) as refused:
        await read_bytes(a_request(b"12345", b"67890", headers={}), limit=9)

    assert (refused.value.code, "9 bytes" in str(refused.value)) == ("body_too_large", True)


async def test_a_length_that_is_too_much_is_refused_before_anything_is_read() -> None:
    async def receive() -> Message:
        raise AssertionError("nothing is to be read")

    scope = {"type": "http", "method": "POST", "headers": [(b"content-length", b"10")]}
    with pytest.raises(InvalidError):
        await read_bytes(Request(scope, receive), limit=9)


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ({}, ["/name"]),
        ({"name": "toolong"}, ["/name"]),
        ({"name": 5}, ["/name"]),
        ({"name": "x", "count": "7"}, ["/count"]),
        ({"name": "x", "count": 7.5}, ["/count"]),
        ({"name": "x", "count": True}, ["/count"]),
        ({"name": "x", "words": ["a", 1]}, ["/words/1"]),
        ({"name": "x", "count": None, "more": 1}, ["/count", "/more"]),
    ],
)
def test_every_place_that_does_not_fit_is_named(value: dict[str, Any], pointers: list[str]) -> None:
    with pytest.raises(BodyError) as refused:
        parse(Small, value)

    assert [each.pointer for each in refused.value.errors] == pointers


def test_what_is_wrong_is_said_in_words_of_our_own() -> None:
    with pytest.raises(BodyError) as refused:
        parse(AgentSpec, {"name": "clerk", "model": "gpt-5", "limits": {"max_step": 3}})

    assert [(each.pointer, each.detail) for each in refused.value.errors] == [
        ("/model", "a model is <provider>/<model>, such as openai/gpt-5-mini"),
        ("/limits/max_step", "no such field"),
    ]


def test_a_whole_number_is_a_fraction_too() -> None:
    assert parse(Small, {"name": "x", "share": 1}).share == 1


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        ({"name": "x", "choice": ["a"]}, {"/choice", "/choice/0"}),
        ({"name": "x", "choice": {"str": 1}}, {"/choice", "/choice/str"}),
        ({"name": "x", "words": "w"}, {"/words"}),
        ({"name": "x", "labels": {"": "v"}}, {"/labels/"}),
    ],
)
def test_the_place_is_named_as_the_caller_wrote_it(
    value: dict[str, Any], pointers: set[str]
) -> None:
    with pytest.raises(BodyError) as refused:
        parse(Small, value)

    assert {each.pointer for each in refused.value.errors} <= pointers
