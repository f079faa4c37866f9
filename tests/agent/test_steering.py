"""What is said to a run in process while it is under way."""

import asyncio
import threading
import time

import pytest

from milepost import AgentResult, ApprovalRequest, Conversation, Steering, tool
from milepost.agent.asking import RunOptions
from milepost.core.errors import ConflictError, InvalidError
from milepost.core.events import RunResumed, SteerApplied, SteerReceived
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store.records import STEERS_MAX
from tests.agent.desk import Desk
from tests.agent.making import agent, function_agent, last_of

TIMEOUT_S = 10.0
TURNS = 500


def heard(result: AgentResult) -> list[str]:
    """Return what the run was told while it was under way, having checked that its model was."""
    events = result.record.events
    received = [event for event in events if isinstance(event, SteerReceived)]
    applied = [
        each for event in events if isinstance(event, SteerApplied) for each in event.message_ids
    ]
    assert applied == [event.message_id for event in received]
    return [event.content for event in received]


async def test_the_model_reads_at_its_next_step_what_was_said_meanwhile() -> None:
    steering = Steering()

    @tool
    async def look() -> str:
        """Look, while somebody talks."""
        steering.say("Be brief.")
        steering.say("And kind.")
        return "seen"

    model = Scripted([calling(("look", {})), saying("All right.")])
    result = await agent(model=model, tools=[look]).arun("Go.", steering=steering)

    read = [(each.role, each.content) for each in model.requests[-1].messages][-3:]
    assert read == [("tool", "seen"), ("user", "Be brief."), ("user", "And kind.")]
    assert heard(result) == ["Be brief.", "And kind."]
    assert [each.content for each in result.messages if each.role == "user"] == [
        "Go.", "Be brief.", "And kind.",
    ]  # fmt: skip


async def test_an_answer_that_was_being_written_is_followed_by_another_one() -> None:
    steering = Steering()

    async def answer(request: ModelRequest) -> str:
        if last_of(request) == "Go.":
            steering.say("No, stay.")
        return f"You said: {last_of(request)}"

    result = await function_agent(answer).arun("Go.", steering=steering)

    assert result.content == "You said: No, stay."
    assert heard(result) == ["No, stay."]


def test_another_thread_may_say_it() -> None:
    steering = Steering()
    threads = set()

    @tool
    def look() -> str:
        """Look, in a thread of the tools."""
        threads.add(threading.current_thread())
        steering.say("Be brief.")
        return "seen"

    result = agent(calling(("look", {})), saying("Yes."), tools=[look]).run(
        "Go.", steering=steering
    )

    assert threading.main_thread() not in threads
    assert heard(result) == ["Be brief."]


async def test_a_run_that_waits_for_a_yes_hears_it_and_waits_on() -> None:
    steering, desk = Steering(), Desk()

    async def ask(_: ApprovalRequest) -> bool:
        steering.say("Hurry.")
        for _turn in range(TURNS):  # More of the loop's than it takes to hear it and wait again.
            await asyncio.sleep(0)
        return True

    result = await desk.agent(approval_handler=ask).arun("Pay.", steering=steering)

    assert desk.paid == [("ann", 5)]
    assert heard(result) == ["Hurry."]
    whys = [event.why for event in result.record.events if isinstance(event, RunResumed)]
    assert whys == ["steer", "approval"]


async def test_what_was_said_stays_in_the_conversation() -> None:
    steering, talk = Steering(), Conversation()

    async def answer(request: ModelRequest) -> str:
        if last_of(request) == "Go.":
            steering.say("No, stay.")
        return f"{len(request.messages)}"

    asked = function_agent(answer)
    await asked.arun("Go.", steering=steering, conversation=talk)
    result = await asked.arun("Well?", steering=steering, conversation=talk)

    said = [each.content for each in result.messages if each.role == "user"]
    assert said == ["Go.", "No, stay.", "Well?"]


async def test_nobody_hears_it_before_a_run_or_after_it() -> None:
    steering = Steering()

    with pytest.raises(ConflictError) as before:
        steering.say("Hello?")
    await agent(saying("Done.")).arun("Go.", steering=steering)
    with pytest.raises(ConflictError) as after:
        steering.say("Hello?")

    assert (before.value.code, after.value.code) == ("run_over", "run_over")


async def test_whoever_is_too_late_is_told() -> None:
    """The loop is busy ending the run: what waits for it would wait for ever."""
    steering = Steering()
    heard_here: list[str] = []
    with steering.heard_by(heard_here.append):
        saying_it = asyncio.get_running_loop().run_in_executor(None, steering.say, "Wait!")
        until_s = time.monotonic() + TIMEOUT_S
        while not steering._unheard and time.monotonic() < until_s:
            time.sleep(0.001)  # noqa: ASYNC251 - the loop is to be held up

    with pytest.raises(ConflictError):
        await asyncio.wait_for(saying_it, TIMEOUT_S)
    assert heard_here == []


async def test_nothing_can_be_said_in_no_words() -> None:
    steering = Steering()

    async def answer(_: ModelRequest) -> str:
        with pytest.raises(InvalidError):
            steering.say("")
        return "Fine."

    result = await function_agent(answer).arun("Go.", steering=steering)

    assert heard(result) == []


async def test_a_run_takes_as_many_messages_as_in_the_service() -> None:
    steering = Steering()

    async def answer(request: ModelRequest) -> str:
        if last_of(request) == "Go.":
            for number in range(STEERS_MAX):
                steering.say(f"{number}")
            with pytest.raises(ConflictError) as one_more:
                steering.say("And this.")
            assert one_more.value.code == "too_many_messages"
        return "Fine."

    result = await function_agent(answer).arun("Go.", steering=steering)

    assert heard(result) == [f"{number}" for number in range(STEERS_MAX)]


async def test_one_run_at_a_time_hears() -> None:
    steering, begun, go = Steering(), asyncio.Event(), asyncio.Event()

    async def answer(_: ModelRequest) -> str:
        begun.set()
        await go.wait()
        return "Done."

    asked = function_agent(answer)
    first = asyncio.create_task(asked.arun("Go.", steering=steering))
    await asyncio.wait_for(begun.wait(), TIMEOUT_S)
    with pytest.raises(InvalidError, match="give each run its own"):
        await asked.arun("Go, too.", steering=steering)
    go.set()

    assert (await first).content == "Done."


def test_only_a_steering_is_taken() -> None:
    given: RunOptions = {"steering": "left"}  # type: ignore[typeddict-item]

    with pytest.raises(TypeError, match="'left' is no Steering"):
        agent(saying("Done.")).run("Go.", **given)
