"""The built-in provider that needs no key and no network, and never pretends to be a model."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping

import orjson

from milepost.core.json import Json
from milepost.core.messages import Message, ToolCall
from milepost.core.model import CallDelta, Delta, Finished, ModelRequest, Spent, TextDelta
from milepost.core.usage import Usage
from milepost.providers.demo_rules import Wish, wishes
from milepost.providers.tokens import CHARS_PER_TOKEN, estimate, estimate_prompt

MODEL = "milepost-demo"

_ABOUT = (
    "I am Milepost's offline demo, not a language model: I follow a few fixed rules, so that you"
    " can try runs, streams, tools and approvals without a key."
)
_EXAMPLES = {
    "add": 'add numbers ("What is 17 + 25?")',
    "multiply": 'multiply them ("6 times 7")',
    "current_time": 'look at a clock ("What time is it?")',
    "send_email": 'send a mail ("Send an email to ann@example.com saying hello")',
}
_TIMES = "\N{MULTIPLICATION SIGN}"
_DENIED = re.compile(r"Tool '[^']*' denied by ")
_FAILED = re.compile(r"Error \(\w+\): ")
_WORDS = re.compile(r"\S+\s*|\s+")


class Demo:
    """Streams word by word: tool calls for what it recognises, then an answer from their results.

    It looks at the last user message and what came after it, and at nothing else.
    """

    def __init__(self, word_delay_s: float = 0.03) -> None:
        self._word_delay_s = word_delay_s

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. The same request always gets the same one."""
        question, since = _turn(request.messages)
        offered, missing = _divide(wishes(question), request)
        if results := tuple(_results(since)):
            deltas = _say(_report_all(results, missing), request)
        elif offered:
            deltas = _call(offered, request)
        else:
            deltas = _say(_explain(missing, request), request)
        for delta in deltas:
            if isinstance(delta, TextDelta):
                await asyncio.sleep(self._word_delay_s)
            yield delta


def _turn(messages: tuple[Message, ...]) -> tuple[str, tuple[Message, ...]]:
    """Return the last thing that the user said, and what came after it."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "user":
            return messages[at].content, messages[at + 1 :]
    return "", ()


def _results(since: tuple[Message, ...]) -> Iterator[tuple[ToolCall, str]]:
    calls = {call.id: call for message in since for call in message.calls}
    for message in since:
        if message.role == "tool" and (call := calls.get(message.call_id or "")):
            yield call, message.content


def _report_all(results: tuple[tuple[ToolCall, str], ...], missing: tuple[str, ...]) -> str:
    reports = [_report(call, content) for call, content in results]
    if missing:
        reports.append(_regret(missing))
    return " ".join(reports)


def _report(call: ToolCall, content: str) -> str:
    """Say what a call came to, and only that: a refusal or a failure is no result."""
    if _DENIED.match(content):
        return f"I was not allowed to do that, so it was not done. ({content})"
    if _FAILED.match(content):
        return f"The tool {call.name} gave me no result. It says: {content}"
    match call.name:
        case "add" | "multiply":
            return _report_number(call, content)
        case "current_time":
            return f"The clock says: {content}"
        case _:
            return f"The tool {call.name} says: {content}"


def _report_number(call: ToolCall, content: str) -> str:
    """Show the sum only if it is one: an approver may have changed the arguments."""
    match call.arguments:
        case {"a": int(a) | float(a), "b": int(b) | float(b)}:
            sign, expected = ("+", a + b) if call.name == "add" else (_TIMES, a * b)
            if _is_number(content, expected):
                return f"{a} {sign} {b} = {content.removesuffix('.0')}."
        case _:
            pass  # Nothing to check it with.
    return f"The tool {call.name} says: {content}"


def _is_number(content: str, expected: float) -> bool:
    try:
        return float(content) == expected
    except ValueError:
        return False


def _divide(
    wished: tuple[Wish, ...], request: ModelRequest
) -> tuple[tuple[Wish, ...], tuple[str, ...]]:
    """Return the wishes that this agent has tools for, and the names of the tools it lacks."""
    names = {tool.name for tool in request.tools}
    offered = tuple(wish for wish in wished if wish.tool in names)
    return offered, tuple(sorted({wish.tool for wish in wished} - names))


def _regret(missing: tuple[str, ...]) -> str:
    return f"This agent lacks what I would need for the rest: {', '.join(missing)}."


def _explain(missing: tuple[str, ...], request: ModelRequest) -> str:
    if missing:
        return f"{_ABOUT} This agent lacks what I would need for that: {', '.join(missing)}."
    able = [_EXAMPLES[tool.name] for tool in request.tools if tool.name in _EXAMPLES]
    if not able:
        return f"{_ABOUT} This agent has none of the tools that I know, so I can only say hello."
    return f"{_ABOUT} With this agent's tools I can {'; '.join(able)}."


def _say(text: str, request: ModelRequest) -> Iterator[Delta]:
    allowed = len(text)
    if request.tokens_max is not None:
        allowed = min(allowed, request.tokens_max * CHARS_PER_TOKEN)
    for word in _WORDS.findall(text[:allowed]):
        yield TextDelta(word)
    yield _spent(request, allowed)
    yield Finished("stop" if allowed == len(text) else "length", model=MODEL)


def _call(wished: tuple[Wish, ...], request: ModelRequest) -> Iterator[Delta]:
    asked_before = sum(len(message.calls) for message in request.messages)
    chars = 0
    for index, wish in enumerate(wished):
        arguments = _encoded(wish.arguments)
        chars += len(arguments)
        yield CallDelta(index, f"demo_{asked_before + index + 1}", wish.tool)
        yield CallDelta(index, arguments=arguments)
    yield _spent(request, chars)
    yield Finished("tool_calls", model=MODEL)


def _encoded(arguments: Mapping[str, Json]) -> str:
    return orjson.dumps(arguments).decode()


def _spent(request: ModelRequest, said_chars: int) -> Spent:
    return Spent(Usage(input_tokens=estimate_prompt(request), output_tokens=estimate(said_chars)))
