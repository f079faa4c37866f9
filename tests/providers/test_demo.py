"""The offline demo: what it calls, what it says, and that it never pretends."""

import asyncio

import pytest

from milepost.core.messages import Message, ToolCall
from milepost.core.model import CallDelta, ModelRequest, Reply, TextDelta, ToolSchema
from milepost.providers.assemble import Assembly
from milepost.providers.demo import Demo

ALL = ("add", "multiply", "current_time", "send_email")


def request(
    *messages: Message, tools: tuple[str, ...] = ALL, tokens_max: int | None = None
) -> ModelRequest:
    schemas = tuple(ToolSchema(name, name, {"type": "object"}) for name in tools)
    return ModelRequest("tenant", "any", messages, schemas, tokens_max=tokens_max)


async def replied(*messages: Message, tools: tuple[str, ...] = ALL) -> Reply:
    return await streamed(request(*messages, tools=tools))


async def streamed(asked: ModelRequest) -> Reply:
    assembly = Assembly()
    async for delta in Demo(word_delay_s=0).stream(asked):
        assembly.feed(delta)
    return assembly.reply()


def user(text: str) -> Message:
    return Message("user", text)


def called(*calls: tuple[str, dict[str, int], str]) -> tuple[Message, ...]:
    """Return an assistant's message with `calls`, and their results."""
    asked = tuple(
        ToolCall(f"call_1_{index}", name, arguments)
        for index, (name, arguments, _) in enumerate(calls)
    )
    results = (
        Message("tool", result, call_id=f"call_1_{index}")
        for index, (_, _, result) in enumerate(calls)
    )
    return (Message("assistant", calls=asked), *results)


@pytest.mark.parametrize(
    ("question", "tool", "arguments"),
    [
        ("What is 17 + 25?", "add", '{"a":17,"b":25}'),
        ("add 2 and 3", "add", '{"a":2,"b":3}'),
        ("6 times 7", "multiply", '{"a":6,"b":7}'),
        ("What time is it?", "current_time", "{}"),
        (
            "Send an email to a@b.c saying hello",
            "send_email",
            '{"to":"a@b.c","subject":"A note from Milepost\'s demo","body":"hello"}',
        ),
    ],
)
async def test_a_simple_request_becomes_a_tool_call(
    question: str, tool: str, arguments: str
) -> None:
    reply = await replied(user(question))

    assert reply.finish_reason == "tool_calls"
    assert [(call.name, call.arguments) for call in reply.calls] == [(tool, arguments)]


async def test_two_requests_in_one_message_become_parallel_calls() -> None:
    reply = await replied(user("add 1 and 2 and tell me the time"))

    assert [call.name for call in reply.calls] == ["add", "current_time"]
    assert len({call.provider_id for call in reply.calls}) == 2


async def test_it_answers_with_the_results_that_came() -> None:
    turn = called(("add", {"a": 17, "b": 25}, "42"), ("current_time", {}, "10:00"))

    reply = await replied(user("What is 17 + 25, and the time?"), *turn)

    assert reply.text == "17 + 25 = 42. The clock says: 10:00"
    assert (reply.finish_reason, reply.calls) == ("stop", ())


async def test_it_shows_no_sum_that_is_none() -> None:
    reply = await replied(user("What is 17 + 25?"), *called(("add", {"a": 17, "b": 25}, "50")))

    assert reply.text == "The tool add says: 50"


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", {"a": 17, "b": 25}, "a lot"),
        ("add", {"x": 1}, "42"),
        ("send_email", {}, "queued"),
        ("add", {"a": 1, "b": 2}, "Not run."),
    ],
)
async def test_of_any_other_result_it_says_what_the_tool_said(
    name: str, arguments: dict[str, int], result: str
) -> None:
    reply = await replied(user("Please"), *called((name, arguments, result)))

    assert reply.text == f"The tool {name} says: {result}"


async def test_a_whole_number_is_written_as_one() -> None:
    reply = await replied(user("2.5 + 1.5"), *called(("add", {"a": 1, "b": 3}, "4.0")))

    assert reply.text == "1 + 3 = 4."


async def test_a_denied_call_is_told_as_one() -> None:
    denial = "Tool 'send_email' denied by ann: not today"

    reply = await replied(user("mail a@b.c: hi"), *called(("send_email", {}, denial)))

    assert reply.text == f"I was not allowed to do that, so it was not done. ({denial})"


async def test_a_failed_call_is_told_as_one() -> None:
    failure = "Error (tool_timeout): send_email took longer than 60 s"

    reply = await replied(user("mail a@b.c: hi"), *called(("send_email", {}, failure)))

    assert reply.text == f"The tool send_email gave me no result. It says: {failure}"


async def test_only_what_came_after_the_last_user_message_matters() -> None:
    earlier = (user("What is 1 + 2?"), *called(("add", {"a": 1, "b": 2}, "3")), user("6 times 7"))

    reply = await replied(*earlier)

    assert [call.name for call in reply.calls] == ["multiply"]
    assert reply.calls[0].provider_id == "demo_2"


async def test_anything_else_is_answered_with_what_it_is_and_can_do() -> None:
    reply = await replied(user("Write me a poem"), tools=("add", "unheard_of"))

    assert "offline demo, not a language model" in reply.text
    assert 'add numbers ("What is 17 + 25?")' in reply.text
    assert "mail" not in reply.text


async def test_without_tools_it_says_so() -> None:
    assert "none of the tools that I know" in (await replied(user("Hi"), tools=())).text


async def test_a_tool_that_the_agent_lacks_is_named_and_not_called() -> None:
    reply = await replied(user("6 times 7"), tools=("add",))

    assert reply.calls == ()
    assert "lacks what I would need for that: multiply" in reply.text


async def test_what_was_left_out_for_want_of_a_tool_is_said_at_the_end() -> None:
    turn = called(("add", {"a": 1, "b": 2}, "3"))

    reply = await replied(user("add 1 and 2 and tell me the time"), *turn, tools=("add",))

    assert reply.text.startswith("1 + 2 = 3. This agent lacks")
    assert reply.text.endswith("current_time.")


async def test_no_user_is_no_trouble() -> None:
    assert "offline demo" in (await replied(Message("system", "Be kind"))).text


async def test_it_streams_word_by_word_and_arguments_after_the_name() -> None:
    words = [delta async for delta in Demo(word_delay_s=0).stream(request(user("Hi")))]
    call = [delta async for delta in Demo(word_delay_s=0).stream(request(user("1 + 2")))]

    assert words[:2] == [TextDelta("I "), TextDelta("am ")]
    assert call[:2] == [CallDelta(0, "demo_1", "add"), CallDelta(0, arguments='{"a":1,"b":2}')]


async def test_the_same_request_gets_the_same_reply() -> None:
    assert await replied(user("What is 17 + 25?")) == await replied(user("What is 17 + 25?"))


async def test_tokens_are_estimated() -> None:
    reply = await replied(user("x" * 40))

    assert reply.usage.input_tokens == 10
    assert reply.usage.output_tokens == -(-len(reply.text) // 4)


async def test_a_bound_on_tokens_cuts_the_answer_and_says_so() -> None:
    reply = await streamed(request(user("Hi"), tokens_max=3))

    assert (reply.text, reply.finish_reason) == ("I am Milepos", "length")


async def test_it_takes_its_time_between_words() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    await anext(Demo(word_delay_s=0.02).stream(request(user("Hi"))))

    assert loop.time() - began >= 0.02
