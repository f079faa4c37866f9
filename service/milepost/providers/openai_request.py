"""A `ModelRequest` as the body of a Chat Completions call."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import orjson

from milepost.core.json import Json
from milepost.core.json_schema import with_items
from milepost.core.messages import Message, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.encoded_once import EncodedOnce
from milepost.providers.strict_schema import strict_schema
from milepost.providers.wire_ids import WireIds
from milepost.providers.wire_names import taken_name

SEAL = "openai"
"""The wire's name on what it wants back."""

TokensField = Literal["max_tokens", "max_completion_tokens"]
ReasoningField = Literal["reasoning_content", "reasoning"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What servers call differently: the bound on a reply's tokens, and reasoning sent back.

    Without a `reasoning_field` no reasoning goes back, which most servers would refuse.
    """

    tokens_field: TokensField
    reasoning_field: ReasoningField | None = None


class ChatEncoder:
    """Writes the bodies of one endpoint's calls."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._tools = EncodedOnce(_tool)
        self._formats = EncodedOnce(_response_format)

    def encode(self, request: ModelRequest) -> bytes:
        """Return the JSON body that asks for a streamed reply to `request`."""
        body: dict[str, object] = {
            "model": request.model,
            "messages": self._messages(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [self._tools.of(tool) for tool in request.tools]
            _set(body, "parallel_tool_calls", request.parallel_tools)
        _set(body, "temperature", request.temperature)
        _set(body, "top_p", request.top_p)
        _set(body, self._dialect.tokens_field, request.tokens_max)
        _set(body, "stop", request.stop or None)
        _set(body, "reasoning_effort", request.reasoning_effort)
        if request.response_format is not None:
            body["response_format"] = self._formats.of(request.response_format)
        return orjson.dumps(body)

    def _messages(self, messages: Iterable[Message]) -> list[dict[str, Json]]:
        ids = WireIds()
        encoded: list[dict[str, Json]] = []
        for message in messages:
            match message.role:
                case "assistant":
                    encoded.append(self._assistant(message, ids))
                case "tool":
                    call_id = ids.of_result(message.call_id or "")
                    encoded.append(
                        {"role": "tool", "tool_call_id": call_id, "content": message.content}
                    )
                case "system" | "user":
                    encoded.append({"role": message.role, "content": _content(message)})
        return encoded

    def _assistant(self, message: Message, ids: WireIds) -> dict[str, Json]:
        if not message.calls:
            return {"role": "assistant", "content": message.content}
        encoded: dict[str, Json] = {
            "role": "assistant",
            "content": message.content or None,
            "tool_calls": [_call(call, ids.of_call(call)) for call in message.calls],
        }
        if self._dialect.reasoning_field is not None:
            # Who wants it back insists on it beside every call, even where there was no thought.
            encoded[self._dialect.reasoning_field] = _reasoning(message)
        return encoded


def _set(body: dict[str, object], name: str, value: object) -> None:
    """What nobody chose is the server's to choose."""
    if value is not None:
        body[name] = value


def _content(message: Message) -> Json:
    if not message.images:
        return message.content
    parts: list[Json] = [
        {"type": "image_url", "image_url": {"url": image.url}} for image in message.images
    ]
    if message.content:
        parts.append({"type": "text", "text": message.content})
    return parts


def _reasoning(message: Message) -> str:
    said = (sealed.item.get("reasoning") for sealed in message.sealed if sealed.wire == SEAL)
    return "".join(text for text in said if isinstance(text, str))


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


def _response_format(wanted: ResponseFormat) -> dict[str, object]:
    """Hold the answer to the schema where the vendor can, and let it guide the model elsewhere."""
    strict = strict_schema(wanted.schema)
    return {
        "type": "json_schema",
        "json_schema": {
            "name": taken_name(wanted.name),
            "schema": dict(wanted.schema) if strict is None else strict,
            "strict": strict is not None,
        },
    }
