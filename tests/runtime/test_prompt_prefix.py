"""What a vendor is sent begins with the same bytes from turn to turn, so that caches know it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from milepost.core.agents import Agent, Memory, Remembered, Summarize, Window
from milepost.core.context import block
from milepost.core.messages import Message
from milepost.core.model import ModelRequest
from milepost.providers import gemini_request
from milepost.providers.anthropic_request import Dialect as MessagesDialect
from milepost.providers.anthropic_request import MessagesEncoder
from milepost.providers.openai_request import ChatEncoder
from milepost.providers.openai_request import Dialect as ChatDialect
from milepost.providers.responses_request import ResponsesEncoder
from milepost.providers.scripted import calling, saying
from milepost.runtime.means import Means
from milepost.store.records import Claim
from tests.runtime.talking import Talk, talked
from tests.runtime.workshop import Workshop

Encode = Callable[[ModelRequest], bytes]

WIRES: dict[str, tuple[Encode, str]] = {
    "openai": (ChatEncoder(ChatDialect("max_completion_tokens")).encode, "messages"),
    "responses": (ResponsesEncoder("openai").encode, "input"),
    "anthropic": (MessagesEncoder(MessagesDialect()).encode, "messages"),
    "gemini": (gemini_request.encode, "contents"),
}
each_wire = pytest.mark.parametrize("wire", WIRES)


class Noting:
    """What is remembered is another thing in every run."""

    def __init__(self) -> None:
        self.runs = 0

    async def context(self, _claim: Claim, _agent: Agent, query: str) -> str:
        """Return what is remembered."""
        self.runs += 1
        return block({"entities": [f"Ann, who has asked {self.runs} times, now: {query}"]})


class Remembering(Talk):
    """A session of an agent that is told what is remembered."""

    def __init__(self, shop: Workshop, memory: Memory) -> None:
        super().__init__(shop, replace(memory, recall=Remembered()))
        self.recall = Noting()

    def means(self, model: Any) -> Means:
        """Return what a turn needs."""
        return replace(super().means(model), recall=self.recall)


def unmarked(value: Any) -> Any:
    """Return a body without the marks for the cache, which are no part of what is cached."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def blocks(turns: list[Any]) -> list[bytes]:
    """Return a conversation in the pieces that a vendor compares: one for each block of a turn."""
    return [orjson.dumps([turn.get("role"), part]) for turn in turns for part in _parts(turn)]


def _parts(turn: dict[str, Any]) -> list[Any]:
    content = turn.get("content")
    return content if isinstance(content, list) else turn.get("parts") or [turn]


def sent(wire: str, talk: Talk) -> tuple[bytes, list[bytes]]:
    """Return what the vendor was sent: all that stands above the conversation, and its pieces."""
    encode, place = WIRES[wire]
    assert talk.shown is not None
    body = unmarked(orjson.loads(encode(talk.shown)))
    return orjson.dumps(body | {place: []}), blocks(body[place])


def common(one: list[bytes], other: list[bytes]) -> int:
    """Return how many pieces both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


@each_wire
async def test_the_next_turn_begins_with_all_that_was_sent_before(
    shop: Workshop, wire: str
) -> None:
    talk = Talk(shop, Memory(Window(messages=20)))
    before = (b"", list[bytes]())

    for turn, said in enumerate("abcdef"):
        if turn == 2:
            await talk.say("Look.", [*calling(("look", {})), *saying("Hm.")], saying("I see."))
        await talk.say(said)
        above, pieces = sent(wire, talk)
        if turn:
            assert above == before[0]
            assert common(pieces, before[1]) == len(before[1])
        before = (above, pieces)


@each_wire
async def test_what_is_remembered_stands_behind_all_that_stays_the_same(
    shop: Workshop, wire: str
) -> None:
    """Of the last request all is found again, but for what was that run's alone."""
    talk = Remembering(shop, Memory(Window(messages=20)))
    before = (b"", list[bytes]())

    for turn, said in enumerate("abcdef"):
        await talk.say(said)
        above, pieces = sent(wire, talk)
        assert any(b"Known Entities" in piece for piece in pieces[-2:])
        if turn:
            assert above == before[0]
            assert common(pieces, before[1]) == len(before[1]) - 2
        before = (above, pieces)


@each_wire
async def test_between_two_trims_the_summary_and_the_session_stay_the_same(
    shop: Workshop, wire: str
) -> None:
    talk = Remembering(shop, Memory(Window(messages=8), Summarize("scribe/small")))
    talk.tells("First.", "Second.", "Third.", "Fourth.")
    same, before = list[bool](), (b"", list[bytes]())

    for turn in range(14):
        await talk.say(f"turn {turn}")
        above, pieces = sent(wire, talk)
        kept = above == before[0] and common(pieces, before[1]) == len(before[1]) - 2
        same.append(kept)
        before = (above, pieces)

    # The prompt begins anew where the window was full, which it is in every second turn or third.
    assert [turn for turn, kept in enumerate(same) if not kept] == [0, 5, 8, 11]


async def test_each_step_of_a_run_begins_with_the_one_before_it(shop: Workshop) -> None:
    talk = Remembering(shop, Memory(Window(messages=20)))
    await talked(talk, "ab")
    scripts = [calling(("look", {})), calling(("look", {})), saying("I see.")]
    run_id = await talk.say("Look twice.", *scripts)
    last = talk.shown
    assert last is not None

    assert [message.role for message in last.messages] == [
        "system", "user", "assistant", "user", "assistant",
        "system", "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert last.messages[5] == Message(
        "system", "[Known Entities]\nAnn, who has asked 3 times, now: Look twice."
    )
    assert run_id
