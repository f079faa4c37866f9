"""Knowledge in process: what one run teaches, and what the next is told."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from milepost import Agent, Conversation, Knowledge, RecordingObserver
from milepost.agent.observations import EntityExtraction, KgExtraction
from milepost.core.errors import InvalidError, ProviderError
from milepost.core.model import ModelRequest
from milepost.providers.scripted import Scripted, calling, saying
from tests.agent.making import AT_ONCE, MODEL

TAUGHT = {
    "entities": [{"name": "Ann", "type": "person", "description": "a painter", "message": 0}],
    "relations": [{"subject": "Ann", "predicate": "lives in", "object": "Oslo", "message": 0}],
    "facts": [{"text": "Ann is allergic to nuts.", "lasting": True, "message": 0}],
}


def talking(**fields: Any) -> tuple[Agent, list[list[str]]]:
    """Return an agent that repeats what was said, and all that its model is shown."""
    shown: list[list[str]] = []

    def answer(request: ModelRequest) -> str:
        shown.append([message.content for message in request.messages])
        return f"{request.messages[-1].content}!"

    return Agent(MODEL, providers={"test": answer}, limits=AT_ONCE, **fields), shown


def reading(answer: Any = None, **fields: Any) -> Agent:
    """Return a reader whose model finds this."""
    script = answer if isinstance(answer, Exception) else saying(json.dumps(answer or TAUGHT))
    return Knowledge.reader(MODEL, providers={"test": Scripted([script])}, limits=AT_ONCE, **fields)


def test_what_one_run_teaches_is_told_to_the_next_and_to_those_alone_who_are_handed_it() -> None:
    known = Knowledge()
    clerk, shown = talking(instructions="Be kind.")

    found = known.learn(clerk.run("I am Ann, from Oslo."), reading())
    clerk.run("Who lives in Oslo?", knowledge=known)
    clerk.run("Who lives in Oslo?")

    assert len(found) == 3
    told = shown[-2]
    assert told[0] == "Be kind."
    assert told[-1] == "Who lives in Oslo?"
    assert [line for line in told[1].splitlines() if line.startswith(("[", "-"))] == [
        "[Known Entities]", "- Ann (person): a painter",
        "[Known Relationships]", "- Ann — lives in — Oslo",
        "[Important Knowledge]", "- Ann is allergic to nuts.",
    ]  # fmt: skip
    assert shown[-1] == ["Be kind.", "Who lives in Oslo?"]


def test_what_is_known_stands_behind_the_conversation() -> None:
    known, talk = Knowledge(), Conversation()
    clerk, shown = talking()
    known.remember("Tea is at four.")

    clerk.run("a", conversation=talk, knowledge=known)
    clerk.run("b", conversation=talk, knowledge=known)

    assert [words.splitlines()[-1] for words in shown[-1]] == [
        "a", "a!", "- Tea is at four.", "b",
    ]  # fmt: skip


def test_me10_a_reader_that_fails_teaches_nothing_and_breaks_nothing() -> None:
    known = Knowledge()
    clerk, _ = talking()
    result = clerk.run("I am Ann.")

    assert known.learn(result, reading(ProviderError("broken"))) == ()
    assert known.learn(result, reading({"entities": "none"})) == ()
    assert known.entities == ()


def test_me8_the_model_keeps_and_finds_things_with_tools(tmp_path: Path) -> None:
    known = Knowledge(tmp_path)
    script = [
        calling(("remember", {"fact": "The parcel comes on Friday."})),
        calling(("recall", {"query": "parcel"})),
        saying("On Friday."),
    ]
    model = Scripted(script)
    clerk = Agent(MODEL, providers={"test": model}, tools=known.tools, limits=AT_ONCE)

    clerk.run("When does the parcel come?").raise_for_status()

    assert Knowledge(tmp_path).facts == ("The parcel comes on Friday.",)
    assert model.requests[-1].messages[-1].content == "- The parcel comes on Friday."


def test_a_reader_looks_only_for_what_it_is_asked_for() -> None:
    known = Knowledge()
    clerk, _ = talking()
    only = {"facts": TAUGHT["facts"]}

    known.learn(clerk.run("I am Ann."), reading(only, entities=False, relations=False))

    assert known.facts == ("Ann is allergic to nuts.",)
    assert (known.entities, known.relations, known.logs) == ((), (), ())


async def test_observers_of_the_reader_are_told_what_was_noted() -> None:
    known, seen = Knowledge(), RecordingObserver()
    clerk, _ = talking()
    result = await clerk.arun("I am Ann.")

    await known.alearn(result, reading(observers=[seen]))

    told = [each for each in seen.seen if isinstance(each, (EntityExtraction, KgExtraction))]
    assert told == [
        EntityExtraction(result.run_id, ("Ann",), 1),
        KgExtraction(result.run_id, (("Ann", "lives in", "Oslo"),)),
    ]


async def test_runs_at_once_may_share_what_is_known() -> None:
    known = Knowledge()
    clerk, shown = talking()
    known.remember("Tea is at four.")

    await asyncio.gather(*(clerk.arun(f"{n}", knowledge=known) for n in range(5)))

    assert all("- Tea is at four." in words[0] for words in shown)


def test_what_is_remembered_is_the_same_at_the_next_opening(tmp_path: Path) -> None:
    known = Knowledge(tmp_path)
    known.remember("Ann\nis  a painter.\u200b")
    known.remember("x" * 2_000)
    known.remember("Ann is\tout.", lasting=False)

    for refused in ("x" * 2_001, "\u200b \n", ""):
        with pytest.raises(InvalidError, match=r"1 to 2,000 characters, and this (2,001|0)"):
            known.remember(refused)

    again = Knowledge(tmp_path)
    assert again.facts == known.facts == ("Ann is a painter.", "x" * 2_000)
    assert again.logs == known.logs == ("Ann is out.",)


def test_what_is_no_knowledge_is_refused() -> None:
    clerk, _ = talking()

    with pytest.raises(TypeError, match="is no Knowledge"):
        clerk.run("a", knowledge="notes")  # type: ignore[arg-type]  # what is refused


def test_a_run_that_waits_is_told_the_same_when_it_goes_on() -> None:
    known = Knowledge()
    known.remember("Tea is at four.")
    model = Scripted([calling(("remember", {"fact": "x"})), saying("Done.")])
    clerk = Agent(
        MODEL,
        providers={"test": model},
        tools=known.tools,
        limits=AT_ONCE,
        require_approval=["remember"],
        confirm_action=lambda *_: True,
    )

    clerk.run("Note x.", knowledge=known).raise_for_status()

    blocks = [request.messages[0].content for request in model.requests]
    assert "- Tea is at four." in blocks[0]
    assert blocks[1] == blocks[0]
