"""Conversations in process: what one run leaves to the next, and what falls out of sight."""

import asyncio
import json
from typing import Any

import pytest

from milepost import Agent, Conversation, RecordingObserver
from milepost.agent.observations import MemorySummarize, MemoryTrim
from milepost.core.errors import ConfigurationError, InvalidError, NotFoundError
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Scripted, calling, saying
from tests.agent.making import ADD, AT_ONCE, BUSY, MODEL, add, agent, echo, function_agent

SMALL = {"window": {"messages": 4}}
TELLING = {"window": {"messages": 4}, "summarize": {"model": "scribe/small"}}


def talking(scribe: Any = None, memory: Any = None, **fields: Any) -> tuple[Agent, list[Any]]:
    """Return an agent that repeats what was said, and all that its model is shown."""
    shown: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        shown.append([message.content for message in request.messages])
        return f"{request.messages[-1].content}!"

    providers = {"test": answer, "scribe": scribe or Scripted([])}
    made = Agent(MODEL, providers=providers, memory=memory, limits=AT_ONCE, **fields)
    return made, shown


def test_a_run_is_shown_what_was_said_in_its_conversation() -> None:
    talk = Conversation()
    clerk, shown = talking(instructions="Be kind.")

    clerk.run("My name is Ann.", conversation=talk)
    result = clerk.run("Who am I?", conversation=talk)

    assert shown[-1] == ["Be kind.", "My name is Ann.", "My name is Ann.!", "Who am I?"]
    assert [message.content for message in talk.messages] == [
        "My name is Ann.", "My name is Ann.!", "Who am I?", "Who am I?!",
    ]  # fmt: skip
    assert result.messages == talk.messages


def test_me2_without_a_conversation_each_run_is_alone() -> None:
    clerk, shown = talking()

    clerk.run("My name is Ann.")
    clerk.run("Who am I?")

    assert shown == [["My name is Ann."], ["Who am I?"]]


async def test_c16_runs_at_once_see_nothing_of_each_other() -> None:
    clerk = function_agent(echo)

    results = await asyncio.gather(*(clerk.arun(f"{number}") for number in range(5)))

    assert [result.content for result in results] == [f"1: {number}" for number in range(5)]


def test_me4_the_first_run_is_kept_and_c17_the_conversation_is_where() -> None:
    talk = Conversation()
    assert (len(talk), talk.messages, talk.summary) == (0, (), "")

    talking()[0].run("Hello", conversation=talk)

    assert [message.content for message in talk.messages] == ["Hello", "Hello!"]


def test_conversations_of_one_agent_share_nothing() -> None:
    clerk, shown = talking()
    one, other = Conversation(), Conversation()

    clerk.run("a", conversation=one)
    clerk.run("b", conversation=other)
    clerk.run("c", conversation=one)

    assert shown[-1] == ["a", "a!", "c"]
    assert len(other) == 2


def test_several_agents_may_go_on_in_one_conversation() -> None:
    talk = Conversation()
    talking()[0].run("a", conversation=talk)
    other, shown = talking()

    other.run("b", conversation=talk)

    assert shown == [["a", "a!", "b"]]


async def test_runs_of_one_conversation_wait_for_each_other() -> None:
    talk = Conversation()
    clerk = function_agent(echo)

    results = await asyncio.gather(
        *(clerk.arun(f"{number}", conversation=talk) for number in range(4))
    )

    assert [result.content for result in results] == ["1: 0", "3: 1", "5: 2", "7: 3"]
    assert len(talk) == 8


def test_me1_the_oldest_fall_out_of_sight_and_stay_there() -> None:
    talk = Conversation()
    clerk, shown = talking(memory=SMALL)

    for said in "abcde":
        clerk.run(said, conversation=talk)

    assert [words[0] for words in shown] == ["a", "a", "a", "c", "c"]
    assert [message.content for message in talk.in_sight] == ["c", "c!", "d", "d!", "e", "e!"]
    assert len(talk) == 10


def test_calls_are_never_cut_off_from_their_results() -> None:
    talk = Conversation()
    model = Scripted([ADD, saying("It is 42."), saying("Yes."), saying("Well.")])
    clerk = agent(model=model, tools=[add], memory={"window": {"messages": 3}})

    for said in "abc":
        clerk.run(said, conversation=talk)

    for request in model.requests[2:]:
        asked = {call.id for message in request.messages for call in message.calls}
        results = {m.call_id for m in request.messages if m.role == "tool"}
        assert results <= asked


def test_me5_what_fell_out_of_sight_is_told_in_the_next_runs() -> None:
    talk = Conversation()
    scribe = Scripted([saying("They said a and b.")])
    clerk, shown = talking(scribe, TELLING, instructions="Be kind.")

    for said in "abcde":
        clerk.run(said, conversation=talk)

    assert talk.summary == "They said a and b."
    told = "[Conversation Summary]\nThey said a and b."
    assert shown[3:] == [
        ["Be kind.", told, "c", "c!", "d"],
        ["Be kind.", told, *["c", "c!", "d", "d!", "e"]],
    ]
    assert len(scribe.requests) == 1


def test_a_summary_that_fails_is_told_and_nothing_more() -> None:
    talk = Conversation()
    clerk, shown = talking(Scripted([BUSY]), TELLING)

    results = [clerk.run(said, conversation=talk) for said in "abcd"]

    assert [result.status for result in results] == ["completed"] * 4
    assert shown[-1] == ["c", "c!", "d"]
    assert talk.summary == ""


def test_what_a_summary_takes_counts() -> None:
    talk = Conversation()
    clerk, _ = talking(Scripted([saying("They said a and b.")]), TELLING)

    for said in "abcd":
        clerk.run(said, conversation=talk)

    assert clerk.usage.model_calls == 5


def test_observers_hear_of_it() -> None:
    talk, seen = Conversation(), RecordingObserver()
    clerk, _ = talking(Scripted([saying("They said a and b.")]), TELLING, observers=[seen])

    for said in "abcd":
        clerk.run(said, conversation=talk)

    assert seen.names.count("session_load") == 3
    assert seen.names.count("session_save") == 4
    [trimmed] = seen.of(MemoryTrim)
    assert trimmed.messages == 4
    [told] = seen.of(MemorySummarize)
    assert (told.summary, told.messages_summarized) == ("They said a and b.", 4)


def test_pinned_messages_stay_in_sight() -> None:
    talk = Conversation()
    clerk, shown = talking(memory=SMALL)
    clerk.run("a", conversation=talk)
    talk.pin(1)

    for said in "bcd":
        clerk.run(said, conversation=talk)
    assert shown[-1] == ["a!", "c", "c!", "d"]
    talk.unpin(1)
    clerk.run("e", conversation=talk)

    assert shown[-1][0] == "c"


def test_only_what_says_something_can_be_pinned() -> None:
    talk = Conversation()
    agent(ADD, saying("It is 42."), tools=[add]).run("Add.", conversation=talk)

    for index in (1, 2):
        with pytest.raises(InvalidError, match="of no use"):
            talk.pin(index)
    with pytest.raises(NotFoundError, match="there are 4"):
        talk.pin(4)


def test_what_fell_out_of_sight_can_be_brought_back() -> None:
    talk = Conversation()
    clerk, _ = talking(memory=SMALL)
    for said in "abcd":
        clerk.run(said, conversation=talk)

    talk.revert()
    other, shown = talking()
    other.run("e", conversation=talk)

    assert shown[-1][0] == "a"
    talk.revert()
    talk.clear()
    assert len(talk) == 0


def test_me3_a_conversation_is_kept_as_json() -> None:
    talk = Conversation()
    model = Scripted([calling(("add", {"a": 17, "b": 25})), saying("It is 42.")])
    agent(model=model, tools=[add]).run("Add.", conversation=talk)
    clerk, _ = talking(Scripted([saying("They added.")]), TELLING)
    for said in "abc":
        clerk.run(said, conversation=talk)
    talk.pin(0)

    again = Conversation.from_json(talk.to_json())

    assert again.messages == talk.messages
    assert again.in_sight == talk.in_sight
    assert again.summary == talk.summary == "They added."
    assert again.to_json() == talk.to_json()
    other, shown = talking()
    other.run("d", conversation=again)
    assert shown[0][:2] == ["[Conversation Summary]\nThey added.", "Add."]


@pytest.mark.parametrize("kept", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "turns": 7}'])
def test_what_is_no_conversation_is_refused(kept: str) -> None:
    with pytest.raises(InvalidError):
        Conversation.from_json(kept)


def test_a_run_that_failed_is_part_of_the_conversation() -> None:
    talk = Conversation()
    failed = agent(BUSY, BUSY, BUSY).run("Hello?", conversation=talk)
    clerk, shown = talking()

    clerk.run("Again.", conversation=talk)

    assert failed.status == "failed"
    assert shown == [["Hello?", "Again."]]


async def test_a_run_that_was_cancelled_lets_the_next_one_go_on() -> None:
    talk = Conversation()
    begun = asyncio.Event()

    async def hang(_: ModelRequest) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    first = asyncio.create_task(function_agent(hang).arun("a", conversation=talk))
    await begun.wait()
    second = asyncio.create_task(function_agent(echo).arun("b", conversation=talk))
    first.cancel()
    result = await second

    assert result.content == "2: b"
    assert [message.content for message in talk.messages] == ["a", "b", "2: b"]


def test_what_was_said_before_is_in_the_conversation_alone() -> None:
    clerk, _ = talking()

    with pytest.raises(InvalidError, match="alone"):
        clerk.run([Message("assistant", "Hello."), "Hi"], conversation=Conversation())
    with pytest.raises(TypeError, match="no Conversation"):
        clerk.run("Hi", conversation="talk")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("wanted", [{"extract": {}}, {"recall": {}}])
def test_what_only_the_service_learns_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="hand a Knowledge to its runs"):
        talking(memory=wanted)


def test_a_summarizer_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nobody"):
        talking(memory={"summarize": {"model": "nobody/small"}})


def test_kept_json_is_plain() -> None:
    talk = Conversation()
    talking()[0].run("Hello", conversation=talk)

    [turn] = json.loads(talk.to_json())["turns"]

    assert [message["content"] for message in turn["messages"]] == ["Hello", "Hello!"]
