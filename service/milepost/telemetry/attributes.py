"""What a span says besides its times: OpenTelemetry's GenAI names, from the events' own fields.

The GenAI conventions have no package of constants, so their names stand here, each once. What was
said to and by models and tools (`content`) is given only where the installation opted in.
"""

from collections.abc import Iterable, Mapping

import orjson

from milepost.core.events import InputMessage, MessageCompleted, Output
from milepost.core.json import Json
from milepost.core.spans import Attribute
from milepost.core.usage import Usage

CONTENT_CHARS_MAX = 8_192

ERROR_TYPE = "error.type"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
LINKED_SPAN_ID = "milepost.linked_span_id"
RUN_ID = "milepost.run_id"

Attributes = Mapping[str, Attribute]


def agent_attributes(agent: str, session_id: str, provider: str) -> Attributes:
    """Return who is invoked, and in which conversation."""
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider,
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": session_id,
    }


def version_attributes(agent_id: str, agent_version: int) -> Attributes:
    """Return which version of the agent a run is pinned to."""
    return {"gen_ai.agent.id": agent_id, "gen_ai.agent.version": str(agent_version)}


def chat_attributes(provider: str, model: str) -> Attributes:
    """Return which model is asked."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }


def tool_attributes(name: str, call_id: str, attempt: int) -> Attributes:
    """Return which tool is run, and for which call."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.type": "function",
        "milepost.tool.attempt": attempt,
    }


def reply_attributes(event: MessageCompleted) -> Attributes:
    """Return what a model's reply was and what it took."""
    said: dict[str, Attribute] = {
        "gen_ai.response.finish_reasons": (event.finish_reason,),
        **usage_attributes(event.usage),
    }
    if event.model:
        said["gen_ai.response.model"] = event.model
    if event.response_id:
        said["gen_ai.response.id"] = event.response_id
    if event.first_delta_ms is not None:
        said[FIRST_CHUNK_S] = event.first_delta_ms / 1000
    return said


def usage_attributes(usage: Usage) -> Attributes:
    """Return tokens and money; the rarer kinds only where there were any."""
    rare = {
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "milepost.usage.cost_nanos": usage.cost_nanos,
    }
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        **{name: count for name, count in rare.items() if count},
    }


def input_content(messages: Iterable[InputMessage]) -> Attributes:
    """Return what the run was asked."""
    turns = [_turn(message.role, message.content) for message in messages]
    return {"gen_ai.input.messages": orjson.dumps(turns).decode()}


def reply_content(event: MessageCompleted) -> Attributes:
    """Return what the model said."""
    turn = {**_turn("assistant", event.content), "finish_reason": event.finish_reason}
    return {"gen_ai.output.messages": orjson.dumps([turn]).decode()}


def output_content(output: Output) -> Attributes:
    """Return what the run answered."""
    turns = [_turn("assistant", output.text)]
    return {"gen_ai.output.messages": orjson.dumps(turns).decode()}


def arguments_content(arguments: Mapping[str, Json]) -> Attributes:
    """Return what a tool was given."""
    return {"gen_ai.tool.call.arguments": _cut(orjson.dumps(arguments).decode())}


def result_content(result: Json) -> Attributes:
    """Return what a tool gave back."""
    return {"gen_ai.tool.call.result": _cut(orjson.dumps(result).decode())}


def _turn(role: str, text: str) -> dict[str, Json]:
    return {"role": role, "parts": [{"type": "text", "content": _cut(text)}]}


def _cut(text: str) -> str:
    return text if len(text) <= CONTENT_CHARS_MAX else f"{text[:CONTENT_CHARS_MAX]}…"
