"""A provider that is asked so much at a time: places are kept, handed on in order, never lost."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import Delta, Finished, ModelRequest, Provider, TextDelta
from milepost.providers.concurrency import Concurrent
from milepost.providers.scripted import Scripted, saying


def question(text: str = "Hi") -> ModelRequest:
    return ModelRequest("tenant", "stub", (Message("user", text),))


class Turnstile:
    """Answers when it is told to, and knows who came in, and how many were in at once."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.inside = 0
        self.inside_max = 0
        self.open = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.entered.append(request.messages[0].content)
        self.inside += 1
        self.inside_max = max(self.inside, self.inside_max)
        try:
            await self.open.wait()
            yield TextDelta("Hello")
            yield Finished("stop")
        finally:
            self.inside -= 1


async def heard(provider: Provider, text: str = "Hi") -> list[Delta]:
    return [delta async for delta in provider.stream(question(text))]


async def turns() -> None:
    """Let everybody else go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_more_are_asked_at_a_time_and_all_get_their_turn_in_order() -> None:
    turnstile = Turnstile()
    provider = Concurrent(turnstile, calls_max=3, name="acme")
    calls = [asyncio.create_task(heard(provider, str(n))) for n in range(10)]
    await turns()
    first = list(turnstile.entered)

    turnstile.open.set()
    await asyncio.gather(*calls)

    assert first == ["0", "1", "2"]
    assert turnstile.entered == [str(n) for n in range(10)]
    assert turnstile.inside_max == 3


async def test_who_waits_too_long_is_told_what_stands_in_the_way() -> None:
    turnstile = Turnstile()
    provider = Concurrent(turnstile, calls_max=1, name="acme", queue_s=0.01)
    holding = asyncio.create_task(heard(provider))
    await turns()

    with pytest.raises(ProviderError, match="acme is held to 1 calls at a time") as caught:
        await heard(provider)

    turnstile.open.set()
    await holding
    assert (caught.value.code, caught.value.retryable) == ("provider_rate_limited", True)
    assert turnstile.entered == ["Hi"]
    assert TextDelta("Hello") in await heard(provider)


async def test_a_failure_gives_its_place_back() -> None:
    provider = Concurrent(
        Scripted([ProviderError("busy"), saying("Hello")]), calls_max=1, name="acme", queue_s=0.01
    )
    with pytest.raises(ProviderError, match="busy"):
        await heard(provider)

    assert TextDelta("Hello") in await heard(provider)


async def test_who_leaves_a_reply_early_gives_its_place_back() -> None:
    provider = Concurrent(Scripted([saying("a b")] * 2), calls_max=1, name="acme", queue_s=0.01)
    stream = provider.stream(question())
    await anext(stream)
    await stream.aclose()

    assert TextDelta("b") in await heard(provider)


@settings(max_examples=60, deadline=None)
@given(
    calls_max=st.integers(1, 4),
    cancelled=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 5)), max_size=12),
)
async def test_no_place_is_lost_whoever_is_cancelled_and_when(
    calls_max: int, cancelled: list[tuple[int, int]]
) -> None:
    turnstile = Turnstile()
    provider = Concurrent(turnstile, calls_max=calls_max, name="acme")
    calls = [asyncio.create_task(heard(provider, str(n))) for n in range(12)]

    for number, pauses in cancelled:
        calls[number].cancel()
        for _ in range(pauses):
            await asyncio.sleep(0)
    turnstile.open.set()
    await asyncio.wait(calls)
    again = [asyncio.create_task(heard(provider)) for _ in range(calls_max)]
    turnstile.open.clear()
    await turns()

    assert turnstile.inside == calls_max
    turnstile.open.set()
    await asyncio.wait(again)
    assert turnstile.inside_max <= calls_max
