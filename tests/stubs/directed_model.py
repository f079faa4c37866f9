"""A Chat Completions server whose answers the test directs by what the user says.

Each line `call NAME {json}` of the last user message is asked for as a tool call; once there are
results, or if there are no such lines, the answer is `said: ` and either the results or the user's
own text, word by word. Who asks for a form is answered with `structured`. A line `slowly N` puts a
pause of N milliseconds between words, and behind a line `on and on` there are words until `enough`
is set.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

WORDS_MAX = 10_000


class DirectedModel:
    """What the server was asked, and a gate that can hold answers back."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.enough = asyncio.Event()
        self.enough.set()
        self.base_url = ""
        self.structured = "{}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, as a stream."""
        asked = await request.json()
        self.requests.append(asked)
        await self.gate.wait()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        with suppress(ConnectionResetError):  # Whoever asked was killed meanwhile.
            await response.prepare(request)
            await self._answer(response, asked)
        return response

    async def _answer(self, response: web.StreamResponse, asked: dict[str, Any]) -> None:
        last_user = max(
            index for index, turn in enumerate(asked["messages"]) if turn["role"] == "user"
        )
        lines = str(asked["messages"][last_user]["content"]).splitlines()
        results = [t["content"] for t in asked["messages"][last_user:] if t["role"] == "tool"]
        calls = [line.split(" ", 2)[1:] for line in lines if line.startswith("call ")]
        pauses = [int(line.split()[1]) for line in lines if line.startswith("slowly ")]
        if "response_format" in asked:
            await self._say(response, self.structured, 0)
            await _write(response, {}, "stop")
        elif calls and not results:
            await self._call(response, calls)
        else:
            text = "said: " + (" ".join(results) or " ".join(lines))
            pause_s = pauses[0] / 1000 if pauses else 0.0
            await self._say(response, text, pause_s)
            if "on and on" in lines:
                await self._go_on(response, pause_s)
            await _write(response, {}, "stop")
        await response.write(b"data: [DONE]\n\n")

    async def _call(self, response: web.StreamResponse, calls: list[list[str]]) -> None:
        pieces = [
            {
                "index": index,
                "id": f"vendor_{index}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(calls)
        ]
        await _write(response, {"tool_calls": pieces}, None)
        await _write(response, {}, "tool_calls")

    async def _say(self, response: web.StreamResponse, text: str, pause_s: float) -> None:
        for word in text.split(" "):
            await _write(response, {"content": word + " "}, None)
            await asyncio.sleep(pause_s)

    async def _go_on(self, response: web.StreamResponse, pause_s: float) -> None:
        for number in range(WORDS_MAX):
            if self.enough.is_set():
                return
            await _write(response, {"content": f"{number} "}, None)
            await asyncio.sleep(pause_s)


async def _write(
    response: web.StreamResponse, delta: dict[str, Any], finish_reason: str | None
) -> None:
    chunk: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "directed",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    if finish_reason:
        chunk["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


@asynccontextmanager
async def directed_model() -> AsyncIterator[DirectedModel]:
    """Serve on a free port of loopback."""
    model = DirectedModel()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    model.base_url = f"http://127.0.0.1:{port}/v1"
    try:
        yield model
    finally:
        model.gate.set()
        model.enough.set()
        await runner.cleanup()
