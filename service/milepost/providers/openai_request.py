"""A `ModelRequest` as the body of a Chat Completions call."""

from collections.abc import Iterable
from typing import Literal

import orjson

from milepost.core.json import Json
from milepost.core.json_schema import with_items
from milepost.core.messages import Message, ToolCall
from milepost.core.model import ModelRequest, ToolSchema

TokensField = Literal["max_tokens", "max_completion_tokens"]


def encode(request: ModelRequest, tokens_field: TokensField) -> bytes:
    """Return the JSON body that asks for a streamed reply to `request`."""
    body: dict[str, object] = {
        "model": request.model,
        "messages": _messages(request.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.tokens_max is not None:
        body[tokens_field] = request.tokens_max
    return orjson.dumps(body)


def _messages(messages: Iterable[Message]) -> list[dict[str, Json]]:
    ids = _WireIds()
    encoded: list[dict[str, Json]] = []
    for message in messages:
        match message.role:
            case "assistant":
                encoded.append(_assistant(message, ids))
            case "tool":
                call_id = ids.of_result(message.call_id or "")
                encoded.append(
                    {"role": "tool", "tool_call_id": call_id, "content": message.content}
                )
            case "system" | "user":
                encoded.append({"role": message.role, "content": message.content})
    return encoded


def _assistant(message: Message, ids: "_WireIds") -> dict[str, Json]:
    if not message.calls:
        return {"role": "assistant", "content": message.content}
    return {
        "role": "assistant",
        "content": message.content or None,
        "tool_calls": [_call(call, ids.of_call(call)) for call in message.calls],
    }


def _call(call: ToolCall, wire_id: str) -> Json:
    # What the model wrote malformed goes back as an empty object: servers that put arguments
    # through a template refuse the whole request otherwise. The call's result says what was wrong.
    arguments = "{}" if call.malformed is not None else orjson.dumps(call.arguments).decode()
    return {
        "id": wire_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _tool(tool: ToolSchema) -> dict[str, object]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            # OpenAI refuses an array that says nothing of its items.
            "parameters": with_items(dict(tool.parameters)),
        },
    }


class _WireIds:
    """Gives every call of a conversation an id of its own, and its result the same.

    Vendors insist on their own ids where they gave some, but small models repeat theirs, and ours
    are unique in a run only, while a conversation may span several. The same conversation gets
    the same ids each time, and a longer one begins with those of a shorter: vendors cache prefixes.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._answered_by: dict[str, str] = {}

    def of_call(self, call: ToolCall) -> str:
        wire_id = self._unused(call)
        self._used.add(wire_id)
        self._answered_by[call.id] = wire_id
        return wire_id

    def of_result(self, call_id: str) -> str:
        """A result follows its call, so the latest call of that id is the one it answers."""
        return self._answered_by.get(call_id, call_id)

    def _unused(self, call: ToolCall) -> str:
        for wanted in (call.provider_id, call.id):
            if wanted and wanted not in self._used:
                return wanted
        # Each used id rules out one ordinal at most.
        ordinals = range(2, len(self._used) + 3)
        return next(wire_id for n in ordinals if (wire_id := f"{call.id}_{n}") not in self._used)
