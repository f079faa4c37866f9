"""Many runs at a time: in order, each for itself."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from milepost import Agent
from milepost.core.errors import InvalidError, ProviderError
from milepost.core.model import ModelRequest
from tests.agent.making import AT_ONCE, MODEL, echo, function_agent, last_of


class Answer(BaseModel):
    """A number."""

    n: int


def moody(request: ModelRequest) -> str:
    """Answer most."""
    match last_of(request):
        case "refused":
            raise ProviderError("no")
        case "broken":
            raise ZeroDivisionError("a bug")
        case text:
            return text.upper()


def test_results_are_in_the_order_of_the_inputs_and_each_run_is_for_itself() -> None:
    results = function_agent(moody).batch(["a", "refused", "broken", "d"])

    assert [result.content for result in results] == ["A", "", "", "D"]
    assert [result.status for result in results] == ["completed", "failed", "failed", "completed"]
    assert [result.error and result.error.message for result in results] == [
        None, "no", "ZeroDivisionError('a bug')", None,
    ]  # fmt: skip


async def test_no_more_run_at_a_time_than_may() -> None:
    running, most = 0, 0

    async def counted(request: ModelRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return last_of(request)

    results = await function_agent(counted).abatch([str(n) for n in range(20)], max_concurrency=4)

    assert [result.content for result in results] == [str(n) for n in range(20)]
    assert most == 4


def test_progress_is_told_and_usage_added_up() -> None:
    asked, told = function_agent(echo), []

    asked.batch(["a", "b", "c"], on_progress=lambda over, total: told.append((over, total)))

    assert told == [(1, 3), (2, 3), (3, 3)]
    assert asked.usage.model_calls == 3


def test_options_hold_for_each() -> None:
    asked = Agent(MODEL, providers={"test": lambda _: '{"n": 1}'}, limits=AT_ONCE)

    assert [each.parsed for each in asked.batch(["a", "b"], response_format=Answer)] == [
        Answer(n=1)
    ] * 2


def test_an_input_that_cannot_be_answered_has_a_result_that_says_so() -> None:
    good, bad = function_agent(echo).batch(["Hi.", []])

    assert good.content == "1: Hi."
    assert bad.error is not None
    assert (bad.status, bad.error.code) == ("failed", "invalid_request")


def test_what_progress_raises_ends_the_batch() -> None:
    def broken(over: int, total: int) -> None:
        raise LookupError(f"{over} of {total}")

    with pytest.raises(LookupError, match="1 of 3"):
        function_agent(echo).batch(["a", "b", "c"], max_concurrency=1, on_progress=broken)


@pytest.mark.parametrize("inputs", ["Hello", {"role": "user", "content": "Hello"}])
def test_one_input_alone_is_refused(inputs: Any) -> None:
    with pytest.raises(InvalidError, match="a list of inputs"):
        function_agent(echo).batch(inputs)


def test_none_at_a_time_is_refused_and_none_at_all_is_nothing() -> None:
    with pytest.raises(InvalidError, match="max_concurrency"):
        function_agent(echo).batch(["a"], max_concurrency=0)
    assert function_agent(echo).batch([]) == []
