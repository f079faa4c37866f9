"""A run as it happens: pieces of text and calls of tools, for whoever iterates over it."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from milepost.agent.partial import partial_value
from milepost.core.events import (
    Event,
    MessageAborted,
    MessageCompleted,
    ReasoningCompleted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallFailed,
    ToolCallRequested,
)
from milepost.core.json import Json
from milepost.live.hub import LiveText, TextKey, TextKind

ChunkType = Literal[
    "text", "reasoning", "aborted", "tool_call", "tool_progress", "tool_result", "tool_error"
]

_TYPES: Mapping[TextKind, ChunkType] = {
    "message.delta": "text",
    "reasoning.delta": "reasoning",
    "tool_call.progress": "tool_progress",
}


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """Something new in a run. `type` says what, and which of the other fields are there.

    `text` and `reasoning` are pieces of the message `id`; a message that is `aborted` is void with
    all that was shown of it, and is made anew. `tool_call` is a whole call of `tool` with its
    `arguments`, `tool_progress` what it says while it runs, `tool_result` what it brought, and
    `tool_error` why it did not: `id` is the call's. Where an answer is structured, the pieces of
    its text come with what can be read of its value so far, `partial`.
    """

    type: ChunkType
    id: str
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    result: Json = None
    partial: Json = None


OnChunk = Callable[[StreamChunk], None]


class Chunks:
    """Makes chunks of what a run says live, and of its log; the log tops up what nobody said live.

    It is the hub's way out of the run. Nobody else follows the run, so the rest of a link is empty.
    """

    def __init__(self, on_chunk: OnChunk, *, is_structured: bool) -> None:
        self._on_chunk = on_chunk
        self._is_structured = is_structured
        self._shown: dict[TextKey, int] = {}
        self._tools: dict[str, str] = {}

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:  # noqa: ARG002 - a link's
        """Pass a piece on."""
        self._shown[text.key] = len(text.text)
        self._piece(text.kind, text.id, piece, text.text)

    def see(self, happened: Sequence[Event]) -> None:
        """Pass on what of the log is a chunk."""
        for event in happened:
            self._see(event)

    def _see(self, event: Event) -> None:
        match event:
            case MessageCompleted(message_id, content):
                self._top_up("message.delta", message_id, content)
            case ReasoningCompleted(message_id, content):
                self._top_up("reasoning.delta", message_id, content)
            case MessageAborted(message_id, reason):
                self._on_chunk(StreamChunk("aborted", message_id, reason))
            case ToolCallRequested(call_id, name, arguments):
                self._tools[call_id] = name
                self._on_chunk(StreamChunk("tool_call", call_id, tool=name, arguments=arguments))
            case ToolCallCompleted(call_id, result):
                self._on_chunk(
                    StreamChunk("tool_result", call_id, tool=self._tool(call_id), result=result)
                )
            case ToolCallFailed(call_id, error):
                self._fail(call_id, error.message)
            case ToolCallDenied(call_id, by, reason):
                self._fail(call_id, f"denied by {by}: {reason}")
            case _:
                pass  # Nothing that is shown as it comes.

    def _fail(self, call_id: str, why: str) -> None:
        self._on_chunk(StreamChunk("tool_error", call_id, why, tool=self._tool(call_id)))

    def _tool(self, call_id: str) -> str:
        return self._tools.get(call_id, "")

    def _top_up(self, kind: TextKind, message_id: str, content: str) -> None:
        if missing := content[self._shown.pop((kind, message_id), 0) :]:
            self._piece(kind, message_id, missing, content)

    def _piece(self, kind: TextKind, named: str, piece: str, so_far: str) -> None:
        answer = kind == "message.delta"
        tool = self._tool(named) if kind == "tool_call.progress" else ""
        partial = partial_value(so_far) if answer and self._is_structured else None
        self._on_chunk(StreamChunk(_TYPES[kind], named, piece, tool, partial=partial))

    # --- The rest of a link ---

    def published(self, run_id: str, seq: int) -> None:
        """Events are seen by `see`."""

    def closed(self, run_id: str, text: LiveText) -> None:
        """The log tells what became of a text."""

    def rang(self, bell: str) -> None:
        """Nobody waits elsewhere."""

    async def follow(self, run_id: str) -> None:
        """There is nobody to hear of it from."""

    def leave(self, run_id: str) -> None:
        """Nor to leave."""

    async def erase(self, run_ids: Sequence[str]) -> None:
        """Nor to erase."""


class Pending:
    """Chunks that nobody has taken yet. Pieces of one text that wait together become one.

    So there are never more of them than the run has events.
    """

    def __init__(self) -> None:
        self._chunks: deque[StreamChunk] = deque()
        self._changed = asyncio.Event()
        self._over = False

    def put(self, chunk: StreamChunk) -> None:
        """Add a chunk."""
        last = self._chunks[-1] if self._chunks else None
        if last and chunk.text and (last.type, last.id) == (chunk.type, chunk.id):
            self._chunks[-1] = replace(chunk, text=last.text + chunk.text)
        else:
            self._chunks.append(chunk)
        self._changed.set()

    def close(self) -> None:
        """Say that nothing more comes."""
        self._over = True
        self._changed.set()

    async def take(self) -> StreamChunk | None:
        """Return the next chunk, or None after the last."""
        while not self._chunks:
            if self._over:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._chunks.popleft()
