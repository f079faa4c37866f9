"""HTTP tools declared by hand: what is sent, and what the model is told of the answer."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from milepost.core.errors import ToolError, ToolValidationError
from milepost.core.json import Json
from milepost.tools.egress import Egress
from milepost.tools.http.declared import HttpToolSpec
from milepost.tools.references import Reference
from tests.stubs.web_server import WebServer, saying, web_server
from tests.tools.http.calling import SECRETS, an_http_tool, called, to_loopback

ORDER = {
    "type": "object",
    "properties": {
        "order_id": {"type": "integer"},
        "expand": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
    },
    "required": ["order_id"],
}


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    """A way out that may reach this machine."""
    async with to_loopback() as egress:
        yield egress


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    """A server that answers everything with the same JSON."""
    async with web_server(saying({"data": {"items": [1, 2]}})) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "effect", "times"),
    [
        ("PUT", None, 1),
        ("DELETE", None, 1),
        ("POST", None, 1),
        ("GET", "once", 1),
        ("PUT", "idempotent", 2),
        ("GET", None, 2),
    ],
)
async def test_what_may_be_done_once_is_sent_once_though_its_answer_breaks_off(
    egress: Egress, method: str, effect: str | None, times: int
) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with web_server(hang_up) as server:
        tool = an_http_tool(egress, method=method, url=f"{server.url}/orders/7", effect=effect)
        with pytest.raises(ToolError, match=r"gave no whole answer: .*; it may have acted"):
            await called(tool)

    assert len(server.asked) == times


async def test_arguments_take_their_places_in_path_query_and_headers(
    egress: Egress, server: WebServer
) -> None:
    tool = an_http_tool(
        egress,
        url=f"{server.url}/orders/{{order_id}}?fixed=1",
        query={"expand": "{expand}", "v": 2},
        headers={"X-Note": "says {note}"},
        parameters=ORDER,
    )

    result = await called(tool, {"order_id": "7", "expand": ["a&b", "ü"], "note": "hi"})

    asked = server.asked[0]
    assert result == {"data": {"items": [1, 2]}}
    assert asked.target == "/orders/7?fixed=1&expand=a%26b&expand=%C3%BC&v=2"
    assert (asked.method, asked.headers["x-note"]) == ("GET", "says hi")


async def test_what_is_not_given_is_not_sent(egress: Egress, server: WebServer) -> None:
    tool = an_http_tool(
        egress,
        url=f"{server.url}/orders/{{order_id}}",
        query={"expand": "{expand}"},
        parameters=ORDER,
    )

    await called(tool, {"order_id": 7})

    assert server.asked[0].target == "/orders/7"


@pytest.mark.parametrize(
    ("value", "sent"),
    [("a/b", "a%2Fb"), ("../admin", "..%2Fadmin"), ("a?b#c", "a%3Fb%23c"), ("%2e", "%252e")],
)
async def test_an_argument_cannot_leave_its_place_in_the_path(
    egress: Egress, server: WebServer, value: str, sent: str
) -> None:
    tool = an_http_tool(egress, url=f"{server.url}/files/{{name}}/raw")

    await called(tool, {"name": value})

    assert server.asked[0].target == f"/files/{sent}/raw"


@pytest.mark.parametrize("value", ["..", ".", ""])
async def test_an_argument_that_would_be_another_path_is_refused(
    egress: Egress, server: WebServer, value: str
) -> None:
    tool = an_http_tool(egress, url=f"{server.url}/files/{{name}}/raw")

    with pytest.raises(ToolError, match="names a part of the URL's path"):
        await called(tool, {"name": value})

    assert server.asked == []


async def test_a_header_cannot_be_split_by_an_argument(egress: Egress, server: WebServer) -> None:
    tool = an_http_tool(egress, url=server.url, headers={"X-Note": "{note}"})

    with pytest.raises(ToolError, match="control characters"):
        await called(tool, {"note": "a\r\nX-Evil: 1"})

    assert server.asked == []


async def test_a_body_is_made_of_the_arguments_that_are_used_nowhere_else(
    egress: Egress, server: WebServer
) -> None:
    tool = an_http_tool(
        egress, method="POST", url=f"{server.url}/orders/{{order_id}}", parameters=ORDER
    )

    await called(tool, {"order_id": 7, "expand": ["x"]})

    asked = server.asked[0]
    assert json.loads(asked.body) == {"expand": ["x"]}
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"page[size]": {"type": "integer"}, "$top": {}}},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "allOf": [{"properties": {"page[size]": {}, "$top": {}}}]},
    ],
)
async def test_arguments_without_a_place_are_sent_whatever_they_are_called_and_wherever_they_stand(
    egress: Egress, server: WebServer, parameters: Json
) -> None:
    for method in ("GET", "POST"):
        tool = an_http_tool(egress, method=method, url=server.url, parameters=parameters)

        await called(tool, {"page[size]": 5, "$top": "{page[size]}"})

    assert server.asked[0].target == "/?page%5Bsize%5D=5&$top=%7Bpage%5Bsize%5D%7D"
    assert json.loads(server.asked[1].body) == {"page[size]": 5, "$top": "{page[size]}"}


async def test_what_a_query_says_holds_unless_an_argument_says_otherwise(
    egress: Egress, server: WebServer
) -> None:
    tool = an_http_tool(egress, url=server.url, query={"note": "none", "v": 2}, parameters=ORDER)

    await called(tool, {"order_id": 7})
    await called(tool, {"order_id": 7, "note": "hi"})

    assert server.asked[0].target == "/?note=none&v=2&order_id=7"
    assert server.asked[1].target == "/?v=2&order_id=7&note=hi"


async def test_a_body_can_be_mapped(egress: Egress, server: WebServer) -> None:
    tool = an_http_tool(
        egress,
        method="PUT",
        url=server.url,
        parameters=ORDER,
        body={"order": {"id": "{order_id}", "text": "order {order_id}"}, "tags": "{expand}"},
    )

    await called(tool, {"order_id": 7})

    assert json.loads(server.asked[0].body) == {"order": {"id": 7, "text": "order 7"}}


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({}, "read"),
        ({"method": "HEAD"}, "read"),
        ({"method": "POST"}, "once"),
        ({"method": "DELETE"}, "once"),
        ({"method": "PUT", "effect": "idempotent"}, "idempotent"),
        ({"effect": "once"}, "once"),
    ],
)
async def test_what_only_reads_by_http_may_be_repeated_unless_said_otherwise(
    egress: Egress, changes: dict[str, Any], effect: str
) -> None:
    tool = an_http_tool(egress, url="https://example.com/", **changes)

    assert (tool.effect, tool.kind) == (effect, "http")


async def test_the_same_key_goes_with_every_attempt(egress: Egress, server: WebServer) -> None:
    tool = an_http_tool(egress, method="POST", url=server.url)

    await called(tool)

    assert server.asked[0].headers["idempotency-key"] == "key-1"


async def test_a_secret_is_sent_and_told_to_nobody(egress: Egress) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        headers = dict(request.headers)
        return web.json_response(headers, status=401 if "bad" in request.path else 200)

    async with web_server(echo) as server:
        headers = {"Authorization": "Bearer ${secret:TOKEN}"}
        good = an_http_tool(egress, url=f"{server.url}/good", headers=headers)
        bad = an_http_tool(egress, url=f"{server.url}/bad", headers=headers)
        result = await called(good)
        with pytest.raises(ToolError) as refused:
            await called(bad)

    assert server.asked[0].headers["authorization"] == f"Bearer {SECRETS['TOKEN']}"
    assert isinstance(result, dict)
    assert result["Authorization"] == "Bearer [secret]"
    assert SECRETS["TOKEN"] not in f"{refused.value} {good!r} {good.describe()}"


@pytest.mark.parametrize(
    "said", ["${secret:TOKEN}", "${secret:OTHER}", "${env:HOME}", "${x", "$", "{note}"]
)
async def test_an_argument_that_looks_like_a_reference_passes_as_plain_text(
    egress: Egress, server: WebServer, said: str
) -> None:
    tool = an_http_tool(
        egress,
        method="POST",
        url=f"{server.url}/{{note}}",
        query={"q": "{note}"},
        headers={
            "X-Note": "{note}",
            "X-Joined": "{note}{secret:TOKEN} ${secret:TOKEN}{note}",
        },
        parameters={"type": "object", "properties": {"note": {"type": "string"}}},
        body={"note": "{note}"},
    )

    await called(tool, {"note": said})

    asked = server.asked[0]
    assert asked.headers["x-note"] == said
    assert asked.headers["x-joined"] == f"{said}{{secret:TOKEN}} {SECRETS['TOKEN']}{said}"
    assert json.loads(asked.body) == {"note": said}
    assert SECRETS["TOKEN"] not in asked.target


async def test_an_argument_never_gets_into_a_secret_s_value(server: WebServer) -> None:
    async def braced(_: Reference) -> str:
        return "s{note}t"

    async with to_loopback() as egress:
        tool = HttpToolSpec(
            name="x",
            description="X.",
            url=server.url,
            query={"note": "{note}"},
            headers={"X-Key": "${secret:TOKEN}"},
        ).tool(egress, braced)
        await called(tool, {"note": "hi"})

    assert server.asked[0].headers["x-key"] == "s{note}t"


async def test_a_declaration_cannot_set_the_key_of_an_attempt() -> None:
    with pytest.raises(ValidationError, match="not for a declaration"):
        HttpToolSpec(
            name="x",
            description="X.",
            url="https://example.com",
            headers={"Idempotency-Key": "mine"},
        )


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("value", ["s3cr3t-t0ken", 's3"t/k\\n\u00fc'])
async def test_a_secret_that_json_writes_otherwise_is_hidden_too(
    egress: Egress, status: int, value: str
) -> None:
    escaped = "".join(f"\\u{ord(char):04x}" for char in value)

    async def answer(_: web.Request) -> web.StreamResponse:
        text = f'{{"{escaped}": ["is {escaped}", 1]}}'
        return web.Response(text=text, status=status, content_type="application/json")

    async def secret(_: Reference) -> str:
        return value

    async with web_server(answer) as server:
        tool = HttpToolSpec(
            name="x", description="X.", url=server.url, headers={"X-Key": "${secret:TOKEN}"}
        ).tool(egress, secret)
        try:
            told = json.dumps(await called(tool))
        except ToolError as error:
            told = "{" + str(error).partition("{")[2]

    assert json.loads(told) == {"[secret]": ["is [secret]", 1]}


async def test_a_secret_that_is_a_number_is_hidden_in_numbers(egress: Egress) -> None:
    async def secret(_: Reference) -> str:
        return "12345678"

    async with web_server(saying({"pin": 12345678, "is": True, "n": 12})) as server:
        tool = HttpToolSpec(
            name="x", description="X.", url=server.url, headers={"X-Key": "${secret:TOKEN}"}
        ).tool(egress, secret)
        result = await called(tool)

    assert result == {"pin": "[secret]", "is": True, "n": 12}


@pytest.mark.parametrize("status", [302, 304, 403])
async def test_a_secret_is_hidden_in_the_words_beside_a_status(egress: Egress, status: int) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, reason=f"No {SECRETS['TOKEN']}")

    async with web_server(answer) as server:
        headers = {"X-Key": "${secret:TOKEN}"}
        with pytest.raises(ToolError, match=rf"{status} No \[secret\]") as refused:
            await called(an_http_tool(egress, url=server.url, headers=headers))

    assert SECRETS["TOKEN"] not in str(refused.value)


async def test_a_secret_is_hidden_in_where_a_redirect_leads(egress: Egress) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(
            status=302, headers={"location": f"http://else.example/{SECRETS['TOKEN']}"}
        )

    async with web_server(answer) as server:
        headers = {"X-Key": "${secret:TOKEN}"}
        with pytest.raises(ToolError, match=r"else\.example/\[secret\], another host"):
            await called(an_http_tool(egress, url=server.url, headers=headers))


@pytest.mark.parametrize(
    ("pointer", "picked"),
    [("", {"data": {"items": [1, 2]}}), ("/data/items", [1, 2]), ("/data/items/1", 2)],
)
async def test_a_part_of_the_answer_can_be_the_result(
    egress: Egress, server: WebServer, pointer: str, picked: Json
) -> None:
    assert await called(an_http_tool(egress, url=server.url, result=pointer)) == picked


async def test_a_part_may_have_any_name_that_json_has(egress: Egress) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"two\nlines": 2})

    async with web_server(answer) as server:
        assert await called(an_http_tool(egress, url=server.url, result="/two\nlines")) == 2


async def test_an_answer_without_that_part_is_an_error(egress: Egress, server: WebServer) -> None:
    tool = an_http_tool(egress, url=server.url, result="/data/rows")

    with pytest.raises(ToolError, match="has nothing at /data/rows"):
        await called(tool)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (404, False), (409, False), (429, True), (500, True), (503, True)],
)
async def test_a_refusal_is_told_with_its_status_and_its_body(
    egress: Egress, status: int, retryable: bool
) -> None:
    async with web_server(saying({"why": "x" * 5_000}, status)) as server:
        with pytest.raises(ToolError, match=f"HTTP {status} .*xxx") as refused:
            await called(an_http_tool(egress, url=server.url))

    assert refused.value.retryable is retryable
    assert len(str(refused.value)) < 2_000


async def test_a_server_that_is_not_there_may_be_tried_again(egress: Egress) -> None:
    with pytest.raises(ToolError, match="cannot be reached") as refused:
        await called(an_http_tool(egress, url="http://127.0.0.1:1/"))

    assert refused.value.retryable


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (web.Response, None),
        (lambda: web.Response(text="plain"), "plain"),
        (
            lambda: web.Response(body=b"\x89PNG....", content_type="image/png"),
            "[image/png, 8 bytes: not shown]",
        ),
        (lambda: web.Response(body=b"\xff\xfe", content_type="text/plain"), "\ufffd\ufffd"),
        (lambda: web.Response(text="<p>hi</p>", content_type="text/html"), "<p>hi</p>"),
        (
            lambda: web.Response(
                body=gzip.compress(b'{"a": 1}'),
                content_type="application/vnd.api+json",
                headers={"content-encoding": "gzip"},
            ),
            {"a": 1},
        ),
    ],
)
async def test_answers_of_any_type_have_a_form(egress: Egress, answer: Any, told: Json) -> None:
    async def answering(_: web.Request) -> web.StreamResponse:
        response: web.StreamResponse = answer()
        return response

    async with web_server(answering) as server:
        assert await called(an_http_tool(egress, url=server.url)) == told


@pytest.mark.parametrize(
    ("content_type", "message"),
    [("application/json", "cannot be read"), ("text/html", "where JSON was due")],
)
async def test_a_wrong_content_type_is_told(
    egress: Egress, content_type: str, message: str
) -> None:
    async def answering(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>login</html>", content_type=content_type)

    async with web_server(answering) as server:
        with pytest.raises(ToolError, match=message):
            await called(an_http_tool(egress, url=server.url, result="/data"))


async def test_a_tool_has_a_time_of_its_own(egress: Egress) -> None:
    gate = asyncio.Event()

    async def answering(_: web.Request) -> web.StreamResponse:
        await gate.wait()
        return web.Response()

    async with web_server(answering) as server:
        with pytest.raises(ToolError, match=r"timed out|did not answer"):
            await called(an_http_tool(egress, url=server.url, timeout_s=0.1))
        gate.set()


async def test_a_redirect_to_where_clouds_keep_credentials_is_not_followed(
    egress: Egress,
) -> None:
    async def answering(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://169.254.169.254/latest/meta-data/")

    async with web_server(answering) as server:
        with pytest.raises(ToolError, match="another host: not followed"):
            await called(an_http_tool(egress, url=server.url))


async def test_without_parameters_each_place_is_a_string_that_must_be_given(
    egress: Egress,
) -> None:
    tool = an_http_tool(egress, url="https://example.com/{a}", query={"b": "{b}"})

    assert tool.schema.parameters["required"] == ["a", "b"]
    with pytest.raises(ToolValidationError, match="b"):
        tool.validate({"a": "x"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "https://{host}/x"}, "may not choose the host"),
        ({"url": "ftp://example.com"}, "http or https URL"),
        ({"url": "https://ann:pw@example.com"}, "credentials"),
        ({"url": "https://example.com/?k=${secret:K}"}, "secrets belong into headers"),
        ({"headers": {"Host": "x"}}, "not for a declaration"),
        ({"headers": {"A b": "x"}}, "no header's name"),
        ({"headers": {"A": "${vault:X}"}}, "neither"),
        ({"body": {"a": 1}}, "a GET has no body"),
        ({"parameters": ORDER, "query": {"x": "{unknown}"}}, "not among the properties"),
        ({"result": "data"}, "pattern"),
        ({"name": "no spaces"}, "pattern"),
        ({"timeout_s": 0}, "greater than 0"),
        ({"surprise": 1}, "Extra inputs"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    given = {"name": "x", "description": "X.", "url": "https://example.com", **changes}

    with pytest.raises(ValidationError, match=message):
        HttpToolSpec.model_validate(given)
