"""The provider of single calls."""

import pytest

from milepost.core.errors import ProviderError
from milepost.core.messages import Message
from milepost.core.model import ModelRequest, Reply
from milepost.providers.assemble import Assembly
from milepost.providers.direct import Direct, written_call


async def replied(*messages: Message) -> Reply:
    """Return what the provider answers."""
    assembly = Assembly()
    async for delta in Direct().stream(ModelRequest("acme", "call", messages)):
        assembly.feed(delta)
    return assembly.reply()


async def test_it_asks_for_the_call_that_its_input_names() -> None:
    reply = await replied(Message("user", written_call("add", {"a": 2**70, "b": "ø"})))

    [call] = reply.calls
    assert (call.name, call.arguments) == ("add", f'{{"a": {2**70}, "b": "ø"}}')
    assert reply.finish_reason == "tool_calls"


async def test_it_repeats_what_came_of_the_call() -> None:
    reply = await replied(Message("user", "{}"), Message("tool", "42", call_id="call_1_0"))

    assert (reply.text, reply.calls, reply.finish_reason) == ("42", (), "stop")


@pytest.mark.parametrize("said", ["", "add 1 and 2", "[]", '{"tool": "add"}', "[" * 100_000])
async def test_an_input_that_names_no_call_is_refused(said: str) -> None:
    with pytest.raises(ProviderError, match="names no call"):
        await replied(Message("user", said))
