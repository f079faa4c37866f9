"""What a model was shown, looked up later: to the message what it was asked with."""

import pytest

from milepost.core.agents import Memory
from milepost.core.messages import Message
from milepost.core.window import Place, estimated
from milepost.providers.scripted import calling, saying
from milepost.runtime.conversation import Conversation
from milepost.runtime.session_state import SessionState, Shown
from milepost.store import sessions, summaries
from milepost.store.sessions import SessionRow
from tests.runtime.talking import SMALL, TELLING, Talk, talked
from tests.runtime.workshop import TENANT, Workshop


async def row_of(talk: Talk) -> SessionRow:
    assert talk.session_id is not None
    return await talk.shop.store.read(sessions.find(TENANT, talk.session_id))


async def state_at(talk: Talk, turn: int, index: int) -> Shown:
    row = await row_of(talk)
    said = await Conversation(talk.shop.store).at(row, Place(turn, index))
    assert said is not None
    return await SessionState(talk.shop.store).at(said, row)


async def shown_now(talk: Talk) -> Shown:
    return await SessionState(talk.shop.store).next(await row_of(talk), talk.agent)


def without_instructions(talk: Talk) -> tuple[Message, ...]:
    """Return what the model was shown last; the shop keeps no definitions of its agents."""
    assert talk.shown is not None
    return tuple(talk.shown.messages[1:])


@pytest.mark.parametrize("memory", [None, SMALL, TELLING])
async def test_a_prompt_is_what_the_model_was_asked_with(
    shop: Workshop, memory: Memory | None
) -> None:
    talk = Talk(shop, memory)
    talk.tells("First a and b.", "Then c and d.")
    asked: dict[int, tuple[Message, ...]] = {}

    for turn, said in enumerate("abcdef", start=1):
        await talk.say(said)
        asked[turn] = without_instructions(talk)

    for turn, messages in asked.items():
        assert (await state_at(talk, turn, 0)).messages == messages


async def test_a_prompt_in_the_middle_of_a_run_has_its_calls_and_results(shop: Workshop) -> None:
    talk = Talk(shop)
    await talk.say("a")
    await talk.say("Look.", calling(("look", {})), saying("I see."))

    within, whole = await state_at(talk, 2, 2), await state_at(talk, 2, 3)

    assert within.messages == without_instructions(talk)
    assert [message.role for message in within.messages[-2:]] == ["assistant", "tool"]
    assert whole.messages == (*within.messages, Message("assistant", "I see."))


async def test_what_was_reverted_since_changes_no_earlier_prompt(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    talk.tells("They said a and b.")
    await talked(talk, "abcd")
    asked = without_instructions(talk)
    (row,) = await talk.told()

    await shop.store.write(summaries.revert(TENANT, row.session_id, row.id, 1))

    state = await state_at(talk, 4, 0)
    assert state.messages == asked
    assert state.summary == "[Conversation Summary]\nThey said a and b."
    assert state.kept_from == "3.0"


@pytest.mark.parametrize("memory", [None, SMALL])
async def test_what_comes_next_is_what_the_next_run_is_shown(
    shop: Workshop, memory: Memory | None
) -> None:
    talk = Talk(shop, memory)
    await talk.say("a")

    for said in "bcdef":
        foretold = await shown_now(talk)
        await talk.say(said)
        assert talk.shown is not None
        assert foretold.messages == tuple(talk.shown.messages[:-1])
        assert foretold.agent == talk.agent


async def test_to_look_trims_nothing(shop: Workshop) -> None:
    talk = Talk(shop, SMALL)
    await talked(talk, "abc")

    for _ in range(2):
        assert (await shown_now(talk)).kept_from == "3.0"

    assert await talk.told() == []


async def test_a_run_that_has_not_begun_is_shown_what_it_is_about_to_ask(shop: Workshop) -> None:
    talk = Talk(shop)
    await talk.say("a")
    await shop.queue("b", session_id=talk.session_id)

    state = await state_at(talk, 2, 0)

    assert [message.content for message in state.messages] == ["a", "a!", "b"]


async def test_tokens_are_those_of_all_messages(shop: Workshop) -> None:
    talk = Talk(shop)
    await talk.say("a")

    state = await shown_now(talk)

    assert state.tokens == sum(map(estimated, state.messages)) > 0
