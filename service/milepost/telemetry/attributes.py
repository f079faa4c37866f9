"""What a span says besides its times: OpenTelemetry's GenAI names, from the events' own fields.

The GenAI conventions have no package of constants, so their names stand here, each once. What was
said to and by models and tools (`content`) is given only where the installation opted in.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

import orjson

from milepost.core.events import (
    ChildRunEnded,
    ChildRunStarted,
    InputMessage,
    InputScreened,
    MessageCompleted,
    Output,
    RunQueued,
    ToolCallCompleted,
    ToolCallScreened,
    ToolCallStarted,
)
from milepost.core.guardrails import Place
from milepost.core.json import Json
from milepost.core.spans import CACHE_HIT, CALL_ID, CHUNKS, COERCED, PARAMETERS, Attribute
from milepost.core.usage import Usage

CONTENT_CHARS_MAX = 8_192
PARAMETERS_MAX = 32
PARAMETER_CHARS_MAX = 64

INPUT = "gen_ai.input.messages"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
LINKED_SPAN_ID = "milepost.linked_span_id"
LINKED_TRACE = "milepost.linked_trace_parent"
MESSAGE_ID = "milepost.message_id"
RUN_ID = "milepost.run_id"

Attributes = Mapping[str, Attribute]


def agent_attributes(event: RunQueued, provider: str) -> Attributes:
    """Return who is invoked, in which conversation, and by which call of which run, if by one."""
    told = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": provider,
        "gen_ai.agent.name": event.agent,
        "gen_ai.agent.id": event.agent_id,
        "gen_ai.agent.version": str(event.agent_version),
        "gen_ai.conversation.id": event.session_id,
    }
    if event.forked_from is not None:
        told |= {
            "milepost.forked_from.run_id": event.forked_from.run_id,
            "milepost.forked_from.seq": str(event.forked_from.at_seq),
        }
    if event.parent is None:
        return told
    above = {
        "milepost.parent_run_id": event.parent.run_id,
        "milepost.parent_call_id": event.parent.call_id,
    }
    return {**told, **above}


def metadata_attributes(metadata: Mapping[str, str]) -> Attributes:
    """Return the labels that the run was given."""
    return {f"milepost.metadata.{key}": value for key, value in metadata.items()}


def chat_attributes(provider: str, model: str) -> Attributes:
    """Return which model is asked."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }


def tool_attributes(event: ToolCallStarted, name: str, given: Iterable[str]) -> Attributes:
    """Return which tool is run for which call, with which of its parameters."""
    told: dict[str, Attribute] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        CALL_ID: event.call_id,
        "gen_ai.tool.type": "function",
        "milepost.tool.attempt": event.attempt,
    }
    if names := tuple(key[:PARAMETER_CHARS_MAX] for key in islice(given, PARAMETERS_MAX)):
        told[PARAMETERS] = names
    if event.coerced:
        told[COERCED] = len(event.coerced)
    return told


def outcome_attributes(event: ToolCallCompleted) -> Attributes:
    """Return what was unusual about how a tool came to its result."""
    told: dict[str, Attribute] = {}
    if event.cached:
        told[CACHE_HIT] = True
    if event.chunks:
        told[CHUNKS] = event.chunks
    return told


def child_attributes(event: ChildRunStarted | ChildRunEnded) -> Attributes:
    """Return which run a call has become, and how that ended."""
    match event:
        case ChildRunStarted(run_id=run_id):
            return {"milepost.child_run.id": run_id}
        case ChildRunEnded(run_id=run_id, status=status):
            # Also of one that was over before its start was told.
            return {"milepost.child_run.id": run_id, "milepost.child_run.status": status}


def screening_attributes(place: Place, call_id: str | None = None) -> Attributes:
    """Return what the guardrails look at."""
    told: dict[str, Attribute] = {"milepost.guardrail.place": place}
    if call_id:
        told[CALL_ID] = call_id
    return told


def screened_attributes(event: InputScreened | ToolCallScreened) -> Attributes:
    """Return what the guardrails made of it, and what a model took that helped."""
    told: dict[str, Attribute] = {"milepost.guardrail.blocked": event.blocked is not None}
    return {**told, **usage_attributes(event.usage)} if event.usage != Usage() else told


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
    return {INPUT: orjson.dumps(turns).decode()}


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
