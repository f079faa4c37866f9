"""Requests and tokens a minute: counted in memory and in Redis, waited for in order, corrected."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from milepost.core.backoff import RETRY_AFTER_S_MAX
from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import (
    Delta,
    Finished,
    ModelRequest,
    Provider,
    Spent,
    TextDelta,
    ToolSchema,
)
from milepost.core.usage import Usage
from milepost.providers.cache_redis import connect
from milepost.providers.rate_limits import REPLY_TOKENS_GUESS, RateLimited
from milepost.providers.redis_asking import Asking
from milepost.providers.scripted import Script, Scripted
from milepost.providers.windows import InProcessWindows, Quota, Windows
from milepost.providers.windows_redis import WINDOW_PREFIX, RedisWindows
from tests.clock import Clock
from tests.providers.redis_stubs import (
    PATIENT_S,
    deaf_server,
    patient_asking,
    patient_client,
    scripted_server,
)

WINDOW_MS = 60_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def name() -> str:
    """A name of this test alone: the server is shared."""
    return uuid.uuid4().hex


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = patient_client(redis_url)
    yield redis
    await redis.aclose()


def in_redis(redis: Redis, clock: Clock) -> RedisWindows:
    local = InProcessWindows(clock.ms)
    return RedisWindows(redis, patient_asking(clock), local, now_ms=clock.ms)


@pytest.fixture(params=["memory", "redis"])
async def windows(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Windows]:
    if request.param == "memory":
        yield InProcessWindows(clock.ms)
        return
    redis = patient_client(request.getfixturevalue("redis_url"))
    yield in_redis(redis, clock)
    await redis.aclose()


async def taken(windows: Windows, name: str, quota: Quota, *tokens: int) -> list[float]:
    """Take for one call after the other; return how long each would have to wait."""
    return [(await windows.take(name, quota, each)).wait_s for each in tokens]


# --- Windows ----------------------------------------------------------------------------------


async def test_a_minute_has_so_many_requests_and_the_next_waits_for_the_first_to_lapse(
    windows: Windows, name: str, clock: Clock
) -> None:
    quota = Quota(requests=2)
    first = await taken(windows, name, quota, 0)
    clock.now += 10

    assert first == [0]
    assert await taken(windows, name, quota, 0, 0) == [0, 51]


async def test_a_minute_has_so_many_tokens_and_a_call_waits_for_all_that_it_needs(
    windows: Windows, name: str, clock: Clock
) -> None:
    quota = Quota(tokens=100)
    await taken(windows, name, quota, 30)
    clock.now += 10
    await taken(windows, name, quota, 30)
    clock.now += 10

    assert await taken(windows, name, quota, 70, 71, 40, 1) == [41, 51, 0, 41]


async def test_neither_is_taken_where_one_is_used_up(windows: Windows, name: str) -> None:
    both = Quota(requests=10, tokens=100)
    await taken(windows, name, both, 100)

    await taken(windows, name, both, *[1] * 20)

    assert await taken(windows, name, Quota(requests=10), *[0] * 9) == [0] * 9


async def test_more_than_a_minute_ever_has_takes_all_of_it(windows: Windows, name: str) -> None:
    quota = Quota(tokens=100)

    assert await taken(windows, name, quota, 5_000, 1) == [0, 61]


async def test_a_guess_is_corrected_both_ways(windows: Windows, name: str) -> None:
    quota = Quota(tokens=100)
    small = await windows.take(name, quota, 10)
    large = await windows.take(name, quota, 5_000)
    assert large.wait_s
    large = await windows.take(name, quota, 90)

    await windows.correct(name, small, 60)
    over = await taken(windows, name, quota, 1)
    await windows.correct(name, large, 0)

    assert over == [61]
    assert await taken(windows, name, quota, 40, 1) == [0, 61]


async def test_what_lapsed_is_not_corrected(windows: Windows, name: str, clock: Clock) -> None:
    quota = Quota(tokens=100)
    old = await windows.take(name, quota, 100)
    clock.now += 61
    await taken(windows, name, quota, 1)

    await windows.correct(name, old, 0)

    assert await taken(windows, name, quota, 99, 1) == [0, 61]


async def test_who_has_no_quota_never_waits(windows: Windows, name: str) -> None:
    assert await taken(windows, name, Quota(), *[10**9] * 20) == [0] * 20


async def test_names_do_not_share_a_quota(windows: Windows, name: str) -> None:
    quota = Quota(requests=1)

    assert await taken(windows, name, quota, 0) == [0]
    assert await taken(windows, name + "2", quota, 0) == [0]


async def test_all_processes_share_a_quota(redis: Redis, name: str, clock: Clock) -> None:
    here, there = in_redis(redis, clock), in_redis(redis, clock)
    quota = Quota(requests=3)

    waits = [await taken(windows, name, quota, 0) for windows in (here, there, here, there)]

    assert waits == [[0], [0], [0], [61]]


async def test_names_that_nobody_has_used_for_a_minute_are_not_kept_for_ever(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.providers.windows.NAMES_MAX", 3)
    windows, quota = InProcessWindows(clock.ms), Quota(requests=1)
    for name in ("one", "two", "three", "four"):
        await windows.take(name, quota, 0)
    clock.now += 90
    await windows.take("five", quota, 0)

    assert (await windows.take("five", quota, 0)).wait_s > 0
    assert [*windows._requests] == ["five"]


async def test_the_servers_clock_counts_and_the_server_forgets(redis: Redis, name: str) -> None:
    windows = RedisWindows(redis, Asking(within_s=PATIENT_S), InProcessWindows())
    quota = Quota(requests=1, tokens=10)

    waits = await taken(windows, name, quota, 1, 1)

    assert waits[0] == 0
    assert 59 <= waits[1] <= 61
    for what in ("requests", "tokens"):
        assert 0 < await redis.ttl(f"{WINDOW_PREFIX}{{{name}}}:{what}") <= 120


@pytest.mark.parametrize("said", [b":7\r\n", b"*0\r\n", b"*3\r\n+no\r\n+more\r\n+now\r\n"])
async def test_an_answer_of_another_kind_is_none(name: str, clock: Clock, said: bytes) -> None:
    async with scripted_server(said) as url, patient_client(url) as redis:
        taken = await in_redis(redis, clock).take(name, Quota(requests=2), 1)

    assert (taken.wait_s, taken.left) == (0.0, 1)


async def test_without_redis_each_process_counts_for_itself(name: str, clock: Clock) -> None:
    quota = Quota(requests=2, tokens=100)
    async with deaf_server() as url:
        redis = connect(url)
        windows = in_redis(redis, clock)
        first = await windows.take(name, quota, 100)
        used_up = await taken(windows, name, quota, 1)
        await windows.correct(name, first, 10)

        waits = await taken(windows, name, quota, 90, 0)

        await redis.aclose()
    assert used_up == [61]
    assert waits == [0, 61]


@settings(max_examples=50, deadline=None)
@given(
    limits=st.tuples(st.integers(1, 6), st.integers(1, 60)),
    calls=st.lists(
        st.tuples(st.integers(0, 25_000), st.integers(0, 80), st.integers(0, 80)), max_size=25
    ),
)
async def test_memory_and_redis_agree_and_no_minute_sees_more_than_its_quota(
    redis_url: str, limits: tuple[int, int], calls: list[tuple[int, int, int]]
) -> None:
    clock, name, redis = Clock(), uuid.uuid4().hex, patient_client(redis_url)
    memory, shared = InProcessWindows(clock.ms), in_redis(redis, clock)
    quota = Quota(requests=limits[0], tokens=limits[1])
    admitted: list[tuple[int, int]] = []

    for pause_ms, guessed, spent in calls:
        clock.now += pause_ms / 1000
        here = await memory.take(name, quota, guessed)
        there = await shared.take(name, quota, guessed)
        assert here == there
        if not here.wait_s:
            admitted.append((clock.ms(), here.tokens))
        elif spent % 2:
            # Whoever comes back when it was told to is let in.
            clock.now += here.wait_s
            assert (await memory.take(name, quota, guessed)).wait_s == 0
            assert (await shared.take(name, quota, guessed)).wait_s == 0
            admitted.append((clock.ms(), min(guessed, limits[1])))

    await redis.aclose()
    for since, _ in admitted:
        minute = [tokens for at, tokens in admitted if since <= at < since + WINDOW_MS]
        assert len(minute) <= limits[0]
        assert sum(minute) <= limits[1]


# --- The wrapper ------------------------------------------------------------------------------


def question(text: str = "", **more: int) -> ModelRequest:
    return ModelRequest("tenant", "stub", (Message("user", text),), **more)  # type: ignore[arg-type]  # only numbers are given


def replies(count: int, tokens: int = 5) -> list[Script]:
    spent = Spent(Usage(input_tokens=tokens, output_tokens=tokens))
    return [[TextDelta("Hello"), spent, Finished("stop")]] * count


async def heard(provider: Provider, request: ModelRequest | None = None) -> list[Delta]:
    return [delta async for delta in provider.stream(request or question())]


Make = Callable[..., RateLimited]


@pytest.fixture
def limited(clock: Clock) -> Make:
    def make(inner: Provider, **quota: float) -> RateLimited:
        limits = Quota(**quota)  # type: ignore[arg-type]  # each test says which
        windows = InProcessWindows(clock.ms)
        return RateLimited(inner, windows, limits, name="acme", sleep=clock.sleep)

    return make


async def test_a_call_beyond_the_quota_waits_for_its_turn(limited: Make, clock: Clock) -> None:
    provider = limited(Scripted(replies(3)), requests=2, queue_s=120)
    began = clock.now

    for _ in range(3):
        await heard(provider)

    assert clock.now - began == 61


async def test_one_that_would_wait_too_long_fails_at_once_and_says_when_to_come_back(
    limited: Make, clock: Clock
) -> None:
    scripted = Scripted(replies(2))
    provider = limited(scripted, requests=1, tokens=10_000, queue_s=30)
    await heard(provider)
    clock.now += 12

    with pytest.raises(ProviderError) as caught:
        await heard(provider)

    error = caught.value
    assert str(error) == (
        "acme is held to 1 requests and 10000 tokens a minute, and they are used up;"
        " come back in 49 s, or allow it more"
    )
    assert (error.code, error.retryable, error.retry_after_s) == (
        "provider_rate_limited",
        True,
        49,
    )
    assert len(scripted.requests) == 1


async def test_no_wait_is_so_long_that_a_run_would_not_wait_for_it(limited: Make) -> None:
    provider = limited(Scripted(replies(2)), requests=1, queue_s=1)
    await heard(provider)

    with pytest.raises(ProviderError) as caught:
        await heard(provider)

    assert caught.value.retry_after_s == RETRY_AFTER_S_MAX


async def test_a_prompt_counts_before_the_call_and_what_was_spent_after_it(
    limited: Make, clock: Clock
) -> None:
    # 400 tokens and the guess at a reply fill the minute; 10 of them turn out to be true.
    provider = limited(Scripted(replies(2)), tokens=400 + REPLY_TOKENS_GUESS, queue_s=120)
    began = clock.now

    await heard(provider, question("word" * 400))
    await heard(provider, question("word" * 390))

    assert clock.now == began


@pytest.mark.parametrize("script", [ProviderError("busy"), [TextDelta("Hello")]], ids=repr)
async def test_what_nobody_counted_stays_as_it_was_guessed(
    limited: Make, clock: Clock, script: Script
) -> None:
    provider = limited(Scripted([script, *replies(1)]), tokens=REPLY_TOKENS_GUESS, queue_s=120)
    began = clock.now

    with suppress(ProviderError):
        await heard(provider)
    await heard(provider)

    assert clock.now - began == 61


async def test_tools_count_and_a_small_bound_on_the_reply_is_taken_at_its_word(
    limited: Make, clock: Clock
) -> None:
    tool = ToolSchema("add", "x" * 4_000, {"type": "object"})
    bounded = ModelRequest("tenant", "stub", (), tools=(tool,), tokens_max=5)
    provider = limited(Scripted([[], [], []]), tokens=1_100, queue_s=120)
    began = clock.now

    await heard(provider, bounded)
    await heard(provider, question(tokens_max=50))
    both = clock.now
    await heard(provider, question(tokens_max=50))

    assert (both - began, clock.now - began) == (0, 61)


async def test_calls_are_let_through_in_the_order_in_which_they_came() -> None:
    clock, order = Clock(), list[str]()
    gate = asyncio.Event()

    class Door:
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
            order.append(request.messages[0].content)
            yield Finished("stop")

    async def sleep(seconds: float) -> None:
        await gate.wait()
        clock.now += seconds

    provider = RateLimited(
        Door(), InProcessWindows(clock.ms), Quota(requests=1, queue_s=600), name="acme", sleep=sleep
    )
    calls = [asyncio.create_task(heard(provider, question(str(n)))) for n in range(5)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls)

    assert order == ["0", "1", "2", "3", "4"]


async def test_a_waiter_that_is_cancelled_takes_nothing_and_lets_the_next_one_through() -> None:
    clock, gate = Clock(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        await gate.wait()
        clock.now += seconds

    scripted = Scripted(replies(9))
    provider = RateLimited(
        scripted,
        InProcessWindows(clock.ms),
        Quota(requests=2, queue_s=600),
        name="acme",
        sleep=sleep,
    )
    for _ in range(2):
        await heard(provider)
    waiting = [asyncio.create_task(heard(provider)) for _ in range(4)]
    await asyncio.sleep(0)
    for cancelled in waiting[:2]:
        cancelled.cancel()
    await asyncio.wait(waiting[:2])
    gate.set()
    await asyncio.gather(*waiting[2:])

    assert len(scripted.requests) == 4
    assert clock.now == 1_061


async def test_who_waits_too_long_behind_others_is_told_how_long_they_wait() -> None:
    clock, never = Clock(), asyncio.Event()

    async def sleep(_: float) -> None:
        await never.wait()

    quota = Quota(requests=1, queue_s=0.06)
    provider = RateLimited(
        Scripted(replies(3)), InProcessWindows(clock.ms), quota, name="acme", sleep=sleep
    )
    await heard(provider)
    clock.now += 60.95
    first = asyncio.create_task(heard(provider))
    await asyncio.sleep(0)

    with pytest.raises(ProviderError) as caught:
        await heard(provider)

    first.cancel()
    await asyncio.wait([first])
    assert caught.value.retry_after_s == 0.05
