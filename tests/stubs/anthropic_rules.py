"""What Anthropic's Messages API refuses, what it caches, and how it signs thinking.

As far as its pages tell, and a little stricter where they leave it open.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any

import orjson

BREAKPOINTS_MAX = 4
LOOKBACK_BLOCKS = 20

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THOUGHTS = ("thinking", "redacted_thinking")

Body = Mapping[str, Any]


def refusal(headers: Mapping[str, str], body: Body) -> str | None:
    """Return why the vendor would refuse the request, or None if it would not."""
    return next(_refusals(headers, body), None)


def _refusals(headers: Mapping[str, str], body: Body) -> Iterator[str]:
    if headers.get("anthropic-version") != "2026-10-21":
        yield "anthropic-version: header is required"
    for sampling in ("temperature", "top_p", "top_k"):
        if sampling in body:
            yield f"{sampling}: Extra inputs are not permitted"
    if not isinstance(body.get("max_tokens"), int):
        yield "max_tokens: Field required"
    thinking = body.get("thinking", {})
    if thinking.get("budget_tokens", 0) >= body["max_tokens"]:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    yield from _marks(body)
    for tool in body.get("tools", []):
        if not _NAME.fullmatch(tool["name"]):
            yield f"tools.{tool['name']!r}: String should match pattern"
        if tool["input_schema"].get("type") != "object":
            yield "tools: input_schema.type: Field required"
    yield from _turns(body["messages"])


def _marks(body: Body) -> Iterator[str]:
    marked = [block for block in blocks_of(body) if "cache_control" in block]
    if len(marked) > BREAKPOINTS_MAX:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {len(marked)}."
    if any(block.get("type") in _THOUGHTS for block in marked):
        yield "cache_control: Extra inputs are not permitted"


def _turns(messages: list[dict[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if messages[-1]["role"] != "user":
        yield "This model does not support assistant message prefill"
    for message in messages:
        yield from _blocks(message)
    nothing = {"role": "user", "content": []}
    for before, after in pairwise([nothing, *messages, nothing]):
        if before["role"] == after["role"] and before["content"] and after["content"]:
            yield "messages: roles must alternate"
        calls = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
        results = [block for block in after["content"] if block["type"] == "tool_result"]
        if sorted(calls) != sorted(block["tool_use_id"] for block in results):
            yield "`tool_use` ids were found without `tool_result` blocks, or the other way around"
        if after["content"][: len(results)] != results:
            yield "`tool_result` blocks must come first"
    ids = [b["id"] for m in messages for b in m["content"] if b["type"] == "tool_use"]
    if len(ids) != len(set(ids)) or not all(map(_ID.fullmatch, ids)):
        yield "messages: `tool_use` ids must be unique, and match the pattern"


def _blocks(message: Mapping[str, Any]) -> Iterator[str]:
    allowed = {
        "user": ("text", "image", "tool_result"),
        "assistant": ("text", "tool_use", *_THOUGHTS),
    }
    if not message["content"]:
        yield "messages: all messages must have non-empty content"
    elif message["content"][-1]["type"] in _THOUGHTS:
        yield "messages: The final block in an assistant message cannot be `thinking`."
    for block in message["content"]:
        if block["type"] not in allowed[message["role"]]:
            yield f"messages: a {block['type']} block cannot be the {message['role']}'s"
        if block["type"] == "text" and not block["text"].strip():
            yield "messages: text content blocks must contain non-whitespace text"
        if block["type"] == "tool_result" and not block.get("content", "-").strip():
            yield "messages: text content blocks must contain non-whitespace text"
        if block["type"] == "tool_use" and not _NAME.fullmatch(block["name"]):
            yield "messages: tool_use.name: String should match pattern"


def blocks_of(body: Body) -> Iterator[dict[str, Any]]:
    """Yield what a prompt consists of, in the order in which it is cached."""
    yield from body.get("tools", [])
    yield from body.get("system", [])
    for message in body["messages"]:
        yield from message["content"]


# --- Thinking ----------------------------------------------------------------------------------


def signature(body: Body, said: list[dict[str, Any]]) -> str:
    """Return the signature of a thought that stands behind the prompt and what was `said` since."""
    prefix = [
        body["model"],
        [_unmarked(block) for block in body.get("system", [])],
        [_unmarked(tool) for tool in body.get("tools", [])],
        [[m["role"], [_unmarked(block) for block in m["content"]]] for m in body["messages"]],
        [_unmarked(block) for block in said],
    ]
    return _digest(prefix)


def misplaced(body: Body) -> bool:
    """Say whether a thought that goes back stands behind something else than it did."""
    for n, message in enumerate(body["messages"]):
        before = {**body, "messages": body["messages"][:n]}
        for m, block in enumerate(message["content"]):
            signed = signature(before, message["content"][:m])
            if block["type"] == "thinking" and block["signature"] != signed:
                return True
    return False


def _unmarked(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


# --- Caching -----------------------------------------------------------------------------------


@dataclass(slots=True)
class PromptCache:
    """What earlier prompts have left; a block is counted as one token for each of its bytes."""

    written: set[str]

    def count(self, body: Body) -> dict[str, int]:
        """Return the usage of a prompt, and keep what it marks."""
        blocks = [_unmarked(block) for block in blocks_of(body)]
        marks = [n for n, block in enumerate(blocks_of(body), 1) if "cache_control" in block]
        sizes = [len(orjson.dumps(block)) for block in blocks]
        keys = [_digest([body["model"], blocks[:n]]) for n in range(len(blocks) + 1)]
        in_sight = {
            n for mark in marks for n in range(max(mark - LOOKBACK_BLOCKS + 1, 1), mark + 1)
        }
        read = max((n for n in in_sight if keys[n] in self.written), default=0)
        end = max(marks, default=0)
        self.written.update(keys[mark] for mark in marks)
        return {
            "input_tokens": sum(sizes[max(end, read) :]),
            "cache_read_input_tokens": sum(sizes[:read]),
            "cache_creation_input_tokens": sum(sizes[read:end]),
            "output_tokens": 1,
        }


def _digest(value: object) -> str:
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
