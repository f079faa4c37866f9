"""A provider that asks again: how often, after which wait, and when not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import ModelRequest, Reply, Spent, TextDelta
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.fallback import Fallback
from milepost.providers.retrying import JITTER, Retrying
from milepost.providers.scripted import Script, Scripted, saying

QUESTION = ModelRequest("tenant", "stub", (Message("user", "Hi"),))
OVERLOADED = ProviderError("busy", code="provider_overloaded", retryable=True, status=503)
LIMITED = ProviderError("slow down", code="provider_rate_limited", retryable=True, status=429)


class Waits:
    """A sleep that takes no time, and remembers how long it was."""

    def __init__(self) -> None:
        self.s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.s.append(seconds)


def retrying(*replies: Script, waits: Waits | None = None, chance: float = 0.0) -> Retrying:
    return Retrying(Scripted(replies), sleep=waits or Waits(), chance=lambda: chance)


async def replied(provider: Retrying) -> Reply:
    assembly = Assembly()
    async for delta in provider.stream(QUESTION):
        assembly.feed(delta)
    return assembly.reply()


async def test_by_default_there_are_three_attempts() -> None:
    scripted = Scripted([OVERLOADED, OVERLOADED, saying("Hello"), saying("never asked")])

    reply = await replied(Retrying(scripted, sleep=Waits()))

    assert reply.text == "Hello"
    assert len(scripted.requests) == 3


async def test_the_waits_grow_by_one_second_each() -> None:
    waits = Waits()

    await replied(retrying(OVERLOADED, OVERLOADED, saying("Hello"), waits=waits))

    assert waits.s == [1.0, 2.0]


async def test_a_rate_limit_cools_down_on_top_of_that() -> None:
    waits = Waits()

    await replied(retrying(LIMITED, LIMITED, saying("Hello"), waits=waits))

    assert waits.s == [6.0, 12.0]


@pytest.mark.parametrize("message", ["error 4290", "no rate limit here", "429"])
async def test_a_rate_limit_is_told_by_its_code_and_not_by_its_words(message: str) -> None:
    waits = Waits()
    failed = ProviderError(message, code="provider_overloaded", retryable=True)

    await replied(retrying(failed, saying("Hello"), waits=waits))

    assert waits.s == [1.0]


async def test_the_last_attempts_error_is_raised_and_never_an_answer() -> None:
    last = ProviderError("still busy", code="provider_overloaded", retryable=True)

    with pytest.raises(ProviderError) as caught:
        await replied(retrying(OVERLOADED, OVERLOADED, last))

    assert caught.value is last


@pytest.mark.parametrize("error", [ValueError("ours"), ProviderError("no", code="provider_auth")])
async def test_only_a_vendors_failure_that_may_pass_is_tried_again(error: Exception) -> None:
    waits = Waits()

    with pytest.raises(type(error)):
        await replied(retrying(error, saying("never asked"), waits=waits))

    assert waits.s == []


async def test_a_reply_that_broke_off_is_not_said_twice() -> None:
    scripted = Scripted([[TextDelta("Hel"), OVERLOADED], saying("Hello")])
    stream = Retrying(scripted, sleep=Waits()).stream(QUESTION)
    first = await anext(stream)

    with pytest.raises(ProviderError, match="busy"):
        await anext(stream)

    assert first == TextDelta("Hel")
    assert len(scripted.requests) == 1


async def test_a_vendor_that_counts_the_prompt_before_it_refuses_is_asked_again() -> None:
    counted = Spent(Usage(input_tokens=7))

    heard = [
        delta
        async for delta in retrying([counted, OVERLOADED], [counted, TextDelta("Hi")]).stream(
            QUESTION
        )
    ]

    assert heard == [counted, TextDelta("Hi")]


@pytest.mark.parametrize(("asked_s", "wait_s"), [(0.2, 6.0), (20.0, 20.0), (60.0, 60.0)])
async def test_what_the_vendor_asks_for_is_the_least(asked_s: float, wait_s: float) -> None:
    waits = Waits()
    limited = ProviderError(
        "slow down", code="provider_rate_limited", retryable=True, retry_after_s=asked_s
    )

    await replied(retrying(limited, saying("Hello"), waits=waits))

    assert waits.s == [wait_s]


async def test_a_vendor_that_asks_for_more_than_a_minute_is_not_waited_for() -> None:
    waits = Waits()
    limited = ProviderError("tomorrow", retryable=True, retry_after_s=61)

    with pytest.raises(ProviderError, match="tomorrow"):
        await replied(retrying(limited, saying("Hello"), waits=waits))

    assert waits.s == []


@given(chance=st.floats(0, 1), retries=st.integers(1, 10))
async def test_chance_only_adds_to_a_wait_and_by_a_quarter_at_most(
    chance: float, retries: int
) -> None:
    waits = Waits()
    provider = Retrying(
        Scripted([OVERLOADED] * retries + [saying("Hello")]),
        retries=retries,
        sleep=waits,
        chance=lambda: chance,
    )

    await replied(provider)

    assert len(waits.s) == retries
    assert all(n <= wait <= n * (1 + JITTER) for n, wait in enumerate(waits.s, start=1))


async def test_it_wraps_a_fallback_which_is_gone_through_anew() -> None:
    first = Scripted([OVERLOADED, OVERLOADED])
    second = Scripted([LIMITED, saying("Hello")])
    waits = Waits()
    provider = Retrying(Fallback([("a/one", first), ("b/two", second)]), sleep=waits)

    reply = await replied(provider)

    assert reply.text == "Hello"
    assert len(waits.s) == 1
