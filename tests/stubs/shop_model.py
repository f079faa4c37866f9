"""A Chat Completions server for the documentation: it asks for a tool where a rule says so.

The rule is found by the user's last words. Once the tool has answered, so does the model; where no
rule fits it answers at once. A tool that was not offered is not asked for.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from milepost.providers.wire_names import taken_name

RULES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (r"what does a (\w+) cost", "look_up", {"article": r"\1"}),
    (r"refund order (\w+)", "refund", {"order": r"\1"}),
    (r"reserve two (\w+)s\b", "reserve", {"article": r"\1", "count": 2}),
    (r"the calculator work out (.+)", taken_name("agent:calculator"), {"input": r"\1"}),
)


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer one request, as a stream."""
    asked = await request.json()
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    said = [turn for turn in asked["messages"] if turn["role"] in {"user", "tool"}]
    if said[-1]["role"] == "user" and (call := _call(said[-1]["content"], asked)):
        await _write(response, {"tool_calls": [call]}, "tool_calls")
    else:
        await _write(response, {"content": f"Here it is: {said[-1]['content']}"}, "stop")
    await response.write(b"data: [DONE]\n\n")
    return response


def _call(words: str, asked: dict[str, Any]) -> dict[str, Any] | None:
    offered = {tool["function"]["name"] for tool in asked.get("tools", ())}
    for pattern, name, arguments in RULES:
        matched = re.search(pattern, words, re.IGNORECASE)
        if matched and name in offered:
            given = {
                key: matched.expand(value) if isinstance(value, str) else value
                for key, value in arguments.items()
            }
            function = {"name": name, "arguments": json.dumps(given)}
            return {"index": 0, "id": "shop_1", "type": "function", "function": function}
    return None


async def _write(
    response: web.StreamResponse, delta: dict[str, Any], finish_reason: str | None
) -> None:
    chunk = {
        "id": "chatcmpl-shop",
        "object": "chat.completion.chunk",
        "model": "shop",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    }
    await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")


@asynccontextmanager
async def shop_model() -> AsyncIterator[str]:
    """Serve on a free port of loopback; give the address, without a scheme."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
