"""A `ModelRequest` as the body of a call of OpenAI's Responses API."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import orjson

from milepost.core.errors import ProviderError
from milepost.core.json import Json
from milepost.core.json_schema import with_items
from milepost.core.messages import Message, Role, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.encoded_once import EncodedOnce
from milepost.providers.instructions import parted
from milepost.providers.responses_outline import Text, Thought, unfolded
from milepost.providers.strict_schema import is_strict, strict_schema
from milepost.providers.wire_ids import WireIds
from milepost.providers.wire_names import taken_name

ReasoningSummary = Literal["auto", "concise", "detailed"]

# They have no reasoning that could be encrypted, and OpenAI refuses to be asked for it.
_WITHOUT_REASONING = re.compile(r"(?:^|[/:])(?:gpt-3\.5|gpt-4|chatgpt-|gpt-5-chat)")


class ResponsesEncoder:
    """Writes the bodies of one endpoint's calls; `seal` is its name on what it wants back."""

    def __init__(self, seal: str, reasoning_summary: ReasoningSummary | None = None) -> None:
        self._seal = seal
        self._reasoning_summary = reasoning_summary
        self._tools = EncodedOnce(_tool)
        self._formats = EncodedOnce(_format)

    def encode(self, request: ModelRequest) -> bytes:
        """Return the JSON body that asks for a streamed reply to `request`.

        Raises `ProviderError` for stop sequences, which this wire does not have.
        """
        _refuse_stop(request)
        instructions, said = parted(request.messages)
        body: dict[str, object] = {
            "model": request.model,
            "input": [*self._items(said)],
            "stream": True,
            # We keep the conversation, and send all of it each time.
            "store": False,
        }
        if not _WITHOUT_REASONING.search(request.model):
            body["include"] = ["reasoning.encrypted_content"]
        if instructions:
            body["instructions"] = "\n\n".join(instructions)
        if request.tools:
            body["tools"] = [self._tools.of(tool) for tool in request.tools]
        body |= self._chosen(request)
        return orjson.dumps(body)

    def _chosen(self, request: ModelRequest) -> dict[str, object]:
        """Return what somebody chose; the rest is the vendor's to choose."""
        reasoning = {"effort": request.reasoning_effort, "summary": self._reasoning_summary}
        wanted = request.response_format
        chosen = {
            "parallel_tool_calls": request.parallel_tools if request.tools else None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_output_tokens": request.tokens_max,
            "reasoning": _given(reasoning) or None,
            "text": None if wanted is None else {"format": self._formats.of(wanted)},
        }
        return _given(chosen)

    def _items(self, messages: Sequence[Message]) -> Iterator[dict[str, Json]]:
        ids = WireIds()
        for message in messages:
            match message.role:
                case "assistant":
                    yield from self._said(message, ids)
                case "tool":
                    yield {
                        "type": "function_call_output",
                        "call_id": ids.of_result(message.call_id or ""),
                        "output": message.content,
                    }
                case "system" | "user":
                    yield _message(message.role, _content(message))

    def _said(self, message: Message, ids: WireIds) -> Iterator[dict[str, Json]]:
        for part in unfolded(message, self._seal):
            match part:
                case Thought(item):
                    yield dict(item)
                case Text(text, None):
                    yield _message("assistant", text)
                case Text(text, phase):
                    yield {**_message("assistant", text), "phase": phase}
                case ToolCall():
                    yield _call(part, ids.of_call(part))


def _refuse_stop(request: ModelRequest) -> None:
    if request.stop:
        raise ProviderError(
            f"The Responses wire has no stop sequences, and {len(request.stop)} are asked for;"
            ' leave them out, or declare the provider with wire = "openai"',
            code="provider_bad_request",
        )


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _message(role: Role, content: Json) -> dict[str, Json]:
    """Say the type too: OpenAI can do without, llama.cpp's server cannot."""
    return {"type": "message", "role": role, "content": content}


def _content(message: Message) -> Json:
    if not message.images:
        return message.content
    parts: list[Json] = [
        {"type": "input_image", "detail": "auto", "image_url": image.url}
        for image in message.images
    ]
    if message.content:
        parts.append({"type": "input_text", "text": message.content})
    return parts


def _call(call: ToolCall, wire_id: str) -> dict[str, Json]:
    # What the model wrote malformed goes back as an empty object, as the call's result says.
    arguments = "{}" if call.malformed is not None else orjson.dumps(call.arguments).decode()
    return {
        "type": "function_call",
        "call_id": wire_id,
        "name": call.name,
        "arguments": arguments,
    }


def _tool(tool: ToolSchema) -> dict[str, object]:
    """Say `strict` either way: left out, it would mean yes, and the vendor rewrite the schema."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        # OpenAI refuses an array that says nothing of its items.
        "parameters": with_items(dict(tool.parameters)),
        "strict": is_strict(tool.parameters),
    }


def _format(wanted: ResponseFormat) -> dict[str, object]:
    """Hold the answer to the schema where the vendor can, and let it guide the model elsewhere."""
    strict = strict_schema(wanted.schema)
    return {
        "type": "json_schema",
        "name": taken_name(wanted.name),
        "schema": dict(wanted.schema) if strict is None else strict,
        "strict": strict is not None,
    }
