"""A `ModelRequest` as the body of a Messages call."""

from dataclasses import dataclass
from typing import Literal

import orjson

from milepost.core.json import Json
from milepost.core.json_schema import without_combinators
from milepost.core.model import ModelRequest, ResponseFormat, ToolSchema
from milepost.core.schema_words import described, reduced
from milepost.providers.anthropic_layout import Block
from milepost.providers.anthropic_schema import answer_schema
from milepost.providers.anthropic_turns import turns_of
from milepost.providers.encoded_once import EncodedOnce
from milepost.providers.instructions import parted

TOKENS_MAX = 32_000
"""The bound on a reply's tokens where nobody set one: the vendor insists on a number."""

THINKING_TOKENS_MIN = 1_024
"""The vendor refuses to think with less."""

KeyHeader = Literal["Authorization", "x-api-key"]

_STABLE: dict[str, Json] = {"cache_control": {"type": "ephemeral"}}
_UNTHINKING: dict[str, object] = {"thinking": {"type": "disabled"}}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What servers do otherwise than Anthropic's own.

    With `sampling` a temperature and a `top_p` are sent: Anthropic's refuses them all. Without
    `schemas` a server holds no answer to a schema, so that the model is told of it instead.
    `key_header` is `x-api-key` for servers that know the key under that name alone, as it was
    before this version of the API.
    """

    sampling: bool = False
    schemas: bool = True
    key_header: KeyHeader = "Authorization"


class MessagesEncoder:
    """Writes the bodies of one endpoint's calls.

    `dialect` is what the server does otherwise than Anthropic's own.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._tools = EncodedOnce(_tool)
        self._last_tools = EncodedOnce(_last_tool)

    def encode(self, request: ModelRequest) -> bytes:
        """Return the JSON body that asks for a streamed reply to `request`."""
        wanted = request.response_format
        schema = answer_schema(wanted.schema) if wanted and self._dialect.schemas else None
        body: dict[str, object] = {
            "model": request.model,
            "max_tokens": _tokens_max(request),
            "stream": True,
            **_system(request, held=schema is not None),
            **self._tools_of(request),
            "messages": _messages(request),
            **_thinking(request),
            **_output(request, schema),
        }
        if request.stop:
            body["stop_sequences"] = request.stop
        if self._dialect.sampling and request.temperature is not None:
            body["temperature"] = request.temperature
        if self._dialect.sampling and request.top_p is not None:
            body["top_p"] = request.top_p
        return orjson.dumps(body)

    def _tools_of(self, request: ModelRequest) -> dict[str, object]:
        if not request.tools:
            return {}
        *tools, last = request.tools
        told = [*map(self._tools.of, tools), self._last_tools.of(last)]
        if request.parallel_tools is None:
            return {"tools": told}
        one_at_a_time = not request.parallel_tools
        choice = {"type": "auto", "disable_parallel_tool_use": one_at_a_time}
        return {"tools": told, "tool_choice": choice}


def _tokens_max(request: ModelRequest) -> int:
    if request.tokens_max is not None:
        return request.tokens_max
    # What is thought counts as well, and the vendor wants room for an answer beside it.
    return TOKENS_MAX + (request.thinking_tokens or 0)


def _system(request: ModelRequest, *, held: bool) -> dict[str, object]:
    """Return what stands apart from the conversation, the agent's instructions first.

    Their end is where the prompts of an agent's runs begin to differ.
    """
    said = [text for text in parted(request.messages)[0] if text.strip()]
    if request.response_format is not None and not held:
        said.append(_instruction(request.response_format))
    blocks: list[Block] = [{"type": "text", "text": text} for text in said]
    return {"system": [{**blocks[0], **_STABLE}, *blocks[1:]]} if blocks else {}


def _instruction(wanted: ResponseFormat) -> str:
    schema = orjson.dumps(dict(wanted.schema)).decode()
    return f"Answer with JSON alone, without a fence, that fits this JSON Schema: {schema}"


def _messages(request: ModelRequest) -> list[dict[str, object]]:
    """Return the turns, marked where what comes next is likely to begin with all before it.

    One mark is where the last request ended: the vendor does not look back far enough to find it
    behind a step with many calls. Where this one begins with what is of this run alone, that mark
    is right before it: the next run's prompt has the conversation, and not that. The other mark is
    where this one ends, unless nothing follows a lone question to an agent that has no tools: to
    write into the cache is dearer than not to.
    """
    said = turns_of(parted(request.messages)[1])
    turns = said.turns
    if len(turns) > 1 or request.tools:
        before = turns[-2:-1] if said.noted is turns[-1] else turns[-3:-2]
        for turn in (turns[-1], *before):
            turn.blocks[-1] = {**turn.blocks[-1], **_STABLE}
    return [{"role": turn.role, "content": turn.blocks} for turn in turns]


def _thinking(request: ModelRequest) -> dict[str, object]:
    match request.reasoning_effort:
        case None:
            return {}
        case "none":
            return _UNTHINKING
        case _ if (wanted := request.thinking_tokens) is not None:
            return _thinking_within(wanted, _tokens_max(request))
        case _:
            # Newer models keep their thoughts to themselves unless asked for them.
            return {"thinking": {"type": "adaptive", "display": "summarized"}}


def _thinking_within(wanted: int, room: int) -> dict[str, object]:
    """Return how many tokens to think with, as models before Claude 4.6 want it.

    The vendor refuses to think with all that a reply may have. Where a budget leaves a reply no
    more than that, half of it is for the answer.
    """
    tokens = wanted if wanted < room else room // 2
    if tokens < wanted and tokens < THINKING_TOKENS_MIN:
        return _UNTHINKING
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


def _output(request: ModelRequest, schema: dict[str, Json] | None) -> dict[str, object]:
    effort = request.reasoning_effort
    config: dict[str, object] = {}
    if effort is not None and effort != "none" and request.thinking_tokens is None:
        config["effort"] = effort
    if schema is not None:
        config["format"] = {"type": "json_schema", "schema": schema}
    return {"output_config": config} if config else {}


def _tool(tool: ToolSchema) -> dict[str, Json]:
    # Alternatives at the top are refused, so they are told in words.
    root, taken = without_combinators(tool.parameters)
    words = reduced(taken, ()).get("description")
    return {
        "name": tool.name,
        **described({}, tool.description, [str(words)] if words else []),
        "input_schema": {"type": "object", **root},
    }


def _last_tool(tool: ToolSchema) -> dict[str, Json]:
    return {**_tool(tool), **_STABLE}
