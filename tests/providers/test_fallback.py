"""Models that stand in for each other: in which order, for which failures, and who is told."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from milepost.core.errors import ConfigurationError, ProviderError
from milepost.core.messages import Message
from milepost.core.model import (
    CallDelta,
    Delta,
    FellBack,
    Finished,
    ModelRequest,
    Provider,
    ReasoningDelta,
    Spent,
    TextDelta,
)
from milepost.core.usage import Usage
from milepost.providers.asked import Asked, following
from milepost.providers.failures import Failures
from milepost.providers.fallback import Fallback, OnFallback
from milepost.providers.scripted import Script, Scripted, saying

QUESTION = ModelRequest("tenant", "asked-for", (Message("user", "Hi"),))
BUSY = ProviderError("busy", code="provider_overloaded", retryable=True, status=503)
SLOW = ProviderError("late", code="provider_timeout", retryable=True)


def fallback(*scripts: Script, on_fallback: OnFallback | None = None) -> Fallback:
    """Return a fallback over models `v1/m1`, `v2/m2` and so on, each with one reply."""
    models: list[tuple[str, Provider]] = [
        (f"v{n}/m{n}", Scripted([script])) for n, script in enumerate(scripts, start=1)
    ]
    return Fallback(models, on_fallback=on_fallback)


async def heard(provider: Provider) -> list[Delta]:
    return [delta async for delta in provider.stream(QUESTION)]


async def failed(provider: Provider) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await heard(provider)
    return caught.value


def answered(status: int, body: bytes = b"") -> ProviderError:
    return Failures("acme", None).refused(status, {}, body)


async def test_the_first_success_wins_and_the_rest_are_not_asked() -> None:
    providers = [Scripted([BUSY]), Scripted([saying("Hello")]), Scripted([saying("never")])]
    provider = Fallback([("a/one", providers[0]), ("b/two", providers[1]), ("c/3", providers[2])])

    deltas = await heard(provider)

    assert TextDelta("Hello") in deltas
    assert [len(each.requests) for each in providers] == [1, 1, 0]


async def test_each_is_asked_for_its_own_model_and_for_all_else_that_was_asked() -> None:
    first, second = Scripted([BUSY]), Scripted([saying("Hello")])

    await heard(Fallback([("a/one", first), ("b/org/two", second)]))

    assert [each.requests[0].model for each in (first, second)] == ["one", "org/two"]
    assert second.requests[0].messages == QUESTION.messages


async def test_the_stream_says_who_speaks_instead_of_whom_before_the_first_word() -> None:
    deltas = await heard(fallback(BUSY, SLOW, [TextDelta("Hello"), Finished("stop")]))

    assert deltas == [
        FellBack("v1/m1", "v3/m3", "provider_overloaded", "busy"),
        FellBack("v2/m2", "v3/m3", "provider_timeout", "late", at_work=True),
        TextDelta("Hello"),
        Finished("stop"),
    ]


async def test_a_callback_is_told_who_failed_who_is_next_and_why() -> None:
    told: list[tuple[str, str, ProviderError]] = []

    def tell(failing: str, following: str, error: ProviderError) -> None:
        told.append((failing, following, error))

    await failed(fallback(BUSY, SLOW, BUSY, on_fallback=tell))

    assert told == [("v1/m1", "v2/m2", BUSY), ("v2/m2", "v3/m3", SLOW)]


async def test_a_callback_that_raises_is_not_silenced() -> None:
    def wrong(name: str) -> None: ...

    with pytest.raises(TypeError):
        await heard(fallback(BUSY, saying("Hello"), on_fallback=wrong))  # type: ignore[arg-type]  # the mistake that the test is about


@pytest.mark.parametrize(
    "error",
    [
        *(answered(status) for status in (408, 429, 500, 502, 503, 504, 522, 524, 529)),
        answered(429, b'{"error": {"code": "insufficient_quota", "message": "pay"}}'),
        answered(402, b'{"error": {"type": "billing_error", "message": "pay"}}'),
        Failures("acme", None).inside({"type": "billing_error", "message": "pay"}),
        Failures("acme", None).timed_out("first token", 1),
        Failures("acme", None).unreachable(OSError("refused")),
        Failures("acme", None).unreachable(OSError("bad certificate"), retryable=False),
        Failures("acme", None).cut_short(),
        Failures("acme", None).inside({"message": "who knows"}),
    ],
    ids=str,
)
async def test_a_vendor_in_trouble_is_stood_in_for(error: ProviderError) -> None:
    assert TextDelta("Hello") in await heard(fallback(error, saying("Hello")))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_is_wrong_with_the_request_or_the_key_is_raised_at_once(status: int) -> None:
    error = answered(status)
    second = Scripted([saying("never asked")])

    caught = await failed(Fallback([("a/one", Scripted([error])), ("b/two", second)]))

    assert caught is error
    assert second.requests == []


async def test_who_was_at_work_before_a_refusal_may_still_send_a_bill() -> None:
    late, refusal = Failures("acme", None).timed_out("answer", 1), answered(401)

    asked = Asked()

    with following(asked):
        caught = await failed(fallback(late, refusal))

    assert caught is refusal
    assert asked.cut_off == 1


async def test_what_is_no_vendors_failure_is_raised_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        await heard(fallback(ZeroDivisionError(), saying("never asked")))


@pytest.mark.parametrize(
    "begun", [TextDelta("Hel"), ReasoningDelta("Hm"), CallDelta(0, "call_1", "add")]
)
async def test_nobody_takes_over_once_something_was_said(begun: Delta) -> None:
    second = Scripted([saying("never asked")])

    caught = await failed(Fallback([("a/one", Scripted([[begun, BUSY]])), ("b/two", second)]))

    assert caught is BUSY
    assert second.requests == []


async def test_who_counted_the_prompt_and_then_failed_has_said_nothing() -> None:
    counted = Spent(Usage(input_tokens=7))

    deltas = await heard(fallback([counted, BUSY], [TextDelta("Hello")]))

    assert counted not in deltas
    assert deltas[-1] == TextDelta("Hello")


async def test_when_all_fail_the_error_tells_of_each_and_may_pass_when_the_first_does() -> None:
    limited = ProviderError(
        "slow down", code="provider_rate_limited", retryable=True, retry_after_s=40, status=429
    )
    soon = ProviderError("full", code="provider_overloaded", retryable=True, retry_after_s=7)

    error = await failed(fallback(soon, limited))

    assert str(error) == "None of 2 models answered. v1/m1: full; v2/m2: slow down"
    assert (error.code, error.retryable, error.retry_after_s) == (
        "provider_rate_limited",
        True,
        7,
    )


async def test_the_only_models_error_is_its_own() -> None:
    assert await failed(fallback(BUSY)) is BUSY


async def test_who_leaves_early_leaves_the_vendor_as_well() -> None:
    left = asyncio.Event()

    class Endless:
        async def stream(self, _: ModelRequest) -> AsyncIterator[Delta]:
            try:
                while True:
                    yield TextDelta("on and ")
            finally:
                left.set()

    stream = Fallback([("a/one", Scripted([BUSY])), ("b/two", Endless())]).stream(QUESTION)
    await anext(stream)
    await stream.aclose()

    assert left.is_set()


@pytest.mark.parametrize("models", [[], [("model", Scripted([]))], [("/x", Scripted([]))]])
def test_models_without_a_provider_are_refused(models: list[tuple[str, Provider]]) -> None:
    with pytest.raises(ConfigurationError, match="Fallback needs"):
        Fallback(models)
