"""MCP servers, real ones: as processes over stdio, and over HTTP on a port of this machine."""

import asyncio
import random
import socket
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp.client._transport import TransportStreams
from pydantic import ValidationError
from structlog.testing import capture_logs

from milepost.core.errors import ConfigurationError, ToolError, ToolValidationError
from milepost.core.repetition import ToolEffect
from milepost.tools import Tool
from milepost.tools.egress import Guard
from milepost.tools.mcp import server as mcp_link
from milepost.tools.mcp import transport as mcp_way
from milepost.tools.mcp.declared import McpServerSpec
from milepost.tools.mcp.listing import ListedTool, effect_of, tools_of
from milepost.tools.mcp.opening import connect, open_server
from milepost.tools.mcp.server import McpServer
from milepost.tools.mcp.transport import ANSWER_BYTES_MAX, OnEnd, Transport, opener
from milepost.tools.references import Reference, reveal
from tests.stubs import mcp_server
from tests.stubs.mcp_over_http import Act, mcp_over_http, result, told
from tests.stubs.web_server import web_server
from tests.tools.http.calling import called

STUB = str(Path(mcp_server.__file__))
SILENT = str(Path(mcp_server.__file__).with_name("silent_mcp_server.py"))
PAGING = str(Path(mcp_server.__file__).with_name("paging_mcp_server.py"))
ENDLESS = str(Path(mcp_server.__file__).with_name("endless_mcp_server.py"))
PROMISING = str(Path(mcp_server.__file__).with_name("promising_mcp_server.py"))
TIMEOUT_S = 20


async def secrets(reference: Reference) -> str:
    """Return a secret that names itself."""
    return f"value of {reference.name}"


def a_server(**changes: Any) -> McpServerSpec:
    """Return the declaration of the stub."""
    given = {"name": "stub", "command": sys.executable, "args": [STUB], **changes}
    return McpServerSpec.model_validate(given)


@asynccontextmanager
async def opened(spec: McpServerSpec, *allowed: str) -> AsyncIterator[dict[str, Tool]]:
    """Yield the server's tools by name, and end the server."""
    async with AsyncExitStack() as held:
        tools = await open_server(spec, Guard(allowed), secrets, held)
        yield {tool.name: tool for tool in tools}


@asynccontextmanager
async def over_http() -> AsyncIterator[int]:
    """Run the stub over HTTP; yield its port once it listens."""
    port = _free_port()
    async with stub_at(port):
        yield port


@asynccontextmanager
async def stub_at(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the stub over HTTP; yield its process once it listens."""
    devnull = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, STUB, str(port), stdout=devnull, stderr=devnull
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not await _listens(port):  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _free_port() -> int:
    """Return a port that is no connection's meanwhile: below those that systems hand out.

    While the stub is down, another test's connection may else come from its port.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports were taken")


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_somebody_else_s_server_is_listed_and_called_over_stdio() -> None:
    spec = a_server(
        name="time", args=["-m", "mcp_server_time", "--local-timezone", "UTC"], trust_hints=True
    )

    async with opened(spec) as tools:
        now = tools["time__get_current_time"]
        answer = await called(now, {"timezone": "Asia/Tokyo"})
        with pytest.raises(ToolError, match=r"[Ii]nvalid timezone"):
            await called(now, {"timezone": "Mars/Olympus"})
        with pytest.raises(ToolValidationError, match="timezone"):
            await called(now, {})

    assert set(tools) == {"time__get_current_time", "time__convert_time"}
    assert now.kind == "mcp"
    assert "+09:00" in str(answer)


async def test_a_server_over_http_is_listed_and_called() -> None:
    async with over_http() as port:
        spec = a_server(
            command=None,
            args=[],
            url=f"http://127.0.0.1:{port}/mcp",
            headers={"Authorization": "Bearer ${secret:TOKEN}"},
        )
        async with opened(spec, "127.0.0.1") as tools:
            answer = await called(tools["stub__pid"])

    assert isinstance(answer, dict)
    assert isinstance(answer["result"], int)


async def test_a_server_over_http_that_is_inside_is_not_reached() -> None:
    spec = a_server(command=None, args=[], url="http://127.0.0.1:1/mcp")

    with pytest.raises(ToolError, match="no public address"):
        async with opened(spec):
            pass


async def test_a_process_gets_the_environment_that_is_given_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    spec = a_server(env={"LANG": "C.UTF-8", "TOKEN": "${env:TOKEN}"})

    async with opened(spec) as tools:
        answer = await called(tools["stub__environment"])

    assert isinstance(answer, dict)
    # Python itself adds what it takes the locale to be.
    assert set(answer) - {"LC_CTYPE"} == {"LANG", "TOKEN"}
    assert answer["TOKEN"] == "[secret]"


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_what_a_server_repeats_of_a_secret_is_hidden(way: str) -> None:
    async with _repeating(way) as server:
        told = await server.call("blab", {})
        with pytest.raises(ToolError) as refused:
            await server.call("blab", {"in_a": "error"})
        with pytest.raises(ToolError) as failed:
            await server.call("blab", {"in_a": "protocol error"})
        listed = await server.listing()

    said = [str(told), *_all_told(refused.value), *_all_told(failed.value), str(listed)]
    assert all("[secret]" in each for each in (said[0], str(refused.value), str(failed.value)))
    assert not any("value of TOKEN" in each for each in said)


@asynccontextmanager
async def _repeating(way: str) -> AsyncIterator[McpServer]:
    async with AsyncExitStack() as held:
        spec = a_server(env={"TOKEN": "${env:TOKEN}"})
        if way == "http":
            url = f"http://127.0.0.1:{await held.enter_async_context(over_http())}/mcp"
            headers = {"Authorization": "Bearer ${secret:TOKEN}"}
            spec = a_server(command=None, args=[], url=url, headers=headers)
        server = connect(spec, Guard(["127.0.0.1"]), secrets)
        held.push_async_callback(server.close)
        yield server


def _all_told(error: BaseException) -> list[str]:
    """Return what whoever reads the log may come to see of an error."""
    return ["".join(traceback.format_exception(error)), str(error)]


async def test_a_secret_that_is_another_by_now_is_sent_with_the_very_next_call() -> None:
    kept = {"TOKEN": "an old one"}
    sent: list[str] = []
    began, may_answer = asyncio.Event(), asyncio.Event()

    async def of_now(reference: Reference) -> str:
        if reference.name not in kept:
            raise ToolError("there is no such secret")
        return kept[reference.name]

    async def act(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        sent.append(authorization := request.headers["authorization"])
        if asked["params"]["arguments"]:
            began.set()
            await may_answer.wait()
        return told(asked, authorization)

    async with mcp_over_http(act) as by_hand, AsyncExitStack() as held:
        spec = by_hand_at(by_hand.url, headers={"Authorization": "Bearer ${secret:TOKEN}"})
        server = connect(spec, Guard(["127.0.0.1"]), of_now)
        held.push_async_callback(server.close)
        await server.call("act", {})
        under_way = asyncio.create_task(server.call("act", {"waits": True}))
        await began.wait()

        kept["TOKEN"] = "a new one"
        answered = await server.call("act", {})
        may_answer.set()
        of_before = await under_way
        del kept["TOKEN"]
        with pytest.raises(ToolError, match="there is no such secret"):
            await server.call("act", {})

    assert sent == ["Bearer an old one", "Bearer an old one", "Bearer a new one"]
    assert answered == of_before == "Bearer [secret]"


async def test_a_secret_of_several_lines_reaches_a_process_and_no_header() -> None:
    async def of_two_lines(_: Reference) -> str:
        return "-----BEGIN\nEND-----"

    spec = a_server(env={"TOKEN": "${env:TOKEN}"})
    in_environment = connect(spec, Guard(), of_two_lines)
    spec = a_server(
        command=None, args=[], url="https://example.com/mcp", headers={"A": "${secret:TOKEN}"}
    )
    in_header = connect(spec, Guard(), of_two_lines)

    assert await in_environment.call("blab", {}) == "you sent [secret]"
    with pytest.raises(ToolError, match="the value of A has control characters"):
        await in_header.listing()

    await in_environment.close()
    await in_header.close()


async def test_a_server_that_died_is_started_again_for_the_next_call() -> None:
    async with opened(a_server()) as tools:
        before = await called(tools["stub__pid"])
        with pytest.raises(ToolError, match="connection to MCP server stub was lost"):
            await called(tools["stub__die"])
        after = await called(tools["stub__pid"])

    assert before != after


async def test_a_server_over_http_that_comes_back_is_reached_again() -> None:
    port = _free_port()
    async with stub_at(port) as first, AsyncExitStack() as held:
        spec = a_server(command=None, args=[], url=f"http://127.0.0.1:{port}/mcp")
        server = connect(spec, Guard(["127.0.0.1"]), secrets)
        held.push_async_callback(server.close)
        before = await server.call("pid", {})
        with pytest.raises(ToolError, match="was lost"):
            await server.call("die", {})
        await first.wait()  # Who is dying still takes connections: 16 ms of it were seen.

        async with stub_at(port):
            after = await server.call("pid", {})

    assert before != after


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("its connection", "Server disconnected"),
        ("its events", "without a response"),
        ("its body", "peer closed connection"),
        ("its size", "answered more than"),
        ("its coding", "answered compressed"),
    ],
)
async def test_a_call_without_an_answer_leaves_others_theirs(broken: str, why: str) -> None:
    began, may_answer = asyncio.Event(), asyncio.Event()

    async def act(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        if asked["params"]["arguments"]:
            return await break_off(request, asked, broken)
        began.set()
        await may_answer.wait()
        return told(asked, "done")

    async with mcp_over_http(act) as by_hand, AsyncExitStack() as held:
        server = connect(by_hand_at(by_hand.url), Guard(["127.0.0.1"]), secrets)
        held.push_async_callback(server.close)
        other = asyncio.create_task(server.call("act", {}))
        await began.wait()

        with pytest.raises(ToolError, match=f"was lost: .*{why}.*; the call may have acted"):
            await server.call("act", {"breaks": "off"})
        may_answer.set()

        assert await other == "done"


async def break_off(request: web.Request, asked: dict[str, Any], broken: str) -> web.StreamResponse:
    """Give an answer that is none."""
    assert request.transport is not None
    match broken:
        case "its size":
            return told(asked, "x" * (ANSWER_BYTES_MAX + 1))
        case "its coding":
            return web.Response(body=b"?", headers={"content-encoding": "gzip"})
        case "its events":
            events = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await events.prepare(request)
            return events
        case "its body":
            half = web.StreamResponse(headers={"content-type": "application/json"})
            await half.prepare(request)
            await half.write(b'{"jsonrpc":')
            request.transport.abort()
            return half
        case _:
            request.transport.abort()
            return web.Response()


LONG_SECRET = "Zanzibar" + "0123456789" * 9 + "Pemba"


async def secretive(_: Reference) -> str:
    """Return a secret of which a message that is cut shows a part."""
    return LONG_SECRET


async def repeat_as_no_json(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    """Answer with the secret alone."""
    return web.Response(text=request.headers["token"], content_type="application/json")


async def repeat_as_no_event(request: web.Request, _: dict[str, Any]) -> web.StreamResponse:
    """Tell the secret alone."""
    told = f"data: {request.headers['token']}\n\n"
    return web.Response(text=told, content_type="text/event-stream")


async def repeat_as_no_result(request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
    """Answer with the secret where there should be something else."""
    return result(asked, {"content": request.headers["token"], "capabilities": 1, "tools": 1})


@pytest.mark.parametrize("repeat", [repeat_as_no_json, repeat_as_no_event, repeat_as_no_result])
async def test_no_part_of_a_secret_is_told_of_an_answer_that_cannot_be_read(repeat: Act) -> None:
    """Whoever cannot read an answer quotes it, and cuts the quotation anywhere."""

    async def open_so(request: web.Request) -> web.StreamResponse:
        return await repeat(request, await request.json())

    async with web_server(open_so) as never_open, mcp_over_http(repeat) as by_hand:
        for url in (never_open.url, by_hand.url):
            spec = by_hand_at(url, headers={"token": "${secret:LONG}"})
            server = connect(spec, Guard(["127.0.0.1"]), secretive)
            with pytest.raises(ToolError, match="answered what cannot be read") as refused:
                await server.call("act", {})
            await server.close()

            shown = "".join(traceback.format_exception(refused.value))
            assert "Zanzibar" not in shown
            assert "Pemba" not in shown


def by_hand_at(url: str, **changes: Any) -> McpServerSpec:
    """Return the declaration of a server that was made by hand."""
    return a_server(command=None, args=[], url=f"{url}/mcp", **changes)


async def test_a_server_that_ends_its_events_at_once_is_not_asked_for_them_in_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_way, "EVENTS_S", 3_600)

    async def act(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        return told(asked, "done")

    at_once = b"retry: 0\n\n"
    async with mcp_over_http(act, events=at_once) as by_hand, AsyncExitStack() as held:
        server = connect(by_hand_at(by_hand.url), Guard(["127.0.0.1"]), secrets)
        held.push_async_callback(server.close)
        for _ in range(50):
            assert await server.call("act", {}) == "done"

    assert [asked.method for asked in by_hand.asked].count("GET") == 1


async def test_a_call_under_way_is_answered_though_its_server_is_retired() -> None:
    began, may_answer = asyncio.Event(), asyncio.Event()

    async def act(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        began.set()
        await may_answer.wait()
        return told(asked, "done")

    async with mcp_over_http(act) as by_hand, AsyncExitStack() as held:
        server = connect(by_hand_at(by_hand.url), Guard(["127.0.0.1"]), secrets)
        held.push_async_callback(server.close)
        call = asyncio.create_task(server.call("act", {}))
        await began.wait()

        server.retire()
        may_answer.set()

        assert await call == "done"
        assert await server.call("act", {}) == "done"
        assert sum(b'"initialize"' in asked.body for asked in by_hand.asked) == 2


async def test_a_server_that_does_not_start_is_left_alone_for_a_while() -> None:
    server = connect(a_server(command="/bin/false", args=[]), Guard(), secrets)

    with pytest.raises(ToolError, match="cannot be reached") as first:
        await server.listing()
    with pytest.raises(ToolError, match="it is tried again in") as second:
        await server.listing()
    await server.close()

    assert first.value.retryable
    assert second.value.retryable


async def test_a_server_that_is_down_for_days_is_still_said_to_be_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_link, "BACKOFF_S_MAX", 0)

    def down(environment: Mapping[str, str], on_end: OnEnd) -> Transport:
        raise ToolError("it is down", retryable=True)

    server = McpServer("stub", down, partial(reveal, {}, secrets))

    for _ in range(1_100):
        with pytest.raises(ToolError, match="MCP server stub cannot be reached: it is down"):
            await server.listing()


async def test_a_server_that_never_ends_a_line_is_hung_up_on() -> None:
    """Else it would take all memory, and all other runs' time with searching for the end."""
    async with opened(a_server(args=[ENDLESS, "tools/call"])) as tools:
        with pytest.raises(ToolError, match=r"lost: it said more than 16777216 bytes in one line"):
            await called(tools["stub__talk"])

    with pytest.raises(ToolError, match="more than 16777216 bytes in one line"):
        async with opened(a_server(args=[ENDLESS, "tools/list"])):
            pass


async def test_what_a_server_prints_among_its_messages_is_told_now_and_then_and_not_quoted() -> (
    None
):
    with capture_logs() as logs:
        async with opened(a_server(args=[ENDLESS, "--print", "tok_secret", "250"])) as tools:
            assert set(tools) == {"stub__talk"}

    assert {line["event"] for line in logs} == {"an MCP server wrote what is no message"}
    assert [line["lines"] for line in logs] == [1, 10, 100]
    assert "tok_secret" not in str(logs)


async def test_a_server_that_does_not_tell_its_tools_is_given_up() -> None:
    way, nothing = opener(a_server(args=[SILENT]), Guard()), partial(reveal, {}, secrets)
    server = McpServer("stub", way, nothing, listing_s=0.2)

    with pytest.raises(ToolError, match=r"stub did not tell its tools within 0.2 s") as late:
        await server.listing()
    await server.close()

    assert late.value.retryable


async def test_a_long_list_of_tools_is_read_to_its_end() -> None:
    spec = a_server(args=[PAGING], env={"PAGES": "80", "SIZE": "1"}, tools=["tool_79"])

    async with opened(spec) as tools:
        assert await called(tools["stub__tool_79"]) == "tool_79"


async def test_a_server_whose_list_of_tools_has_no_end_offers_none() -> None:
    spec = a_server(args=[PAGING], env={"PAGES": "0", "SIZE": "999"}, tools=["tool_79"])

    with pytest.raises(ToolError, match="more than 10,000 tools"):
        async with opened(spec):
            pass


async def test_a_server_that_does_not_hear_of_the_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a process that ends would wait for it, the leases of its runs renewed all the while."""
    monkeypatch.setattr(mcp_link, "CLOSE_S", 0.2)
    opened_elsewhere = opener(a_server(), Guard())({}, lambda _: None)

    async with opened_elsewhere as streams:  # So that who gives up does not leave a process behind.

        @asynccontextmanager
        async def without_end(
            revealed: Mapping[str, str], on_end: OnEnd
        ) -> AsyncGenerator[TransportStreams, None]:
            yield streams
            await asyncio.Event().wait()

        stub = McpServer("stub", without_end, partial(reveal, {}, secrets))
        await stub.listing()

        async with asyncio.timeout(TIMEOUT_S):
            await stub.close()


async def test_a_command_that_is_not_there_is_named() -> None:
    server = connect(a_server(command="no-such-command"), Guard(), secrets)

    with pytest.raises(ToolError, match="no command 'no-such-command'"):
        await server.listing()

    await server.close()


async def test_a_call_that_is_given_up_is_cancelled_at_the_server(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()

    async with opened(a_server(timeout_s=1)) as tools:
        with pytest.raises(ToolError, match="timed out after 1 s"):
            await called(tools["stub__wait_here"], {"path": str(notes)})
        still_there = await called(tools["stub__pid"])
        async with asyncio.timeout(TIMEOUT_S):
            while "over" not in notes.read_text():  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.01)

    assert still_there
    assert notes.read_text() == "began\nover\n"


async def test_a_server_that_is_deaf_to_a_cancellation_is_called_again_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mcp_way, "NOTICE_S", 0.1)
    began = asyncio.Event()

    async def act(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        if asked["params"]["arguments"]:
            began.set()
            await asyncio.Event().wait()
        return told(asked, "done")

    async with (
        mcp_over_http(act, deaf_to_cancellation=True) as by_hand,
        AsyncExitStack() as held,
    ):
        server = connect(by_hand_at(by_hand.url), Guard(["127.0.0.1"]), secrets)
        held.push_async_callback(server.close)
        given_up = asyncio.create_task(server.call("act", {"waits": True}))
        await began.wait()
        given_up.cancel()

        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.wait({given_up})
            again = await server.call("act", {})

    assert again == "done"
    assert given_up.cancelled()


async def test_calls_at_once_share_one_process() -> None:
    async with opened(a_server()) as tools:
        answers = await asyncio.gather(*(called(tools["stub__pid"]) for _ in range(5)))

    assert len({str(answer) for answer in answers}) == 1


async def test_errors_long_texts_and_pictures_have_a_form() -> None:
    async with opened(a_server()) as tools:
        with pytest.raises(ToolError, match="not today"):
            await called(tools["stub__refuse"], {"why": "not today"})
        long = await called(tools["stub__huge"])
        picture = await called(tools["stub__picture"])

    assert isinstance(long, str)
    assert len(long) < 110_000
    assert "cut" in long[-100:]
    assert picture == "look:\n[image/png, 8 bytes: not shown]"


@pytest.mark.parametrize("is_listed", [True, False])
async def test_what_came_of_a_call_counts_whatever_its_server_had_promised(is_listed: bool) -> None:
    """The promise is a schema of the server's own, whose patterns could take for ever to match."""
    spec = a_server(args=[PROMISING], env={"TOKEN": "${env:TOKEN}"})
    server = connect(spec, Guard(), secrets)

    async with AsyncExitStack() as held:
        held.push_async_callback(server.close)
        if is_listed:
            await server.listing()
        said = await server.call("say", {})
        sung = await server.call("sing", {})

    assert said == {"said": "[secret]"}
    assert sung == "la"


async def test_tools_are_chosen_and_gated_by_the_server_s_names() -> None:
    spec = a_server(tools=["p*", "die"], requires_approval=["die"])

    async with opened(spec) as tools:
        gated = {name: tool.requires_approval for name, tool in tools.items()}

    assert gated == {"stub__pid": False, "stub__picture": False, "stub__die": True}


async def test_a_gate_that_fits_no_tool_of_the_server_is_warned_of() -> None:
    with capture_logs() as logged:
        async with opened(a_server(requires_approval=["die", "dye"])):
            pass

    assert [line["pattern"] for line in logged if "pattern" in line] == ["dye"]


@pytest.mark.parametrize(
    ("declared", "trusted", "hints", "effect"),
    [
        ("once", False, {"read_only": True}, "once"),
        ("once", False, {"idempotent": True}, "once"),
        ("once", True, {"read_only": True}, "read"),
        ("once", True, {"read_only": False, "idempotent": True}, "idempotent"),
        ("once", True, {"idempotent": True}, "idempotent"),
        ("once", True, {}, "once"),
        ("read", False, {}, "read"),
        ("read", False, {"read_only": False}, "once"),
        ("read", False, {"read_only": False, "idempotent": True}, "idempotent"),
        ("read", False, {"destructive": True}, "once"),
        ("read", True, {"read_only": False}, "once"),
        ("idempotent", False, {"read_only": True}, "idempotent"),
    ],
)
def test_hints_make_an_effect_stricter_and_milder_only_if_they_are_trusted(
    declared: ToolEffect, trusted: bool, hints: dict[str, bool], effect: ToolEffect
) -> None:
    spec = a_server(effect=declared, trust_hints=trusted)

    assert effect_of(spec, ListedTool("x", "", {}, **hints)) == effect


class Nobody:
    """A server that is never called."""

    async def call(self, tool: str, arguments: object) -> None:
        """Answer nothing."""


def test_a_name_that_no_model_could_call_is_refused() -> None:
    listed = ListedTool("x" * 60, "X.", {"type": "object"})

    with pytest.raises(ToolValidationError, match="its name must be"):
        tools_of(a_server(), [listed], Nobody())


def test_schemas_that_are_not_judged_whole_are_judged_as_far_as_they_are() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"type": "integer", "not": {"const": 3}}},
        "if": {"required": ["a"]},
        "patternProperties": {"^x": {}},
    }
    (tool,) = tools_of(a_server(), [ListedTool("t", "T.", schema)], Nobody())

    assert tool.validate({"a": 3}) == {"a": 3}
    with pytest.raises(ToolValidationError):
        tool.validate({"a": "three"})


A = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
B = {"type": "object", "properties": {"b": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "fitting"),
    [
        ({"$ref": "#/definitions/A", "definitions": {"A": A}}, {"a": 3}),
        ({"allOf": [A, {"allOf": [B]}]}, {"a": 3, "b": "x"}),
        ({"anyOf": [A, B], "properties": {"c": {"type": "boolean"}}}, {"a": 3, "c": True}),
        ({"oneOf": [A, {**B, "required": ["b"]}]}, {"a": 3}),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"a": 3}),
        ({"required": ["a"]}, {"a": 3}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 3}),
    ],
)
def test_what_a_schema_has_named_elsewhere_is_taken(
    schema: dict[str, Any], fitting: dict[str, Any]
) -> None:
    (tool,) = tools_of(a_server(), [ListedTool("t", "T.", schema)], Nobody())

    assert tool.validate(fitting) == fitting


def test_a_schema_beside_that_names_nothing_more_opens_none() -> None:
    schema = {**B, "anyOf": [{"required": ["b"]}, {"properties": {"b": {"type": "string"}}}]}
    (tool,) = tools_of(a_server(), [ListedTool("t", "T.", schema)], Nobody())

    with pytest.raises(ToolValidationError, match="unexpected parameter 'c'"):
        tool.validate({"b": "x", "c": 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": None, "args": []}, "either a command or a url"),
        ({"url": "https://example.com/mcp"}, "either a command or a url"),
        ({"command": None, "args": ["x"], "url": "https://example.com"}, "are for a server with"),
        ({"headers": {"A": "b"}}, "headers are for"),
        ({"env": {"A=B": "c"}}, "cannot be in an environment"),
        ({"env": {"A": "${nope}"}}, "neither"),
        ({"name": "two__parts"}, "pattern"),
        ({"trust_hint": True}, "Extra inputs"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        a_server(**changes)


def test_without_the_sdk_a_server_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("milepost.tools.mcp.")]:
        if name.endswith((".server", ".transport", ".answers")):
            monkeypatch.delitem(sys.modules, name)
    for name in ("mcp", "mcp_types"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ConfigurationError, match=r"pip install 'milepost\[mcp\]'"):
        connect(a_server(), Guard(), secrets)


async def test_the_sdk_is_not_imported_before_a_server_is_declared() -> None:
    said = "import sys, milepost.wiring; print([m for m in sys.modules if m.startswith('mcp')])"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", said, stdout=asyncio.subprocess.PIPE
    )

    printed, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)

    assert printed.decode().strip() == "[]"
