"""A provider that answers from a cache what it was asked before."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import (
    CacheHit,
    Delta,
    Finished,
    ModelRequest,
    Provider,
    Reply,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.cache import ReplyCache
from milepost.providers.cache_key import cache_key, owner_key
from milepost.providers.cache_memory import OWNERS_MAX, InProcessCache
from milepost.providers.cache_redis import RedisCache, connect
from milepost.providers.caching import Caching
from milepost.providers.pricing import Pricing
from milepost.providers.scripted import Scripted, calling, saying
from milepost.providers.tariff import plain_tariff
from milepost.runtime.calls import priced
from tests.providers.redis_stubs import PATIENT_S, patient_client


class Gated:
    """A provider that says nothing before `open` is set, and tells when it was asked."""

    def __init__(self, inner: Provider) -> None:
        self.asked = asyncio.Event()
        self.open = asyncio.Event()
        self.left = asyncio.Event()
        self._inner = inner

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.asked.set()
        try:
            await self.open.wait()
            async for delta in self._inner.stream(request):
                yield delta
        finally:
            self.left.set()


@pytest.fixture(params=["memory", "redis"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[ReplyCache]:
    if request.param == "memory":
        yield InProcessCache()
        return
    redis = patient_client(request.getfixturevalue("redis_url"))
    yield RedisCache(redis, within_s=PATIENT_S)
    await redis.aclose()


@pytest.fixture
def question() -> ModelRequest:
    """A question of this test alone: the server is shared."""
    return ModelRequest(uuid.uuid4().hex, "stub", (Message("user", "Hi"),), cache_ttl_s=60)


def caching(
    inner: Provider, cache: ReplyCache, *, wait_s: float = 20.0, now_ms: int = 1_000
) -> Caching:
    return Caching(
        inner, cache, scope="openai|local", now_ms=lambda: now_ms, wait_s=wait_s, poll_s=0.005
    )


async def replied(provider: Provider, request: ModelRequest) -> Reply:
    assembly = Assembly()
    async for delta in provider.stream(request):
        assembly.feed(delta)
    return assembly.reply()


async def test_the_second_time_nobody_asks_the_model(
    cache: ReplyCache, question: ModelRequest
) -> None:
    inner = Scripted([saying("Hello you", usage=Usage(9, 2))])
    provider = caching(inner, cache)

    first, second = await replied(provider, question), await replied(provider, question)

    assert (first.text, first.cached, first.usage) == ("Hello you", False, Usage(9, 2))
    assert (second.text, second.cached) == ("Hello you", True)
    assert second.usage == Usage(saved_input_tokens=9, saved_output_tokens=2)
    assert len(inner.requests) == 1


async def test_no_more_is_saved_than_the_reply_had_cost(
    cache: ReplyCache, question: ModelRequest
) -> None:
    tariff = plain_tariff(Decimal(5), Decimal(25), Decimal("0.5"), Decimal("6.25"))
    pricing = Pricing(own={"own/model": tariff})
    taken = Usage(1_000, 20, cache_read_tokens=900, cache_write_tokens=50, reasoning_tokens=7)
    provider = caching(Scripted([saying("Hello you", usage=taken)]), cache)

    first, second = await replied(provider, question), await replied(provider, question)

    cost_nanos = priced(first, pricing, "own/model").cost_nanos
    assert priced(second, pricing, "own/model") == Usage(
        saved_input_tokens=1_000, saved_output_tokens=20, saved_cost_nanos=cost_nanos
    )


async def test_no_more_is_saved_than_a_reply_of_several_requests_had_cost(
    cache: ReplyCache, question: ModelRequest
) -> None:
    requests = (Usage(150_000, 20), Usage(150_020, 30))
    spent = Spent(Usage(300_020, 50), requests)
    inner = Scripted([[TextDelta("Hello you"), spent, Finished("stop")]])
    provider = caching(inner, cache)

    first, second = await replied(provider, question), await replied(provider, question)

    model = "google/gemini-2.5-pro"
    assert second.requests == requests
    assert (
        priced(second, Pricing(), model).saved_cost_nanos
        == priced(first, Pricing(), model).cost_nanos
        == 300_020 * 1_250 + 50 * 10_000
    )


async def test_tool_calls_are_cached_too(cache: ReplyCache, question: ModelRequest) -> None:
    provider = caching(Scripted([calling(("add", {"a": 1}))]), cache)

    first, second = await replied(provider, question), await replied(provider, question)

    assert (first.calls[0].provider_id, second.calls[0].provider_id) == ("call_0", "")
    assert (second.calls[0].name, second.calls[0].arguments) == ("add", '{"a":1}')
    assert second.finish_reason == "tool_calls"


async def test_a_hit_says_its_age_first_and_streams_the_text_in_one_piece(
    cache: ReplyCache, question: ModelRequest
) -> None:
    await replied(caching(Scripted([saying("Hello you")]), cache), question)

    later = caching(Scripted([]), cache, now_ms=3_000)
    deltas = [delta async for delta in later.stream(question)]

    assert deltas == [
        CacheHit(2.0),
        TextDelta("Hello you"),
        Finished("stop"),
        Spent(Usage(saved_input_tokens=10, saved_output_tokens=5)),
    ]


async def test_a_reply_is_told_to_nobody_for_whom_it_is_too_old(
    cache: ReplyCache, question: ModelRequest
) -> None:
    inner = Scripted([saying("old"), saying("new")])
    await replied(caching(inner, cache), replace(question, cache_ttl_s=86_400))
    later = caching(inner, cache, now_ms=1_000 + 61_000)

    patient = await replied(later, replace(question, cache_ttl_s=62))
    first, second = await replied(later, question), await replied(later, question)

    assert (patient.text, patient.cached) == ("old", True)
    assert (first.text, first.cached) == ("new", False)
    assert (second.text, second.cached) == ("new", True)


async def test_who_does_not_ask_for_the_cache_never_meets_it(
    cache: ReplyCache, question: ModelRequest
) -> None:
    inner = Scripted([saying("one"), saying("two"), saying("three")])
    provider = caching(inner, cache)
    await replied(provider, question)

    plain = replace(question, cache_ttl_s=None)
    texts = [(await replied(provider, plain)).text for _ in range(2)]

    assert texts == ["two", "three"]


async def test_tenants_and_scopes_do_not_share_replies(
    cache: ReplyCache, question: ModelRequest
) -> None:
    inner = Scripted([saying("one"), saying("two"), saying("three")])
    await replied(caching(inner, cache), question)

    other_tenant = replace(question, tenant=uuid.uuid4().hex)
    second = await replied(caching(inner, cache), other_tenant)
    third = await replied(Caching(inner, cache, scope="another key"), question)

    assert (second.text, third.text) == ("two", "three")


@pytest.mark.parametrize(
    "failing",
    [
        ProviderError("down"),
        [TextDelta("Hel"), ProviderError("down")],
        [TextDelta("Hel")],
    ],
    ids=["refused", "failed in the middle", "cut"],
)
async def test_a_failure_is_not_kept(
    cache: ReplyCache, question: ModelRequest, failing: list[Delta | Exception] | ProviderError
) -> None:
    provider = caching(Scripted([failing, saying("Hello")]), cache)
    with pytest.raises(ProviderError):
        await replied(provider, question)

    reply = await replied(provider, question)

    assert (reply.text, reply.cached) == ("Hello", False)


async def test_a_reply_cut_at_its_bound_is_not_kept(
    cache: ReplyCache, question: ModelRequest
) -> None:
    cut: list[Delta] = [TextDelta("Hel"), Finished("length")]
    provider = caching(Scripted([cut, saying("Hello")]), cache)
    await replied(provider, question)

    assert (await replied(provider, question)).text == "Hello"


async def test_a_stream_left_early_is_closed_and_not_kept(
    cache: ReplyCache, question: ModelRequest
) -> None:
    gated = Gated(Scripted([saying("Hello you"), saying("Hello you")]))
    gated.open.set()
    provider = caching(gated, cache)
    async for _ in (leaving := provider.stream(question)):
        break

    await leaving.aclose()  # type: ignore[attr-defined]  # a provider returns a generator

    assert gated.left.is_set()
    assert not (await replied(provider, question)).cached


async def test_a_damaged_value_is_a_miss_and_is_replaced(
    cache: ReplyCache, question: ModelRequest
) -> None:
    key = cache_key(question, "openai|local")
    await cache.set(key, b'{"v": 1, "text": "poison"}', 60)
    provider = caching(Scripted([saying("Hello")]), cache)

    first, second = await replied(provider, question), await replied(provider, question)

    assert (first.text, first.cached, second.cached) == ("Hello", False, True)


async def test_the_same_question_at_the_same_time_is_asked_once(
    cache: ReplyCache, question: ModelRequest
) -> None:
    inner = Scripted([saying("Hello")])
    gated = Gated(inner)
    provider = caching(gated, cache)
    asking = [asyncio.create_task(replied(provider, question)) for _ in range(10)]
    await gated.asked.wait()

    gated.open.set()
    replies = await asyncio.gather(*asking)

    assert {reply.text for reply in replies} == {"Hello"}
    assert sum(reply.cached for reply in replies) == 9
    assert len(inner.requests) == 1


async def test_after_a_flight_has_landed_the_next_one_leads_again(
    cache: ReplyCache, question: ModelRequest
) -> None:
    inner = Scripted([saying("one"), saying("two")])
    gated = Gated(inner)
    gated.open.set()
    provider = caching(gated, cache)
    await replied(provider, question)
    await cache.delete(cache_key(question, "openai|local"))
    gated.open.clear()
    gated.asked.clear()
    asking = [asyncio.create_task(replied(provider, question)) for _ in range(5)]
    await gated.asked.wait()

    gated.open.set()

    assert {reply.text for reply in await asyncio.gather(*asking)} == {"two"}
    assert len(inner.requests) == 2


class Late(InProcessCache):
    """A cache whose next look takes until `go` is set, once `is_late`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_late = False
        self.go, self.looking = asyncio.Event(), asyncio.Event()

    async def get(self, key: str) -> bytes | None:
        found = await super().get(key)
        if self.is_late:
            self.is_late = False
            self.looking.set()
            await self.go.wait()
        return found


async def test_who_looked_before_another_s_answer_was_kept_finds_it_all_the_same(
    question: ModelRequest,
) -> None:
    cache, gated = Late(), Gated(Scripted([saying("Hello")]))
    provider = caching(gated, cache)
    first = asyncio.create_task(replied(provider, question))
    await gated.asked.wait()
    cache.is_late = True
    second = asyncio.create_task(replied(provider, question))
    await cache.looking.wait()

    gated.open.set()
    assert (await first).text == "Hello"
    cache.go.set()

    assert ((await second).text, (await second).cached) == ("Hello", True)


async def test_two_processes_ask_once_too(cache: ReplyCache, question: ModelRequest) -> None:
    gated = Gated(Scripted([saying("Hello")]))
    here, there = caching(gated, cache), caching(Scripted([]), cache)
    asking = asyncio.create_task(replied(here, question))
    await gated.asked.wait()

    asyncio.get_running_loop().call_later(0.05, gated.open.set)
    second = await replied(there, question)

    assert (second.text, second.cached) == ("Hello", True)
    assert not (await asking).cached


async def test_who_has_waited_long_enough_for_a_sibling_asks_for_himself(
    cache: ReplyCache, question: ModelRequest
) -> None:
    stuck = Gated(Scripted([saying("mine")]))
    provider = caching(stuck, cache, wait_s=0.02)
    asking = asyncio.create_task(replied(provider, question))
    await stuck.asked.wait()
    stuck.asked.clear()

    sibling = asyncio.create_task(replied(provider, question))

    await asyncio.wait_for(stuck.asked.wait(), 5)
    for task in (asking, sibling):
        task.cancel()
    await asyncio.wait((asking, sibling))


async def test_who_has_waited_long_enough_for_another_process_asks_for_himself(
    cache: ReplyCache, question: ModelRequest
) -> None:
    await cache.lock(cache_key(question, "openai|local"), 60)
    provider = caching(Scripted([saying("mine")]), cache, wait_s=0.02)

    reply = await asyncio.wait_for(replied(provider, question), 5)

    assert (reply.text, reply.cached) == ("mine", False)


async def test_when_the_first_fails_the_others_ask_for_themselves(
    cache: ReplyCache, question: ModelRequest
) -> None:
    gated = Gated(Scripted([ProviderError("down"), saying("two"), saying("three")]))
    provider = caching(gated, cache)
    asking = [asyncio.create_task(replied(provider, question)) for _ in range(3)]
    await gated.asked.wait()

    gated.open.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)

    assert sum(isinstance(outcome, ProviderError) for outcome in outcomes) == 1
    assert {o.text for o in outcomes if isinstance(o, Reply)} <= {"two", "three"}


async def test_a_cancelled_call_lets_the_next_one_through(
    cache: ReplyCache, question: ModelRequest
) -> None:
    gated = Gated(Scripted([saying("Hello")]))
    provider = caching(gated, cache)
    asking = asyncio.create_task(replied(provider, question))
    await gated.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    gated.open.set()

    assert (await asyncio.wait_for(replied(provider, question), 5)).text == "Hello"


async def test_who_stops_waiting_for_another_process_is_in_nobodys_way(
    cache: ReplyCache, question: ModelRequest
) -> None:
    gated = Gated(Scripted([saying("Hello")]))
    there = caching(Scripted([]), cache)
    asking = asyncio.create_task(replied(caching(gated, cache), question))
    await gated.asked.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(replied(there, question), 0.05)

    gated.open.set()
    await asking

    assert (await asyncio.wait_for(replied(there, question), 5)).cached


async def test_without_redis_the_model_is_simply_asked(
    question: ModelRequest, unused_tcp_port: int
) -> None:
    redis = connect(f"redis://127.0.0.1:{unused_tcp_port}/0")
    provider = caching(Scripted([saying("one"), saying("two")]), RedisCache(redis))

    texts = [(await replied(provider, question)).text for _ in range(2)]

    assert texts == ["one", "two"]
    await redis.aclose()


async def test_an_owner_is_forgotten_with_all_that_came_of_what_they_said(
    cache: ReplyCache,
) -> None:
    mine = uuid.uuid4().hex
    ann, bob = f"{mine}:ann", f"{mine}:bob"
    await cache.set(f"{mine}:anns", b"1", 60, ann)
    await cache.set(f"{mine}:both", b"2", 60, bob)
    await cache.mark(f"{mine}:both", ann, 60)
    await cache.set(f"{mine}:bobs", b"3", 60, bob)
    await cache.set(f"{mine}:nobodys", b"4", 60)

    forgotten = await cache.forget(ann)

    kept = [await cache.get(f"{mine}:{name}") for name in ("anns", "both", "bobs", "nobodys")]
    assert forgotten == 2
    assert kept == [None, None, b"3", b"4"]
    assert await cache.forget(ann) == 0


async def test_a_reply_is_of_whoever_asked_and_of_whoever_asked_the_same(
    cache: ReplyCache, question: ModelRequest
) -> None:
    provider = caching(Scripted([saying("Hello.")]), cache)
    for user in ("ann", "bob"):
        await replied(provider, replace(question, user=user))

    assert await cache.forget(owner_key(question.tenant, "bob")) == 1
    assert await cache.forget(owner_key(question.tenant, "ann")) == 0


def test_who_asks_shapes_no_key(question: ModelRequest) -> None:
    assert cache_key(question, "s") == cache_key(replace(question, user="ann"), "s")


async def test_a_value_that_is_too_many_peoples_is_not_kept() -> None:
    cache = InProcessCache()
    await cache.set("key", b"1", 60)

    for number in range(OWNERS_MAX + 1):
        await cache.mark("key", f"owner {number}", 60)

    assert await cache.get("key") is None
