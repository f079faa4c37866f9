"""Functions as models: whole or in pieces, plain or async, and made whole where they say little."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message, Sealed
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ModelRequest,
    Reply,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.function import FunctionProvider

REQUEST = ModelRequest("tenant", "model", (Message("user", "12345678"),))
CALL = RequestedCall("call_x", "add", '{"a": 1}')


async def deltas(answer: Callable[..., Any]) -> list[Delta]:
    return [delta async for delta in FunctionProvider(answer).stream(REQUEST)]


async def replied(answer: Callable[..., Any]) -> Reply:
    assembly = Assembly()
    for delta in await deltas(answer):
        assembly.feed(delta)
    return assembly.reply()


def text(_: ModelRequest) -> str:
    return "Hello"


async def async_text(_: ModelRequest) -> str:
    return "Hello"


def pieces(_: ModelRequest) -> Iterator[str]:
    yield from ("Hel", "lo")


async def async_pieces(_: ModelRequest) -> AsyncIterator[str]:
    for piece in ("Hel", "lo"):
        yield piece


class Model:
    """An object that answers when it is called."""

    async def __call__(self, _: ModelRequest) -> str:
        return "Hello"


@pytest.mark.parametrize(
    "answer", [text, async_text, pieces, async_pieces, Model(), partial(text), partial(async_text)]
)
async def test_however_it_is_written_it_answers(answer: Callable[..., Any]) -> None:
    reply = await replied(answer)

    assert (reply.text, reply.finish_reason) == ("Hello", "stop")
    assert reply.usage == Usage(input_tokens=2, output_tokens=2)


async def test_a_plain_one_is_called_in_a_thread_and_so_are_its_steps() -> None:
    homes: list[int] = []

    def noted(_: ModelRequest) -> Iterator[str]:
        homes.append(threading.get_ident())
        yield "Hello"
        homes.append(threading.get_ident())

    await replied(noted)

    assert len(homes) == 2
    assert threading.get_ident() not in homes


async def test_whole_calls_are_calls() -> None:
    reply = await replied(lambda _: iter(["Let me add.", CALL, CALL]))

    assert (reply.text, reply.calls, reply.finish_reason) == (
        "Let me add.", (CALL, CALL), "tool_calls",
    )  # fmt: skip


async def test_a_whole_reply_is_kept_whole() -> None:
    sealed = Sealed("mine", {"n": 1})
    said = Reply(
        "Hi", "Hm", (CALL,), "tool_calls", Usage(7, 8), "resp_1", "m-1", sealed=(sealed,)
    )  # fmt: skip

    assert await replied(lambda _: said) == said


async def test_what_is_said_in_deltas_is_not_said_twice() -> None:
    said: list[Delta] = [
        TextDelta("Hi"), CallDelta(0, "c", "add", "{}"), SealedDelta(Sealed("mine", {})),
        Spent(Usage(1, 2)), Finished("tool_calls"),
    ]  # fmt: skip

    assert await deltas(lambda _: iter(said)) == said


async def test_what_it_raises_is_raised() -> None:
    def failing(_: ModelRequest) -> str:
        raise ProviderError("no")

    with pytest.raises(ProviderError, match="no"):
        await deltas(failing)


@pytest.mark.parametrize("answer", [None, 3, ["Hel", "lo"], {"text": "Hello"}])
async def test_what_is_no_answer_is_refused_with_what_would_be_one(answer: Any) -> None:
    with pytest.raises(TypeError, match=r"returned .*; return a text or a `Reply`"):
        await deltas(lambda _: answer)


async def test_leaving_early_closes_what_it_says() -> None:
    closed = asyncio.Event()

    async def endless(_: ModelRequest) -> AsyncIterator[str]:
        try:
            while True:
                yield "on "
        finally:
            closed.set()

    stream = FunctionProvider(endless).stream(REQUEST)
    await anext(stream)

    await stream.aclose()

    assert closed.is_set()


class Once:
    """An iterator that is no generator."""

    def __init__(self) -> None:
        self._left = ["Hello"]

    def __aiter__(self) -> "Once":
        return self

    async def __anext__(self) -> str:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


async def test_any_async_iterator_will_do() -> None:
    assert (await replied(lambda _: Once())).text == "Hello"
