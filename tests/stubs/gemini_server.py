"""A server that speaks generateContent, and is as strict with requests as Google's own.

Asked without a function's result it thinks and asks for `add(17, 25)`, signed; asked with one it
streams some tokens, their usage, and a signature. Who does not ask for `alt=sse` gets an array.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson
from aiohttp import web

from tests.stubs.web_server import WebServer, web_server

KEY = "AIza-very-secret"
SIGNATURE = "c2lnbmVkIGNhbGw="
LAST_SIGNATURE = "c2lnbmVkIHRleHQ="

Chunk = dict[str, Any]

_BODY_FIELDS = {"contents", "systemInstruction", "tools", "generationConfig", "continuationToken"}
_CONFIG_FIELDS = {
    "temperature", "topP", "maxOutputTokens", "stopSequences", "thinkingConfig",
    "responseMimeType", "responseJsonSchema",
}  # fmt: skip
_PART_KINDS = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}


@dataclass(frozen=True, slots=True)
class GeminiServer:
    """Where it listens, and what it heard."""

    server: WebServer

    @property
    def base_url(self) -> str:
        """Its address, as a client of the wire wants it."""
        return f"{self.server.url}/v1beta"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What it was asked for."""
        return [orjson.loads(asked.body) for asked in self.server.asked]


def answers(*parts: Chunk, reason: str = "", **fields: Any) -> Chunk:
    """Return a chunk with one candidate."""
    candidate: Chunk = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": [*parts]}
    if reason:
        candidate["finishReason"] = reason
    named = {"modelVersion": "gemini-3-stub", "responseId": "response-1"}
    return {"candidates": [candidate], **named, **fields}


def usage(prompt: int, answer: int = 0, thoughts: int = 0, cached: int = 0) -> Chunk:
    """Return `usageMetadata` as Google counts: thoughts apart, what is 0 not at all."""
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": answer,
        "thoughtsTokenCount": thoughts,
        "cachedContentTokenCount": cached,
        "totalTokenCount": prompt + answer + thoughts,
    }
    return {name: tokens for name, tokens in counts.items() if tokens}


def refusal(code: int, status: str, message: str, *details: Chunk) -> Chunk:
    """Return an error as Google words it."""
    error: Chunk = {"code": code, "message": message, "status": status}
    return {"error": {**error, "details": [*details]} if details else error}


CALL = (
    answers(
        {"text": "I need a sum. ", "thought": True},
        usageMetadata=usage(50, thoughts=8),
    ),
    answers(
        {
            "functionCall": {"id": "fc_1", "name": "add", "args": {"a": 17, "b": 25}},
            "thoughtSignature": SIGNATURE,
        },
        usageMetadata=usage(50, 15, 8),
    ),
    answers({"text": ""}, reason="STOP", usageMetadata=usage(50, 15, 8)),
)


def text_chunks(tokens: int) -> tuple[Chunk, ...]:
    """Return a text of `tokens` tokens, as it comes from a model that thinks."""
    said = (answers({"text": f"token{n} "}, usageMetadata=usage(50, n + 1)) for n in range(tokens))
    last = answers(
        {"text": "", "thoughtSignature": LAST_SIGNATURE},
        reason="STOP",
        usageMetadata=usage(50, tokens, 8, 32),
    )
    return (*said, last)


@asynccontextmanager
async def serving(
    *replies: Sequence[Chunk], tokens: int = 3, is_sse: bool = True, chunk_delay_s: float = 0
) -> AsyncIterator[GeminiServer]:
    """Answer with `replies`, one a request; without any, as the module says.

    Unless `is_sse`, it answers with an array, whatever it is asked for.
    """
    scripted = iter(replies)

    async def generate(request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        if request.headers.get("x-goog-api-key") != KEY:
            return _refused(_UNKNOWN_KEY)
        model = request.path.removeprefix("/v1beta/models/").partition(":")[0]
        if fault := fault_of(body, model):
            return _refused(refusal(400, "INVALID_ARGUMENT", fault))
        chunks = next(scripted, None) or (text_chunks(tokens) if _is_answered(body) else CALL)
        wants_events = request.query.get("alt") == "sse" and is_sse
        return await _stream(request, chunks, wants_events, chunk_delay_s)

    async with web_server(generate) as server:
        yield GeminiServer(server)


def fault_of(body: Mapping[str, Any], model: str = "gemini-3-stub") -> str:
    """Return what Google would refuse in a request, or nothing."""
    config = body.get("generationConfig", {})
    if unknown := {*body} - _BODY_FIELDS | {*config} - _CONFIG_FIELDS:
        return f"Unknown name {unknown}: Cannot find field."
    if "responseMimeType" in config and "tools" in body and "gemini-2" in model:
        return "Function calling with a response mime type: 'application/json' is unsupported"
    contents = body["contents"]
    if not contents:
        return "GenerateContentRequest.contents: contents is not specified"
    roles = [content["role"] for content in contents]
    if roles != [("user", "model")[n % 2] for n in range(len(roles))]:
        return "Please ensure that multiturn requests alternate between user and model."
    faults = (_fault_of_content(content) for content in contents)
    turns = (_fault_of_turn(*pair) for pair in pairwise(contents))
    found = [fault for fault in (*faults, *turns) if fault]
    if not found and "gemini-2" not in model:
        found = _missing_signatures(contents)
    return found[0] if found else ""


def _fault_of_content(content: Mapping[str, Any]) -> str:
    for part in content["parts"]:
        if len(kinds := _PART_KINDS & {*part}) != 1:
            return f"a part must have one initialized field: {kinds}"
    return "" if content["parts"] else "contents.parts must not be empty."


def _fault_of_turn(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> str:
    calls = [_named(part["functionCall"]) for part in asked["parts"] if "functionCall" in part]
    results = [
        _named(part["functionResponse"]) for part in answered["parts"] if "functionResponse" in part
    ]
    if calls == results:
        return ""
    return (
        "Please ensure that the number of function response parts is equal to the number of"
        " function call parts of the function call turn."
    )


def _named(part: Mapping[str, Any]) -> tuple[str, str]:
    return part["name"], part.get("id", "")


def _missing_signatures(contents: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first call of each step since the user last spoke must be signed."""
    spoken = [n for n, content in enumerate(contents) if _is_spoken(content)]
    faults = []
    for content in contents[spoken[-1] if spoken else 0 :]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = calls[0]["functionCall"]["name"]
            faults.append(f"Function call `{name}` is missing a thought_signature.")
    return faults


def _is_spoken(content: Mapping[str, Any]) -> bool:
    return content["role"] == "user" and any("text" in part for part in content["parts"])


_UNKNOWN_KEY = refusal(
    400,
    "INVALID_ARGUMENT",
    "API key not valid. Please pass a valid API key.",
    {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
    },
)


def _is_answered(body: Mapping[str, Any]) -> bool:
    return any("functionResponse" in part for part in body["contents"][-1]["parts"])


def _refused(error: Chunk) -> web.Response:
    return web.json_response(error, status=error["error"]["code"])


async def _stream(
    request: web.Request, chunks: Sequence[Chunk], wants_events: bool, chunk_delay_s: float
) -> web.StreamResponse:
    kind = "text/event-stream" if wants_events else "application/json; charset=UTF-8"
    response = web.StreamResponse(headers={"content-type": kind})
    await response.prepare(request)
    for n, chunk in enumerate(chunks):
        if wants_events:
            await response.write(b"data: " + orjson.dumps(chunk) + b"\r\n\r\n")
        else:
            indented = orjson.dumps(chunk, option=orjson.OPT_INDENT_2)
            await response.write((b",\r\n" if n else b"[") + indented)
        if chunk_delay_s:
            await asyncio.sleep(chunk_delay_s)
    await response.write_eof(b"" if wants_events else b"]\n")
    return response
