"""How far a model call has come: who may bill it, wherever on its way it is cut off."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import FellBack, ModelRequest, Provider, Spent
from milepost.core.usage import Usage
from milepost.providers.asked import Asked, current, following
from milepost.providers.cache_memory import InProcessCache
from milepost.providers.caching import Caching
from milepost.providers.concurrency import Concurrent
from milepost.providers.fallback import Fallback
from milepost.providers.retrying import Retrying
from milepost.providers.scripted import Scripted, saying
from tests.runtime.workshop import TIMEOUT_S, Held

QUESTION = ModelRequest("tenant", "stub", (Message("user", "Hi"),), cache_ttl_s=60)
SILENT = ProviderError("late", code="provider_timeout", retryable=True)
BUSY = ProviderError("busy", code="provider_overloaded", retryable=True, status=503)


def mute() -> Held:
    """Return a model that is asked, and says nothing."""
    return Held(Spent(Usage()))


async def cut_off(asked: Asked, provider: Provider, reached: asyncio.Event) -> int:
    """Ask, cut that off once it has `reached` a place, and return who may bill it."""

    async def ask() -> None:
        with following(asked):
            asked.begin()
            async for _ in provider.stream(QUESTION):
                pass

    asking = asyncio.create_task(ask())
    await asyncio.wait_for(reached.wait(), TIMEOUT_S)
    asking.cancel()
    await asyncio.wait({asking})
    return asked.unknown_calls


async def test_before_anybody_is_asked_nobody_sends_a_bill() -> None:
    assert Asked().unknown_calls == 0


async def test_whoever_is_asked_may_bill_it() -> None:
    model = mute()

    assert await cut_off(Asked(), model, model.reached) == 1


class Waiting(Asked):
    """Says when its call begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    def waiting(self) -> AbstractContextManager[None]:  # type: ignore[override]  # contextlib's own
        """Say so."""
        self.reached.set()
        return super().waiting()


@pytest.mark.parametrize(
    "in_line",
    [
        lambda model: Concurrent(model, calls_max=1, name="acme"),
        lambda model: Caching(model, InProcessCache(), scope="acme"),
    ],
    ids=["for a place", "for the same reply"],
)
async def test_a_call_that_waits_behind_another_one_was_not_sent(
    in_line: Callable[[Provider], Provider],
) -> None:
    ahead, asked = mute(), Waiting()
    provider = in_line(ahead)
    leaving = asyncio.Event()
    first = asyncio.create_task(cut_off(Asked(), provider, leaving))
    await asyncio.wait_for(ahead.reached.wait(), TIMEOUT_S)

    assert await cut_off(asked, provider, asked.reached) == 0
    leaving.set()
    assert await first == 1


@pytest.mark.parametrize(("error", "unknown"), [(SILENT, 1), (BUSY, 0)])
async def test_between_two_attempts_only_the_first_one_may_be_billed(
    error: ProviderError, unknown: int
) -> None:
    sleeping = asyncio.Event()

    async def sleep(_: float) -> None:
        sleeping.set()
        await asyncio.Event().wait()

    provider = Retrying(Scripted([error]), sleep=sleep)

    assert await cut_off(Asked(), provider, sleeping) == unknown


async def test_each_that_was_at_work_before_the_one_that_is_silent_may_bill_it() -> None:
    last = mute()
    models: list[Provider] = [Scripted([SILENT]), Scripted([BUSY]), last]
    provider = Fallback([(f"v/{n}", model) for n, model in enumerate(models)])

    assert await cut_off(Asked(), provider, last.reached) == 2


async def test_who_failed_is_counted_once_however_many_hear_of_it() -> None:
    asked = Asked()
    provider = Fallback([("v/0", Scripted([SILENT])), ("v/1", Scripted([SILENT]))])

    with following(asked), pytest.raises(ProviderError) as caught:
        async for _ in provider.stream(QUESTION):
            pass
    asked.fail(caught.value)

    assert asked.cut_off == asked.unknown_calls == 2


async def test_a_reply_that_broke_off_may_be_billed_whatever_its_error_says() -> None:
    asked = Asked()
    asked.begin()

    asked.fail(BUSY, spoken=True)

    assert asked.cut_off == 1


async def test_what_a_provider_falls_back_from_by_itself_is_told_by_its_stream() -> None:
    asked = Asked()
    for at_work in (True, False, True):
        asked.fall_back(FellBack("a/b", "c/d", "provider_timeout", "late", at_work))

    assert asked.cut_off == 2


async def test_what_was_counted_as_it_failed_is_not_counted_again_as_it_is_told() -> None:
    asked = Asked()
    provider = Fallback([("v/0", Scripted([SILENT])), ("v/1", Scripted([saying("Hi")]))])

    with following(asked):
        async for delta in provider.stream(QUESTION):
            if isinstance(delta, FellBack):
                asked.fall_back(delta)

    assert asked.cut_off == 1


async def test_a_call_that_nobody_follows_tells_itself() -> None:
    asked = current()
    asked.begin()

    assert current().unknown_calls == 0


async def test_a_vendor_that_says_so_was_at_work_whatever_its_code() -> None:
    asked, wasted = Asked(), ProviderError("spoilt", retryable=True, status=500)
    wasted.at_work = True
    provider = Fallback([("v/0", Scripted([wasted])), ("v/1", Scripted([wasted]))])

    with following(asked), pytest.raises(ProviderError):
        async for _ in provider.stream(QUESTION):
            pass

    assert asked.cut_off == 2
