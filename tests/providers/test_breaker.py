"""A model that keeps failing is left alone, and tried out by one caller after a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import (
    CacheHit,
    Delta,
    FellBack,
    Finished,
    ModelRequest,
    Provider,
    TextDelta,
)
from milepost.providers.breaker import Breaking
from milepost.providers.catalog import Catalog
from milepost.providers.chains import CHAINS_MAX, Chains
from milepost.providers.circuits import Entry, InProcessCircuits
from milepost.providers.failures import Failures
from milepost.providers.fallback import Fallback
from milepost.providers.scripted import Script, Scripted, saying
from tests.clock import Clock

QUESTION = ModelRequest("tenant", "one", (Message("user", "Hi"),))
BUSY = ProviderError("busy", code="provider_overloaded", retryable=True, status=503)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuits(clock: Clock) -> InProcessCircuits:
    return InProcessCircuits(clock=clock)


def breaking(circuits: InProcessCircuits, *replies: Script) -> Breaking:
    return Breaking(Scripted(replies), circuits, name="a/one")


async def heard(provider: Provider) -> list[Delta]:
    return [delta async for delta in provider.stream(QUESTION)]


async def asked(provider: Provider, times: int = 1) -> None:
    """Ask and let it fail."""
    for _ in range(times):
        with suppress(ProviderError):
            await heard(provider)


async def test_of_five_calls_the_first_model_gets_three_and_the_second_answers_all(
    circuits: InProcessCircuits,
) -> None:
    first, second = Scripted([BUSY] * 5), Scripted([saying("Hello")] * 5)
    provider = Fallback(
        [
            ("a/one", Breaking(first, circuits, name="a/one")),
            ("b/two", Breaking(second, circuits, name="b/two")),
        ]
    )

    replies = [await heard(provider) for _ in range(5)]

    assert (len(first.requests), len(second.requests)) == (3, 5)
    assert [reply[0].code for reply in replies if isinstance(reply[0], FellBack)] == [
        *["provider_overloaded"] * 3,
        *["provider_circuit_open"] * 2,
    ]


async def test_when_all_circuits_are_open_the_error_says_when_to_come_back(
    circuits: InProcessCircuits, clock: Clock
) -> None:
    provider = Fallback(
        [(name, Breaking(Scripted([BUSY] * 3), circuits, name=name)) for name in ("a/one", "b/two")]
    )
    await asked(provider, times=3)
    clock.now += 18

    with pytest.raises(ProviderError) as caught:
        await heard(provider)

    error = caught.value
    assert (error.code, error.retryable, error.retry_after_s) == ("provider_circuit_open", True, 42)
    assert "a/one failed too often in a row and is left alone; come back in 42 s" in str(error)


async def test_a_model_that_answers_again_has_its_word_back(
    circuits: InProcessCircuits, clock: Clock
) -> None:
    provider = breaking(circuits, BUSY, BUSY, BUSY, saying("Hello"), saying("Hello"))
    await asked(provider, times=3)
    clock.now += 60

    await heard(provider)

    assert TextDelta("Hello") in await heard(provider)


@pytest.mark.parametrize(
    "error",
    [
        Failures("acme", None).refused(400, {}, b"no such model"),
        Failures("acme", None).refused(401, {}, b"no such key"),
        ProviderError("our own limit", code="provider_rate_limited", retryable=True),
        ZeroDivisionError(),
    ],
    ids=["bad request", "bad key", "our own limit", "our own bug"],
)
async def test_what_is_not_the_vendors_trouble_opens_nothing(
    circuits: InProcessCircuits, error: Exception
) -> None:
    provider = breaking(circuits, *[error] * 3)
    for _ in range(3):
        with pytest.raises(type(error)):
            await heard(provider)

    assert await circuits.enter("a/one") == Entry()


async def test_a_reply_that_breaks_off_is_a_failure(circuits: InProcessCircuits) -> None:
    cut: Script = [TextDelta("Hel"), Failures("acme", None).cut_short()]

    await asked(breaking(circuits, cut, cut, cut), times=3)

    assert (await circuits.enter("a/one")).wait_s == 60


async def test_a_kept_reply_says_nothing_about_its_vendor(circuits: InProcessCircuits) -> None:
    kept: Script = [CacheHit(1.0), TextDelta("Hello"), Finished("stop")]

    await asked(breaking(circuits, BUSY, BUSY, kept, BUSY), times=4)

    assert (await circuits.enter("a/one")).wait_s == 60


async def test_a_probe_that_is_cancelled_leaves_its_place_to_the_next(
    circuits: InProcessCircuits, clock: Clock
) -> None:
    begun = asyncio.Event()

    class Silent:
        async def stream(self, _: ModelRequest) -> AsyncIterator[Delta]:
            begun.set()
            await asyncio.Event().wait()
            yield TextDelta("never")

    for _ in range(3):
        await circuits.fail("a/one")
    clock.now += 60
    probing = asyncio.create_task(heard(Breaking(Silent(), circuits, name="a/one")))
    await begun.wait()
    during = await circuits.enter("a/one")
    probing.cancel()
    await asyncio.wait([probing])

    assert not during.probe
    assert (await circuits.enter("a/one")).probe


# --- Chains -----------------------------------------------------------------------------------


async def test_a_chain_is_made_once_and_asks_its_models_in_turn(
    circuits: InProcessCircuits,
) -> None:
    told: list[str] = []
    catalog = Catalog({"a": Scripted([BUSY]), "b": Scripted([saying("Hello")])})
    chains = Chains(catalog, circuits, on_fallback=lambda failed, *_: told.append(failed))

    chain = chains.of(("a/one", "b/two"))
    deltas = await heard(chain)

    assert chains.of(("a/one", "b/two")) is chain
    assert TextDelta("Hello") in deltas
    assert told == ["a/one"]


async def test_a_model_has_one_circuit_in_whichever_chain_it_fails(
    circuits: InProcessCircuits,
) -> None:
    first = Scripted([BUSY] * 4)
    chains = Chains(Catalog({"a": first, "b": Scripted([saying("Hello")] * 4)}), circuits)

    for other in ("b/1", "b/2", "b/3", "b/4"):
        await heard(chains.of(("a/one", other)))

    assert len(first.requests) == 3


def test_a_single_model_is_asked_directly(circuits: InProcessCircuits) -> None:
    provider = Scripted([])

    assert Chains(Catalog({"a": provider}), circuits).of(("a/one",)) is provider


def test_only_so_many_chains_are_kept(circuits: InProcessCircuits) -> None:
    chains = Chains(Catalog({"a": Scripted([])}), circuits)
    first = chains.of(("a/one", "a/0"))

    for n in range(CHAINS_MAX):
        chains.of(("a/one", f"a/{n + 1}"))

    assert chains.of(("a/one", "a/0")) is not first
