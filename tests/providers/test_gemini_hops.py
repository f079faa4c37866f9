"""A reply that Gemini gives in several hops, beside what Google's own client makes of it."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google import genai
from google.genai import types

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import (
    CallDelta,
    Delta,
    Finished,
    ModelRequest,
    Reply,
    SealedDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.gemini import gemini
from milepost.providers.gemini_hops import HOPS_MAX, Hops
from milepost.providers.gemini_seals import (
    sealed_call,
    sealed_continuation,
    sealed_text,
    sealed_thought,
)
from milepost.providers.http import Http
from milepost.providers.pricing import Pricing
from milepost.providers.scripted import Scripted
from milepost.runtime.calls import priced
from tests.stubs import gemini_server
from tests.stubs.gemini_server import KEY, Chunk, answers, usage

REQUEST = ModelRequest("t", "gemini-4-argon", (Message("user", "Prove it"),), tokens_max=200_000)
TOKENS = [base64.b64encode(f"stop {n}".encode()).decode() for n in range(2)]


def part_way(text: str, token: str, prompt: int) -> list[Chunk]:
    """Return a hop that ends where the vendor has more to say."""
    last = answers(reason="CONTINUATION", usageMetadata=usage(prompt, 100, 10))
    last["candidates"][0]["continuationToken"] = token
    return [answers({"text": text}), last]


HOPS = (
    part_way("One ", TOKENS[0], 10),
    part_way("two ", TOKENS[1], 120),
    [answers({"text": "three"}, reason="STOP", usageMetadata=usage(230, 7))],
)


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http() as session:
        yield session


async def replied(http: Http, base_url: str) -> Reply:
    assembly = Assembly()
    async for delta in gemini(http, base_url=base_url, api_key=KEY).stream(REQUEST):
        assembly.feed(delta)
    return assembly.reply()


async def told(*hops: list[Delta | Exception]) -> list[Delta]:
    return [delta async for delta in Hops(Scripted(hops)).stream(REQUEST)]


async def test_hops_are_one_reply_that_is_paid_for_each(http: Http) -> None:
    async with gemini_server.serving(*HOPS) as stub:
        reply = await replied(http, stub.base_url)

    assert (reply.text, reply.finish_reason) == ("One two three", "stop")
    assert reply.usage == Usage(360, 227, reasoning_tokens=20)
    assert reply.sealed == ()


async def test_each_hop_is_priced_by_its_own_prompt(http: Http) -> None:
    hops = (
        part_way("One ", TOKENS[0], 150_000),
        part_way("two ", TOKENS[1], 150_100),
        [answers({"text": "three"}, reason="STOP", usageMetadata=usage(150_200, 7))],
    )
    async with gemini_server.serving(*hops) as stub:
        reply = await replied(http, stub.base_url)

    cost_nanos = priced(reply, Pricing(), "gemini/gemini-2.5-pro").cost_nanos

    assert reply.usage == Usage(450_300, 227, reasoning_tokens=20)
    assert cost_nanos == 450_300 * 1_250 + 227 * 10_000


async def test_a_hop_with_a_long_prompt_pays_the_higher_rate_alone(http: Http) -> None:
    hops = (
        part_way("One ", TOKENS[0], 199_950),
        [answers({"text": "two"}, reason="STOP", usageMetadata=usage(200_050, 7))],
    )
    async with gemini_server.serving(*hops) as stub:
        reply = await replied(http, stub.base_url)

    cost_nanos = priced(reply, Pricing(), "gemini/gemini-2.5-pro").cost_nanos

    assert cost_nanos == 199_950 * 1_250 + 110 * 10_000 + 200_050 * 2_500 + 7 * 15_000


async def test_each_hop_asks_the_same_and_says_where_the_last_one_ended(
    http: Http,
) -> None:
    async with gemini_server.serving(*HOPS) as stub:
        await replied(http, stub.base_url)
        first, second, third = stub.bodies

    assert second == {**first, "continuationToken": TOKENS[0]}
    assert third == {**first, "continuationToken": TOKENS[1]}


async def test_googles_own_client_makes_the_same_of_it(http: Http) -> None:
    async with gemini_server.serving(*HOPS) as stub:
        reply = await replied(http, stub.base_url)
        ours = stub.bodies
    async with gemini_server.serving(*HOPS) as stub:
        text, counted = await asyncio.to_thread(ask_with_googles_client, stub.base_url)
        theirs = stub.bodies

    assert reply.text == text
    assert reply.usage.input_tokens == counted.prompt_token_count
    assert reply.usage.output_tokens == (counted.candidates_token_count or 0) + (
        counted.thoughts_token_count or 0
    )
    assert ours == theirs


def ask_with_googles_client(base_url: str) -> tuple[str, Any]:
    options = types.HttpOptions(base_url=base_url.removesuffix("/v1beta"), api_version="v1beta")
    settings = types.GenerateContentConfig(max_output_tokens=200_000)
    with genai.Client(api_key=KEY, http_options=options) as client:
        chunks = [
            *client.models.generate_content_stream(
                model="gemini-4-argon", contents="Prove it", config=settings
            )
        ]
    return "".join(chunk.text or "" for chunk in chunks), chunks[-1].usage_metadata


async def test_what_later_hops_seal_and_ask_for_counts_from_the_beginning() -> None:
    more = SealedDelta(sealed_continuation("more"))

    deltas = await told(
        [TextDelta("One "), CallDelta(0, "a", "add"), more, Finished("length")],
        [
            TextDelta("two"),
            SealedDelta(sealed_text(0, 3, "A")),
            SealedDelta(sealed_thought("Hm", "B")),
            CallDelta(0, "b", "add"),
            SealedDelta(sealed_call(0, "C")),
            Finished("tool_calls", "r-2"),
        ],
    )

    assert deltas == [
        TextDelta("One "),
        CallDelta(0, "a", "add"),
        TextDelta("two"),
        SealedDelta(sealed_text(4, 7, "A")),
        SealedDelta(sealed_thought("Hm", "B")),
        CallDelta(1, "b", "add"),
        SealedDelta(sealed_call(1, "C")),
        Finished("tool_calls", "r-2"),
    ]


async def test_a_reply_without_hops_passes_as_it_is() -> None:
    deltas: list[Delta | Exception] = [
        TextDelta("Hi"),
        SealedDelta(sealed_text(0, 2, "A")),
        Spent(Usage(9, 1)),
        Finished("stop", "r-1", "m"),
    ]

    assert await told(deltas) == deltas


async def test_a_reply_that_never_stops_ends_at_a_bound() -> None:
    hop: list[Delta | Exception] = [
        TextDelta("on "),
        SealedDelta(sealed_continuation("more")),
        Spent(Usage(1, 1)),
        Finished("length"),
    ]

    deltas = await told(*[hop] * (HOPS_MAX + 1))

    assert deltas.count(TextDelta("on ")) == HOPS_MAX
    spent = Spent(Usage(HOPS_MAX, HOPS_MAX), (Usage(1, 1),) * HOPS_MAX)
    assert deltas[-2:] == [spent, Finished("length")]


async def test_a_hop_that_fails_fails_the_reply() -> None:
    more: list[Delta | Exception] = [SealedDelta(sealed_continuation("m")), Finished("length")]

    with pytest.raises(ProviderError, match="too busy"):
        await told(more, [ProviderError("too busy", retryable=True)])


async def test_a_hop_that_is_refused_does_not_undo_the_bill_of_those_before_it() -> None:
    more = SealedDelta(sealed_continuation("m"))
    limited = ProviderError("slow down", code="provider_rate_limited", status=429)

    with pytest.raises(ProviderError) as caught:
        await told([more, Spent(Usage(9, 1)), Finished("length")], [limited])

    assert caught.value.at_work


async def test_a_first_hop_that_is_refused_owes_nothing() -> None:
    with pytest.raises(ProviderError) as caught:
        await told([ProviderError("slow down", code="provider_rate_limited", status=429)])

    assert caught.value.at_work is None


async def test_a_hop_that_is_cut_leaves_the_reply_without_an_end() -> None:
    more: list[Delta | Exception] = [SealedDelta(sealed_continuation("m")), Finished("length")]

    deltas = await told(more, [TextDelta("Hi")])

    assert deltas == [TextDelta("Hi")]
