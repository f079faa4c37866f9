"""A `ModelRequest` as the body of a generateContent call."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import orjson

from milepost.core.json import Json
from milepost.core.messages import Image, Message, ToolCall
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.providers.gemini_schema import gemini_schema
from milepost.providers.gemini_seals import Seals
from milepost.providers.instructions import parted
from milepost.providers.wire_ids import WireIds

Part = dict[str, Json]

# Google's own word for a call that another model made: one without a signature is refused.
UNSIGNED = "skip_thought_signature_validator"
# From this generation on a model thinks at a level and not for a number of tokens, wants its calls
# back signed, and holds its answer to a schema although it has tools.
MODERN_SINCE = 3

_GENERATION = re.compile(r"gemini-(\d{1,3})")
# What Google's interface in the manner of OpenAI makes of these words.
_BUDGETS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
_BUDGET = re.compile(r"-1|\d{1,9}")
_MEDIA_TYPES = {
    ".gif": "image/gif",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".png": "image/png",
    ".webp": "image/webp",
}
_MEDIA_TYPE = "image/jpeg"


def encode(request: ModelRequest) -> bytes:
    """Return the JSON body that asks for a reply to `request`.

    Whether calls may be parallel cannot be said on this wire.
    """
    is_modern = _is_modern(request.model)
    first, said = parted(request.messages)
    body: dict[str, Json] = {"contents": _contents(said, is_modern)}
    if instructions := [*filter(None, first), *_instructions(request, is_modern)]:
        body["systemInstruction"] = {"parts": [{"text": text} for text in instructions]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_function(tool) for tool in request.tools]}]
    if config := _config(request, is_modern):
        body["generationConfig"] = config
    if token := _continuation(request.messages):
        body["continuationToken"] = token
    return orjson.dumps(body)


def _is_modern(model: str) -> bool:
    """What names no generation, as `gemini-flash-latest`, is of the newest."""
    named = _GENERATION.search(model)
    return named is None or int(named[1]) >= MODERN_SINCE


def _instructions(request: ModelRequest, is_modern: bool) -> Iterator[str]:
    """Yield what is told above the conversation of an answer that the vendor cannot hold."""
    if request.response_format and not _holds_to_schema(request, is_modern):
        schema = orjson.dumps(dict(request.response_format.schema)).decode()
        yield f"Give your final answer as JSON alone that fits this schema: {schema}"


def _holds_to_schema(request: ModelRequest, is_modern: bool) -> bool:
    return not request.tools or is_modern


def _contents(messages: Sequence[Message], is_modern: bool) -> list[Json]:
    """Return the conversation; what one side says in several messages is one content."""
    calls = _Calls()
    contents: list[tuple[str, list[Json]]] = []
    for message in messages:
        role, parts = _parts(message, calls, is_modern)
        if contents and contents[-1][0] == role:
            contents[-1][1].extend(parts)
        elif parts:
            contents.append((role, parts))
    said: list[Json] = [{"role": role, "parts": parts} for role, parts in contents]
    # A conversation of nothing is refused, and one has to begin somewhere.
    return said or [{"role": "user", "parts": [{"text": ""}]}]


def _parts(message: Message, calls: "_Calls", is_modern: bool) -> tuple[str, list[Json]]:
    match message.role:
        case "user" | "system":
            images: list[Json] = [_image(image) for image in message.images]
            return "user", images + ([{"text": message.content}] if message.content else [])
        case "assistant":
            return "model", [*_said(message, calls, is_modern)]
        case "tool":
            return "user", [calls.result(message)]


def _image(image: Image) -> Part:
    if image.url.startswith("data:"):
        described, _, encoded = image.url.removeprefix("data:").partition(",")
        return {"inlineData": {"mimeType": described.partition(";")[0], "data": encoded}}
    ending = PurePosixPath(_path(image.url)).suffix.lower()
    media_type = _MEDIA_TYPES.get(ending, _MEDIA_TYPE)
    return {"fileData": {"fileUri": image.url, "mimeType": media_type}}


def _path(url: str) -> str:
    """Return the path of an address; nothing of what is none, which its vendor refuses."""
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _said(message: Message, calls: "_Calls", is_modern: bool) -> Iterator[Part]:
    """Yield what the model said, each part with the signature that it came with."""
    seals = Seals.of(message)
    for thought, signature in seals.thoughts:
        yield {"text": thought, "thought": True, "thoughtSignature": signature}
    for text, signature in seals.texts(message.content):
        yield {"text": text, "thoughtSignature": signature} if signature else {"text": text}
    is_unsigned = not seals.calls and is_modern
    for index, call in enumerate(message.calls):
        signature = seals.calls.get(index, "")
        if is_unsigned and index == 0:
            signature = UNSIGNED
        part = calls.call(call)
        yield {**part, "thoughtSignature": signature} if signature else part


class _Calls:
    """The calls of a conversation: a result says the name of its call again, and its id.

    Ids are sent where the vendor gave one. Without, results are told apart by their order.
    """

    def __init__(self) -> None:
        self._ids = WireIds()
        self._asked: dict[str, Part] = {}

    def call(self, call: ToolCall) -> Part:
        asked: Part = {"name": call.name}
        if call.provider_id:
            asked["id"] = self._ids.of_call(call)
        self._asked[call.id] = asked
        return {"functionCall": {**asked, "args": dict(call.arguments)}}

    def result(self, message: Message) -> Part:
        """A result follows its call, so the latest call of that id is the one it answers."""
        call_id = message.call_id or ""
        asked = self._asked.get(call_id) or {"name": call_id}
        return {"functionResponse": {**asked, "response": {"output": message.content}}}


def _function(tool: ToolSchema) -> Part:
    declared: Part = {"name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    # A function of nothing has no schema: an object without properties is refused.
    if tool.parameters.get("properties"):
        declared["parametersJsonSchema"] = gemini_schema(tool.parameters)
    return declared


def _config(request: ModelRequest, is_modern: bool) -> dict[str, Json]:
    config: dict[str, Json] = {}
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.top_p is not None:
        config["topP"] = request.top_p
    if request.tokens_max is not None:
        config["maxOutputTokens"] = request.tokens_max
    if request.stop:
        config["stopSequences"] = [*request.stop]
    if request.reasoning_effort is not None:
        config["thinkingConfig"] = _thinking(request.reasoning_effort, is_modern)
    if request.response_format and _holds_to_schema(request, is_modern):
        config |= _answer(request.response_format)
    return config


def _thinking(effort: str, is_modern: bool) -> Part:
    """Return how long to think: a level, or a number of tokens, by which older models go."""
    if _BUDGET.fullmatch(effort):
        budget: int | None = int(effort)
    else:
        budget = None if is_modern else _BUDGETS.get(effort.lower())
    if budget is None:
        return {"includeThoughts": True, "thinkingLevel": effort.upper()}
    # To ask for thoughts where none are thought is refused.
    return {"includeThoughts": True, "thinkingBudget": budget} if budget else {"thinkingBudget": 0}


def _answer(wanted: ResponseFormat) -> dict[str, Json]:
    return {
        "responseMimeType": "application/json",
        "responseJsonSchema": gemini_schema(wanted.schema),
    }


def _continuation(messages: Sequence[Message]) -> str:
    """Return what a reply that is half said goes on from, if the conversation ends with one."""
    return Seals.of(messages[-1]).continuation if messages else ""
