"""A server of OpenAI's Responses API that costs next to nothing, and answers in the vendor's types.

Asked without a tool result it thinks, and asks for `add(17, 25)`; asked with one it streams some
tokens and their usage. `python -m tests.stubs.responses_server --port 0 --tokens 20` prints its
port and serves until it is told to stop.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.stubs.openai_server import (
    LAST_FRAME,
    Answers,
    framed,
    serve_until_told,
    serving_answers,
)

EVENTS = TypeAdapter[Any](ResponseStreamEvent)
_RESULTS = (b'"type":"function_call_output"', b'"type": "function_call_output"')
_TEXT = {"type": "output_text", "text": "", "annotations": []}


def response(
    status: str = "in_progress", output: Iterable[dict[str, Any]] = (), **more: Any
) -> dict[str, Any]:
    """Return a response, as far as it has come."""
    whole = {
        "id": "resp_stub",
        "object": "response",
        "created_at": 1.0,
        "model": "stub-model",
        "status": status,
        "output": [*output],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }
    return Response.model_validate(whole).model_dump(mode="json", exclude_unset=True, by_alias=True)


def usage(
    input_tokens: int, output_tokens: int, *, cached: int = 0, written: int = 0, reasoning: int = 0
) -> dict[str, Any]:
    """Return what a reply took."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


class Script:
    """Writes a reply's events one after another, each checked against the vendor's types."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._items: list[dict[str, Any]] = []
        self.add("response.created", response=response())
        self.add("response.in_progress", response=response())

    def add(self, kind: str, **fields: Any) -> None:
        """Append an event."""
        event = {"type": kind, "sequence_number": len(self.events), **fields}
        EVENTS.validate_python(event)
        self.events.append(event)

    def message(self, *pieces: str, phase: str | None = None, refusing: bool = False) -> None:
        """Append a message that comes in `pieces`."""
        at = self._begin(self.message_item("", phase=phase, status="in_progress"))
        kind, key = ("refusal", "refusal") if refusing else ("output_text", "text")
        part = {"type": "refusal", "refusal": ""} if refusing else _TEXT
        place = {**at, "content_index": 0}
        more: dict[str, Any] = {} if refusing else {"logprobs": []}
        self.add("response.content_part.added", part=part, **place)
        for piece in pieces:
            self.add(f"response.{kind}.delta", delta=piece, **place, **more)
        whole = "".join(pieces)
        self.add(f"response.{kind}.done", **{key: whole}, **place, **more)
        self.add("response.content_part.done", part={**part, key: whole}, **place)
        self._end(at, self.message_item(whole, phase=phase, refusing=refusing))

    def call(self, name: str, *pieces: str, call_id: str = "") -> None:
        """Append a call whose arguments come in `pieces`."""
        self.calls((name, pieces), call_id=call_id)

    def calls(self, *told: tuple[str, Iterable[str]], call_id: str = "") -> None:
        """Append calls whose pieces come in turns."""
        begun = []
        for name, pieces in told:
            item = self.call_item(name, call_id=call_id or f"call_{len(self._items)}")
            begun.append((self._begin(item), item, [*pieces]))
        for turn in range(max(len(pieces) for _, _, pieces in begun)):
            for at, _, pieces in begun:
                if turn < len(pieces):
                    self.add("response.function_call_arguments.delta", delta=pieces[turn], **at)
        for at, item, pieces in begun:
            arguments = "".join(pieces)
            done = {"arguments": arguments, "name": item["name"]}
            self.add("response.function_call_arguments.done", **at, **done)
            self._end(at, {**item, "arguments": arguments, "status": "completed"})

    def thought(self, *parts: tuple[str, ...], encrypted: str | None = "gAAAA") -> None:
        """Append reasoning that is summarised in parts, which come in pieces."""
        at = self._begin({"type": "reasoning", "id": self._id("rs"), "summary": []})
        for index, pieces in enumerate(parts):
            place, text = {**at, "summary_index": index}, "".join(pieces)
            part = {"type": "summary_text", "text": text}
            self.add("response.reasoning_summary_part.added", part={**part, "text": ""}, **place)
            for piece in pieces:
                self.add("response.reasoning_summary_text.delta", delta=piece, **place)
            self.add("response.reasoning_summary_text.done", text=text, **place)
            self.add("response.reasoning_summary_part.done", part=part, **place)
        summary = [{"type": "summary_text", "text": "".join(pieces)} for pieces in parts]
        item = {"type": "reasoning", "id": at["item_id"], "summary": summary}
        self._end(at, {**item, "encrypted_content": encrypted} if encrypted else item)

    def end(self, status: str = "completed", **more: Any) -> list[dict[str, Any]]:
        """Append the last event, and return all of them."""
        whole = response(status, self._items, **more)
        self.add(f"response.{status}", response=whole)
        return self.events

    def message_item(
        self, text: str, *, phase: str | None = None, status: str = "completed",
        refusing: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Return a message as an item of the output."""
        part = {"type": "refusal", "refusal": text} if refusing else {**_TEXT, "text": text}
        return {
            "type": "message",
            "id": self._id("msg"),
            "role": "assistant",
            "status": status,
            "content": [] if status == "in_progress" else [part],
            **({"phase": phase} if phase else {}),
        }

    def call_item(self, name: str, arguments: str = "", *, call_id: str) -> dict[str, Any]:
        """Return a call as an item of the output."""
        return {
            "type": "function_call",
            "id": self._id("fc"),
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
            "status": "in_progress",
        }

    def _id(self, kind: str) -> str:
        return f"{kind}_{len(self._items)}"

    def _begin(self, item: dict[str, Any]) -> dict[str, Any]:
        index = len(self._items)
        self.add("response.output_item.added", item=item, output_index=index)
        self._items.append(item)
        return {"item_id": item["id"], "output_index": index}

    def _end(self, at: dict[str, Any], item: dict[str, Any]) -> None:
        item = {**item, "id": at["item_id"]}
        self.add("response.output_item.done", item=item, output_index=at["output_index"])
        self._items[at["output_index"]] = item


def make_answers(tokens: int) -> Answers:
    """Return some reasoning with the call of `add` after it, and a text of `tokens` tokens."""
    asking, saying = Script(), Script()
    asking.thought(("Let me ", "add."))
    asking.call("add", '{"a":17,', '"b":25}', call_id="call_add")
    saying.message(*(f"token{n} " for n in range(tokens)))
    return Answers(
        _framed(asking.end(usage=usage(50, 15, reasoning=5))),
        _framed(saying.end(usage=usage(50, tokens))),
        _RESULTS,
    )


def wire_event(event: dict[str, Any]) -> bytes:
    """Return an event as it goes over the wire."""
    data = EVENTS.dump_json(EVENTS.validate_python(event), exclude_unset=True, by_alias=True)
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), data)


@asynccontextmanager
async def serving(
    *, port: int = 0, tokens: int = 20, token_delay_s: float = 0.0
) -> AsyncIterator[str]:
    """Serve on 127.0.0.1 and give the base URL, as a client of the wire wants it."""
    async with serving_answers(make_answers(tokens), port, token_delay_s) as base_url:
        yield base_url


def _framed(events: list[dict[str, Any]]) -> tuple[bytes, ...]:
    return (*(framed(wire_event(event)) for event in events), LAST_FRAME)


def _main() -> None:
    parser = argparse.ArgumentParser(description="A stub of a server of the Responses API")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--token-delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    answers = make_answers(options.tokens)
    asyncio.run(serve_until_told(answers, options.port, options.token_delay_ms / 1000))


if __name__ == "__main__":
    _main()
