"""The ceiling: the same agent loop, streamed over SSE, and nothing else.

No storage, no queue, no worker, no spans, no validation: what is left is one HTTP request in, two
model calls out, and the bytes in between. `python -m tests.benchmarks.bare_loop --model URL` prints
its port.
"""

import argparse
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvicorn
import uvloop
from starlette.types import Message, Receive, Scope, Send

STEPS_MAX = 10
MODEL_CONNECTIONS_MAX = 1_000

_JSON = {"content-type": "application/json"}
START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
    ],
}
_SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }
]


async def _add(a: int, b: int) -> int:
    return a + b


TOOLS: dict[str, Callable[..., Awaitable[int]]] = {"add": _add}


class BareLoop:
    """An ASGI application: each request is one run."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str) -> None:
        self._http = http
        self._url = f"{base_url}/chat/completions"

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Run to the end, streaming."""
        asked = orjson.loads(await whole(receive))
        messages: list[dict[str, Any]] = [{"role": "user", "content": asked["input"]}]
        frames = Frames()
        await send(START)
        await send(body(frames.event("run.started", {})))
        for step in range(STEPS_MAX):
            text, calls = await self._ask(messages, frames, step, send)
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            if not calls:
                break
            for call in calls:
                result = await TOOLS[call["function"]["name"]](
                    **orjson.loads(call["function"]["arguments"])
                )
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                await send(body(frames.event("tool_call.completed", {"result": result})))
        await send(body(frames.event("run.completed", {}), more=False))

    async def _ask(
        self, messages: list[dict[str, Any]], frames: "Frames", step: int, send: Send
    ) -> tuple[str, list[dict[str, Any]]]:
        """Call the model; send its text as it comes, and return it with the calls."""
        request = {"model": "stub", "messages": messages, "tools": _SCHEMAS, "stream": True}
        message_id, text, rest = f"msg_{step}", "", b""
        calls: list[dict[str, Any]] = []
        data = orjson.dumps(request)
        async with self._http.post(self._url, data=data, headers=_JSON) as response:
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                parts = []
                for line in lines:
                    if not line.startswith(b"data: {"):
                        continue
                    choices = orjson.loads(line[6:])["choices"]
                    delta = choices[0]["delta"] if choices else {}
                    if content := delta.get("content"):
                        text += content
                        parts.append(frames.delta(message_id, content))
                    for call in delta.get("tool_calls", ()):
                        _join(calls, call)
                if parts:
                    await send(body(b"".join(parts)))
        told = {"message_id": message_id, "content": text, "tool_calls": calls}
        await send(body(frames.event("message.completed", told)))
        return text, calls


class Frames:
    """Numbers a run's events."""

    def __init__(self) -> None:
        self._seq = 0

    def event(self, kind: str, told: dict[str, Any]) -> bytes:
        """Return the next one."""
        self._seq += 1
        data = orjson.dumps({"type": kind, "seq": self._seq, "data": told})
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self._seq, kind.encode(), data)

    def delta(self, message_id: str, text: str) -> bytes:
        """Return a piece of a message's text."""
        told = {"message_id": message_id, "text": text}
        data = orjson.dumps({"type": "message.delta", "data": told})
        return b"event: message.delta\ndata: %b\n\n" % data


def _join(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    if piece["index"] == len(calls):
        calls.append(piece)
    else:
        calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]


async def whole(receive: Receive) -> bytes:
    """Return a request's body."""
    said, more = b"", True
    while more:
        message = await receive()
        said += message.get("body", b"")
        more = message.get("more_body", False)
    return said


def body(piece: bytes, *, more: bool = True) -> Message:
    """Return a piece of a response."""
    return {"type": "http.response.body", "body": piece, "more_body": more}


async def serve(loop: Callable[[aiohttp.ClientSession], BareLoop]) -> None:
    """Serve this loop on a port of the machine's choice, which is printed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    connector = aiohttp.TCPConnector(limit=MODEL_CONNECTIONS_MAX, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector) as http:
        config = uvicorn.Config(loop(http), lifespan="off", log_config=None, access_log=False)
        print(listener.getsockname()[1], flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


def _main() -> None:
    parser = argparse.ArgumentParser(description="The agent loop without anything around it")
    parser.add_argument("--model", required=True, help="where the model is: http://…/v1")
    model_url = parser.parse_args().model
    uvloop.run(serve(lambda http: BareLoop(http, model_url)))


if __name__ == "__main__":
    _main()
