"""A Chat Completions server that costs next to nothing: every answer is bytes made beforehand.

Asked without a tool result it asks for `add(17, 25)`; asked with one it streams some tokens and
their usage. `python -m tests.stubs.openai_server --port 0 --tokens 20` prints its port and serves
until it is told to stop.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson

# Both spellings of a tool's message: compact, and with the blank that many encoders put in.
TOOL_RESULTS = (b'"role":"tool"', b'"role": "tool"')
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_CALL_PIECES = (
    {
        "index": 0,
        "id": "call_add",
        "type": "function",
        "function": {"name": "add", "arguments": ""},
    },
    {"index": 0, "function": {"arguments": '{"a":17,'}},
    {"index": 0, "function": {"arguments": '"b":25}'}},
)
_INPUT_TOKENS = 50
LAST_FRAME = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answers:
    """The two answers, each in the pieces that go out one by one.

    A request with one of `tool_results` in it is answered with the text.
    """

    call: tuple[bytes, ...]
    text: tuple[bytes, ...]
    tool_results: tuple[bytes, ...]


def make_answers(tokens: int) -> Answers:
    """Return the call of `add`, and a text of `tokens` tokens."""
    call = [_chunk({"tool_calls": [piece]}) for piece in _CALL_PIECES]
    text = [_chunk({"content": f"token{n} "}) for n in range(tokens)]
    return Answers(
        (_chunk({"role": "assistant", "content": None}), *call, *_tail("tool_calls", 15)),
        (_chunk({"role": "assistant", "content": ""}), *text, *_tail("stop", tokens)),
        TOOL_RESULTS,
    )


def _tail(reason: str, output_tokens: int) -> tuple[bytes, ...]:
    usage = {
        "prompt_tokens": _INPUT_TOKENS,
        "completion_tokens": output_tokens,
        "total_tokens": _INPUT_TOKENS + output_tokens,
    }
    return (
        _chunk({}, reason),
        _event({"choices": [], "usage": usage}),
        framed(b"data: [DONE]\n\n"),
        LAST_FRAME,
    )


def _chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})


def _event(fields: dict[str, object]) -> bytes:
    common = {"id": "chatcmpl-stub", "object": "chat.completion.chunk", "created": 1}
    body = orjson.dumps({**common, "model": "stub-model", **fields})
    return framed(b"data: " + body + b"\n\n")


def framed(payload: bytes) -> bytes:
    """Return `payload` as a chunk of HTTP."""
    return f"{len(payload):x}\r\n".encode() + payload + b"\r\n"


class OpenAIStub(asyncio.Protocol):
    """One connection. It reads just enough HTTP to know where a request ends."""

    def __init__(self, answers: Answers, token_delay_s: float) -> None:
        self._answers = answers
        self._token_delay_s = token_delay_s
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        end = head_end + 4 + _content_length(self._received[:head_end])
        if len(self._received) < end:
            return
        request, self._received = self._received[:end], self._received[end:]
        self._answer(request)

    def _answer(self, request: bytes) -> None:
        assert self._transport is not None
        answered = any(spelling in request for spelling in self._answers.tool_results)
        pieces = self._answers.text if answered else self._answers.call
        if self._token_delay_s:
            self._transport.write(_HEAD)
            self._drip(pieces)
        else:
            self._transport.write(_HEAD + b"".join(pieces))

    def _drip(self, pieces: Sequence[bytes]) -> None:
        if self._transport is None or not pieces:
            return
        self._transport.write(pieces[0])
        asyncio.get_running_loop().call_later(self._token_delay_s, self._drip, pieces[1:])


def _content_length(head: bytes) -> int:
    _, _, after = head.lower().partition(b"content-length:")
    return int(after.split(b"\r\n", 1)[0] or b"0")


@asynccontextmanager
async def serving(
    *, port: int = 0, tokens: int = 20, token_delay_s: float = 0.0
) -> AsyncIterator[str]:
    """Serve on 127.0.0.1 and give the base URL, as a client of the wire wants it."""
    async with serving_answers(make_answers(tokens), port, token_delay_s) as base_url:
        yield base_url


@asynccontextmanager
async def serving_answers(
    answers: Answers, port: int = 0, token_delay_s: float = 0.0
) -> AsyncIterator[str]:
    """Serve `answers` on 127.0.0.1, of whatever wire they are."""
    server = await asyncio.get_running_loop().create_server(
        lambda: OpenAIStub(answers, token_delay_s), "127.0.0.1", port
    )
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def serve_until_told(answers: Answers, port: int, token_delay_s: float) -> None:
    """Print the port and serve until a signal says that it is enough."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with serving_answers(answers, port, token_delay_s) as base_url:
        sys.stdout.write(base_url.removesuffix("/v1").rpartition(":")[2] + "\n")
        sys.stdout.flush()
        await told.wait()


def _main() -> None:
    parser = argparse.ArgumentParser(description="A stub of an OpenAI-compatible server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--token-delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    answers = make_answers(options.tokens)
    asyncio.run(serve_until_told(answers, options.port, options.token_delay_ms / 1000))


if __name__ == "__main__":
    _main()
