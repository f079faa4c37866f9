"""A model that is a Python function: for tests, local models, and whoever has a client already."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing

from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ModelRequest,
    ReasoningDelta,
    Reply,
    RequestedCall,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.tokens import estimate, estimate_prompt

Piece = str | RequestedCall | Delta
Whole = str | Reply
Answered = Whole | AsyncIterator[Piece] | Iterator[Piece]
Answer = Callable[[ModelRequest], Answered | Awaitable[Answered]]
"""Answers a request: with a text or a reply, or piece by piece, with whole calls among them."""


class FunctionProvider:
    """Streams what a function says: a whole answer is one piece.

    A function that is not `async` is called in a thread, and so is each step of its generator, with
    the caller's context variables. What it does not say is made up for: why it stopped, and a guess
    at the tokens.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream the reply. What the function raises goes to the caller as it is."""
        told = _Told()
        async with aclosing(self._pieces(request)) as pieces:
            async for piece in pieces:
                for delta in told.deltas(piece):
                    yield delta
        for delta in told.rest(request):
            yield delta

    async def _pieces(self, request: ModelRequest) -> AsyncGenerator[Piece | Reply, None]:
        answered = await self._answered(request)
        match answered:
            case str() | Reply():
                yield answered
            case AsyncGenerator():
                async with aclosing(answered):
                    async for piece in answered:
                        yield piece
            case AsyncIterator():
                async for piece in answered:
                    yield piece
            case Iterator():
                while (piece := await asyncio.to_thread(_next, answered)) is not None:
                    yield piece
            case _:
                raise TypeError(
                    f"the function that answers for {request.model!r} returned {answered!r};"
                    " return a text or a `Reply`, or yield pieces"
                )

    async def _answered(self, request: ModelRequest) -> Answered:
        if _is_async(self._answer):
            answered = self._answer(request)
        else:
            answered = await asyncio.to_thread(self._answer, request)
        return await answered if inspect.isawaitable(answered) else answered


class _Told:
    """What was said so far of one reply."""

    def __init__(self) -> None:
        self._chars = 0
        self._calls = 0
        self._finished = False
        self._spent = False

    def deltas(self, piece: Piece | Reply) -> Iterator[Delta]:
        """Yield the deltas that the piece is."""
        match piece:
            case str():
                yield from self._note(TextDelta(piece))
            case RequestedCall(provider_id, name, arguments):
                yield from self._note(CallDelta(self._calls, provider_id, name, arguments))
            case Reply():
                for delta in _deltas_of(piece):
                    yield from self._note(delta)
            case _:
                yield from self._note(piece)

    def rest(self, request: ModelRequest) -> Iterator[Delta]:
        """Yield what was left unsaid."""
        if not self._spent:
            yield Spent(Usage(estimate_prompt(request), estimate(self._chars)))
        if not self._finished:
            yield Finished("tool_calls" if self._calls else "stop")

    def _note(self, delta: Delta) -> Iterator[Delta]:
        match delta:
            case TextDelta(text) | ReasoningDelta(text):
                self._chars += len(text)
            case CallDelta(index):
                self._calls = max(self._calls, index + 1)
            case Finished():
                self._finished = True
            case Spent():
                self._spent = True
            case _:
                pass  # Neither counts nor ends.
        yield delta


def _next(pieces: Iterator[Piece]) -> Piece | None:
    return next(pieces, None)


def _deltas_of(reply: Reply) -> Iterator[Delta]:
    if reply.reasoning:
        yield ReasoningDelta(reply.reasoning)
    if reply.text:
        yield TextDelta(reply.text)
    for index, call in enumerate(reply.calls):
        yield CallDelta(index, call.provider_id, call.name, call.arguments)
    for sealed in reply.sealed:
        yield SealedDelta(sealed)
    yield Spent(reply.usage, reply.requests)
    yield Finished(reply.finish_reason, reply.response_id, reply.model, reply.assumed)


def _is_async(function: Answer) -> bool:
    """Say whether calling it blocks nothing: what it does is done when it is awaited."""
    called = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
