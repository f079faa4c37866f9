"""Tools for models that have no place of their own for them: told and called in plain text."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace

import orjson

from milepost.core.messages import Message, ToolCall
from milepost.core.model import CallDelta, Delta, Finished, ModelRequest, Provider, TextDelta
from milepost.core.tool_block import prompt_block
from milepost.providers.call_markup import CALL_MARKER, RESULT_MARKER, written
from milepost.providers.closing import closing
from milepost.providers.text_calls import TextCalls

STOPS_MAX = 4
"""How many stop sequences every vendor takes; of one more, OpenAI's wire refuses the request."""

_PROTOCOL = (
    f"To call a tool, begin a line with {CALL_MARKER} and write a JSON object behind it, with the"
    " tool's name and its arguments:\n\n"
    f'{CALL_MARKER} {{"name": "<tool>", "arguments": {{...}}}}\n\n'
)
_SEVERAL = "To call several tools, write one such line for each."
_ONE = "Call one tool at a time."
_THEN = (
    " End your reply behind your calls: the results are sent to you, each in a line that begins"
    f" with {RESULT_MARKER}; never write one yourself. When you need no tool, just answer."
)
_SCHEMA = "When you call no tool, answer with JSON alone that fits this schema:"


class TextTools:
    """Tells the provider inside of tools in words, and reads its answer for calls.

    Without tools, a reply passes as it is. `stops`: the provider inside takes stop sequences, so
    that no results are made up that would be dropped.
    """

    def __init__(self, inner: Provider, *, stops: bool = True) -> None:
        self._inner = inner
        self._stops = stops

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply, with the calls in its text as calls."""
        calls, told = _Calls(request), in_words(request)
        if not self._stops:
            told = replace(told, stop=request.stop)
        async with closing(self._inner.stream(told)) as deltas:
            async for delta in deltas:
                for said in calls.read(delta):
                    yield said


class _Calls:
    """The calls of one reply: those in its text, and any that its model knew to make itself."""

    def __init__(self, request: ModelRequest) -> None:
        self._text = TextCalls(frozenset(tool.name for tool in request.tools))
        self._has_tools = bool(request.tools)
        self._indexes: dict[object, int] = {}

    def read(self, delta: Delta) -> list[Delta]:
        match delta:
            case TextDelta(text) if self._has_tools:
                return [self._placed(told) for told in self._text.feed(text)]
            case CallDelta(index=index):
                return [replace(delta, index=self._index(("theirs", index)))]
            case Finished(reason):
                held = [self._placed(told) for told in self._text.end()]
                asks = reason == "stop" and self._indexes
                return [*held, replace(delta, reason="tool_calls") if asks else delta]
            case _:
                return [delta]

    def _placed(self, told: TextDelta | CallDelta) -> Delta:
        match told:
            case CallDelta(index=index):
                return replace(told, index=self._index(("text", index)))
            case TextDelta():
                return told

    def _index(self, call: object) -> int:
        return self._indexes.setdefault(call, len(self._indexes))


def in_words(request: ModelRequest) -> ModelRequest:
    """Return `request` without tools or calls, and with the same in words."""
    messages = _turns(request.messages)
    if not request.tools:
        return replace(request, messages=messages)
    return replace(
        request,
        messages=_instructed(messages, _instructions(request)),
        tools=(),
        # Only thrift: what is made up behind a call is dropped, so the agent's own go first.
        stop=request.stop if len(request.stop) >= STOPS_MAX else (*request.stop, RESULT_MARKER),
        parallel_tools=None,
        response_format=None,  # Held to it, the model could not call.
    )


def _instructions(request: ModelRequest) -> str:
    how_many = _ONE if request.parallel_tools is False else _SEVERAL
    told = [prompt_block(request.tools), f"{_PROTOCOL}{how_many}{_THEN}"]
    if request.response_format:
        schema = json.dumps(dict(request.response_format.schema), ensure_ascii=False)
        told.append(f"{_SCHEMA} {schema}")
    return "\n\n".join(told)


def _instructed(messages: Sequence[Message], instructions: str) -> tuple[Message, ...]:
    if messages and messages[0].role == "system":
        first = replace(messages[0], content=f"{messages[0].content}\n\n{instructions}")
        return (first, *messages[1:])
    return (Message("system", instructions), *messages)


def _turns(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the conversation of two who take turns: the user brings the results.

    What the user says next is of the same turn, since many models refuse two in a row.
    """
    called: dict[str, str] = {}
    turns: list[Message] = []
    is_open = False
    for message in messages:
        called |= {call.id: call.name for call in message.calls}
        turn = _said(message, called)
        if is_open and turn.role == "user":
            content = f"{turns[-1].content}\n\n{turn.content}"
            turns[-1] = replace(turn, content=content)
        else:
            turns.append(turn)
        is_open = message.role == "tool"
    return tuple(turns)


def _said(message: Message, called: Mapping[str, str]) -> Message:
    if message.role == "tool":
        return Message("user", _result(called.get(message.call_id or "", ""), message.content))
    if not message.calls:
        return message
    lines = [message.content.rstrip("\n")] if message.content.strip() else []
    lines += [_asked(call) for call in message.calls]
    # What is sealed of a turn with calls is sealed of what it was, and not of this.
    return Message("assistant", "\n".join(lines))


def _asked(call: ToolCall) -> str:
    """Return the line that asks for a call; one that is no JSON as the model wrote it."""
    if call.malformed is None:
        return written(call.name, call.arguments)
    if call.name in call.malformed:
        return f"{CALL_MARKER} {call.malformed}"
    return f'{CALL_MARKER} {{"name": "{call.name}", "arguments": {call.malformed}}}'


def _result(name: str, content: str) -> str:
    """Return the line that brings a result. Inside of an object it cannot pass for another."""
    try:
        orjson.loads(content)
        result = content.strip()
    except orjson.JSONDecodeError:
        result = json.dumps(content, ensure_ascii=False)
    return f'{RESULT_MARKER} {{"name": {json.dumps(name)}, "result": {result}}}'
