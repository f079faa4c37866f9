"""The provider that plays what it is told to."""

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import Finished, ModelRequest, Reply, RequestedCall, TextDelta
from milepost.core.usage import Usage
from milepost.providers.assemble import Assembly
from milepost.providers.scripted import Scripted, calling, saying


def request(text: str) -> ModelRequest:
    return ModelRequest("tenant", "any", (Message("user", text),))


async def replied(provider: Scripted, text: str = "Hi") -> Reply:
    assembly = Assembly()
    async for delta in provider.stream(request(text)):
        assembly.feed(delta)
    return assembly.reply()


async def test_scripts_are_played_in_order_and_requests_kept() -> None:
    provider = Scripted([calling(("add", {"a": 1}), ("add", {"a": 2})), saying("It is 3.")])

    first, second = await replied(provider, "one"), await replied(provider, "two")

    assert first.calls == (
        RequestedCall("call_0", "add", '{"a":1}'),
        RequestedCall("call_1", "add", '{"a":2}'),
    )
    assert (second.text, second.usage) == ("It is 3.", Usage(input_tokens=10, output_tokens=5))
    assert provider.requests == [request("one"), request("two")]


async def test_a_failure_comes_at_once_or_in_the_middle() -> None:
    failure = ProviderError("down", code="provider_overloaded")
    provider = Scripted([failure, [TextDelta("Hel"), failure, Finished("stop")]])

    with pytest.raises(ProviderError, match="down"):
        await replied(provider)
    with pytest.raises(ProviderError, match="down"):
        await replied(provider)
    assert len(provider.requests) == 2


async def test_a_script_that_ran_out_is_an_error() -> None:
    with pytest.raises(ProviderError, match="no reply to call 1"):
        await replied(Scripted([]))
