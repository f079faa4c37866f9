"""What falls out of a run's sight: when, for how long, and what is told of it."""

import asyncio
from dataclasses import replace

import pytest

from milepost.core.agents import Memory, Window
from milepost.core.errors import ProviderError
from milepost.core.events import (
    MemorySummarized,
    MemorySummarizing,
    MemoryTrimmed,
    RunCancelled,
    RunCompleted,
    SessionLoaded,
    SideCallAborted,
)
from milepost.core.messages import Message
from milepost.core.model import TextDelta
from milepost.core.usage import UNKNOWN
from milepost.core.window import Place
from milepost.providers.scripted import Scripted, calling, saying
from milepost.store import removals, retention, summaries
from tests.runtime.talking import SMALL, TELLING, Talk, talked
from tests.runtime.workshop import TENANT, TIMEOUT_S, Held, Turns, Workshop, in_background, of


async def test_a_run_is_shown_what_the_window_has_room_for(shop: Workshop) -> None:
    talk = Talk(shop, SMALL)

    await talked(talk, "abc")
    assert talk.words == ["Be kind.", "a", "a!", "b", "b!", "c"]
    last = await talk.say("d")

    assert talk.words == ["Be kind.", "c", "c!", "d"]
    [loaded] = of(await shop.log(last), SessionLoaded)
    assert (loaded.turns, loaded.messages, loaded.kept_from) == (3, 2, "3.0")


async def test_what_fell_out_of_sight_is_written_down_once(shop: Workshop) -> None:
    talk = Talk(shop, SMALL)

    last = await talked(talk, "abcd")
    [row] = await talk.told()

    assert (row.first, row.last) == (Place(1, 0), Place(2, 1))
    assert (row.run_id, row.content, row.model) == (last, "", None)
    [trimmed] = of(await shop.log(last), MemoryTrimmed)
    assert trimmed == MemoryTrimmed(row.id, "1.0", "2.1", 4)
    types = await shop.types(last)
    assert types.index("session.loaded") < types.index("memory.trimmed")
    assert types.index("memory.trimmed") < types.index("step.started")


async def test_the_window_begins_at_the_same_message_until_it_is_full_again(
    shop: Workshop,
) -> None:
    talk = Talk(shop, SMALL)
    begins: list[str] = []

    for each in "abcdefgh":
        await talk.say(each)
        begins.append(talk.words[1])

    assert begins == ["a", "a", "a", "c", "c", "e", "e", "g"]


async def test_me5_what_falls_out_of_sight_is_told_by_a_model_of_its_own(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    scribe = talk.tells("They said a and b.")

    last = await talked(talk, "abcd")
    [row] = await talk.told()

    assert (row.content, row.model) == ("They said a and b.", "scribe/small")
    assert talk.words == [
        "Be kind.", "[Conversation Summary]\nThey said a and b.", "c", "c!", "d",
    ]  # fmt: skip
    assert "user: a\n\nassistant: a!\n\nuser: b\n\nassistant: b!" in (
        scribe.requests[0].messages[-1].content
    )
    log = await shop.log(last)
    assert [type(event) for event in of(log, MemorySummarizing, MemorySummarized)] == [
        MemorySummarizing, MemorySummarized,
    ]  # fmt: skip


async def test_each_stretch_is_told_once_and_all_of_them_in_their_order(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    scribe = talk.tells("First a and b.", "Then c and d.")

    await talked(talk, "abcdef")

    assert talk.words[1] == "[Conversation Summary]\nFirst a and b.\nThen c and d."
    assert len(scribe.requests) == 2
    assert "a and b" not in scribe.requests[1].messages[-1].content
    assert [(row.first, row.last) for row in await talk.told()] == [
        (Place(1, 0), Place(2, 1)),
        (Place(3, 0), Place(4, 1)),
    ]


async def test_what_a_summary_took_is_the_runs(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    talk.tells("They said a and b.")

    last = await talked(talk, "abcd")

    [summarized] = of(await shop.log(last), MemorySummarized)
    assert summarized.usage.model_calls == 1
    [ended] = of(await shop.log(last), RunCompleted)
    assert ended.usage.model_calls == 2
    assert (await shop.used(last)).model_calls == 2


@pytest.mark.parametrize("failure", [ProviderError("no"), ""])
async def test_a_summary_that_fails_lets_the_run_go_on(
    shop: Workshop, failure: ProviderError | str
) -> None:
    talk = Talk(shop, TELLING)
    talk.tells(failure)

    last = await talked(talk, "abcd")

    [trimmed] = of(await shop.log(last), MemoryTrimmed)
    assert trimmed.error is not None
    assert trimmed.model == "scribe/small"
    assert of(await shop.log(last), RunCompleted)
    assert talk.words == ["Be kind.", "c", "c!", "d"]
    await talk.say("e")
    assert talk.words == ["Be kind.", "c", "c!", "d", "d!", "e"]


async def test_a_summary_whose_worker_died_is_asked_for_again(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    await talked(talk, "abc")
    talk.scribe = lost = Held()
    run = await shop.queue("d", session_id=talk.session_id)
    driven = await shop.driving(await shop.claim(), talk.agent, talk.means(Scripted([])))
    task = asyncio.create_task(driven.run())
    await asyncio.wait_for(lost.reached.wait(), TIMEOUT_S)
    claim = await shop.take_over()
    talk.tells("They said a and b.")
    model = Scripted([saying("d!")])

    again = await shop.driving(claim, talk.agent, talk.means(model))
    await asyncio.wait_for(again.run(), TIMEOUT_S)
    task.cancel()
    await asyncio.wait({task})

    log = await shop.log(run.id)
    assert len(of(log, SessionLoaded)) == 1
    assert len(of(log, MemorySummarizing)) == 2
    assert [row.content for row in await talk.told()] == ["They said a and b."]
    assert model.requests[0].messages[1].content.endswith("They said a and b.")


async def test_a_run_that_is_cancelled_says_that_its_summary_was_not_waited_for(
    shop: Workshop,
) -> None:
    talk = Talk(shop, TELLING)
    await talked(talk, "abc")
    talk.scribe = scribe = Held()
    run = await shop.queue("d", session_id=talk.session_id)
    driven = await shop.driving(await shop.claim(), talk.agent, talk.means(Scripted([])))

    async with in_background(driven):
        await asyncio.wait_for(scribe.reached.wait(), TIMEOUT_S)
        await shop.cancel(run.id)

    log = await shop.log(run.id)
    [begun], [ended] = of(log, MemorySummarizing), of(log, RunCancelled)
    [work] = ended.work
    assert scribe.closed.is_set()
    assert (work.kind, work.id, work.name, work.how, work.why) == (
        "summary", begun.id, "scribe/small", "closed", None,
    )  # fmt: skip
    told = SideCallAborted(f"{begun.id}/summary", "scribe/small", UNKNOWN)
    assert of(log, SideCallAborted) == [told]
    assert ended.usage == UNKNOWN


async def test_a_run_that_goes_on_elsewhere_shows_its_model_the_same(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    talk.tells("They said a and b.", "They said c and d.")
    await talked(talk, "abcde")
    await talk.pin(1, 1)
    run = await shop.queue("f", session_id=talk.session_id)
    model = Scripted([calling(("look", {}))])
    held = Held()
    driven = await shop.driving(await shop.claim(), talk.agent, talk.means(Turns(model, held)))
    async with in_background(driven):
        await asyncio.wait_for(held.reached.wait(), TIMEOUT_S)
        driven.drain()
    [before] = model.requests
    other = Scripted([saying("f!")])
    shop.history = type(shop.history)(shop.store)

    again = await shop.driving(await shop.claim(), talk.agent, talk.means(other))
    await asyncio.wait_for(again.run(), TIMEOUT_S)

    [after] = other.requests
    assert after.messages[: len(before.messages)] == before.messages
    assert before.messages[2] == Message("assistant", "a!")
    assert len(of(await shop.log(run.id), SessionLoaded)) == 1


async def test_what_is_reverted_is_shown_again(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    talk.tells("They said a and b.")
    await talked(talk, "abcd")
    [row] = await talk.told()
    await shop.store.write(summaries.revert(TENANT, row.session_id, row.id, 1))
    talk.agent = replace(talk.agent, memory=Memory(Window(messages=100)))

    await talk.say("e")

    assert talk.words == ["Be kind.", "a", "a!", "b", "b!", "c", "c!", "d", "d!", "e"]


async def test_only_the_newest_stretch_can_be_reverted(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    talk.tells("First a and b.", "Then c and d.")
    await talked(talk, "abcdef")
    first, second = await talk.told()

    with pytest.raises(summaries.SummaryCoveredError, match="the newest"):
        await shop.store.write(summaries.revert(TENANT, first.session_id, first.id, 1))
    await shop.store.write(summaries.revert(TENANT, second.session_id, second.id, 2))
    await shop.store.write(summaries.revert(TENANT, second.session_id, second.id, 3))
    await shop.store.write(summaries.revert(TENANT, first.session_id, first.id, 4))

    assert [row.reverted_ms for row in await talk.told()] == [4, 2]


async def test_pinned_messages_are_shown_behind_the_summary(shop: Workshop) -> None:
    talk = Talk(shop, TELLING)
    talk.tells("They said a and b.")
    await talked(talk, "ab")
    await talk.pin(1, 0)
    await talk.pin(2, 1)

    await talked(talk, "cd")

    assert talk.words == [
        "Be kind.", "[Conversation Summary]\nThey said a and b.", "a", "b!", "c", "c!", "d",
    ]  # fmt: skip


async def test_a_pinned_message_in_sight_is_shown_once(shop: Workshop) -> None:
    talk = Talk(shop, SMALL)
    await talk.say("a")
    await talk.pin(1, 0)

    await talk.say("b")

    assert talk.words == ["Be kind.", "a", "a!", "b"]


async def test_a_pinned_message_comes_without_the_calls_that_it_asks_for(shop: Workshop) -> None:
    talk = Talk(shop, SMALL)
    asked = [*calling(("look", {})), *saying("Let me see.")]
    await talk.say("Look.", asked, saying("I see."))
    await talk.pin(1, 1)

    await talked(talk, "ab")

    assert talk.shown is not None
    assert talk.shown.messages[1] == Message("assistant", "Let me see.")
    assert all(not message.calls for message in talk.shown.messages)


async def test_a_window_in_tokens_goes_by_what_messages_take(shop: Workshop) -> None:
    talk = Talk(shop, Memory(Window(tokens=600)))

    for number in range(6):
        await talk.say(f"{number}" + "x" * 400)

    shown = [word[0] for word in talk.words[1:]]
    assert shown[-1] == "5"
    assert len(shown) < 6
    assert await talk.told()


async def test_without_a_window_the_last_two_hundred_messages_are_shown(shop: Workshop) -> None:
    talk = Talk(shop)
    await talked(talk, (str(number) for number in range(101)))
    assert len(talk.words) == 1 + 200 + 1

    await talk.say("now")

    assert talk.words[1:3] == ["51", "51!"]
    assert len(talk.words) == 1 + 100 + 1
    [row] = await talk.told()
    assert (row.first, row.last) == (Place(1, 0), Place(51, 1))


async def test_what_one_agent_has_let_fall_is_out_of_sight_for_all(shop: Workshop) -> None:
    talk = Talk(shop, SMALL)
    await talked(talk, "abcd")
    talk.agent = replace(talk.agent, memory=None)

    await talk.say("e")

    assert talk.words == ["Be kind.", "c", "c!", "d", "d!", "e"]


@pytest.mark.parametrize("goes", ["the run", "its log"])
async def test_nothing_is_told_of_what_was_erased_while_a_model_told_of_it(
    shop: Workshop, goes: str
) -> None:
    talk = Talk(shop, TELLING)
    first = await talked(talk, "a")
    await talked(talk, "bc")
    talk.scribe = scribe = Held(TextDelta("They said a and b."), rest=saying(""))
    run = await shop.queue("d", session_id=talk.session_id)
    model = Scripted([saying("d!")])
    driven = await shop.driving(await shop.claim(), talk.agent, talk.means(model))

    async with in_background(driven):
        await asyncio.wait_for(scribe.reached.wait(), TIMEOUT_S)
        if goes == "the run":
            await shop.store.write(removals.remove_runs(TENANT, [first]))
        else:
            await shop.store.write(retention.wear(TENANT, "events", None, shop.clock() + 60_000))
        scribe.go.set()

    [row] = await talk.told()
    assert (row.first, row.last, row.content) == (Place(1, 0), Place(2, 1), "")
    [told] = of(await shop.log(run.id), MemorySummarized)
    assert (told.content, told.usage.model_calls) == ("", 1)
