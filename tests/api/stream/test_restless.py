"""A client that loses its connection all the time loses and doubles nothing."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from random import Random

import pytest

from milepost.api.stream import (
    Tail,
)
from milepost.core.events import (
    MessageAborted,
    MessageCompleted,
    ReasoningCompleted,
    StepCompleted,
)
from milepost.core.usage import Usage
from milepost.live.hub import Hub
from tests.api.stream.elsewhere import Far, Relay
from tests.api.stream.reading import (
    TEXT,
    TIMEOUT_S,
    tail_of,
)
from tests.live.client import Client, parsed
from tests.runtime.writing import Run


async def restless(tail_at: Callable[[str], Tail], chance: Random) -> Client:
    """Read a run to its end over connections that break behind any frame."""
    client = Client()
    while "run.completed" not in client.types:
        async with aclosing(tail_at(client.position).pieces()) as pieces:
            async for piece in pieces:
                sent = parsed(piece)
                cut = chance.randint(1, len(sent) + 1)
                for each in sent[:cut]:
                    client.take(each)
                if cut <= len(sent):
                    break
    return client


async def written(run: Run, chance: Random) -> dict[str, str]:
    """Write a run while others read it; return the texts of the messages that were completed."""
    texts = {}
    with run.hub.hold(run.id):
        for number in range(1, 7):
            message_id = f"msg_{number}"
            content = "".join(chance.choices(TEXT, k=chance.randrange(40)))
            text = await run.start(message_id)
            for piece in _pieces(content, chance):
                run.say(text, piece)
                await _let_others(chance)
            if chance.random() < 0.3:
                await run.write(MessageAborted(message_id, "its worker died"))
            else:
                completed = MessageCompleted(message_id, content, "stop", Usage())
                thought = ReasoningCompleted(message_id, "hm")
                await run.write(completed, thought, StepCompleted(number))
                texts[message_id] = content
            await _let_others(chance)
        await run.end()
    return texts


def _pieces(content: str, chance: Random) -> Sequence[str]:
    ends = [*sorted(chance.choices(range(len(content) + 1), k=3)), len(content)]
    return [content[a:b] for a, b in zip([0, *ends], ends, strict=False) if b > a]


async def _let_others(chance: Random) -> None:
    for _ in range(chance.randrange(20)):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(12))
async def test_a_client_that_is_cut_off_all_the_time_loses_and_doubles_nothing(
    run: Run, seed: int
) -> None:
    chance = Random(seed)

    reading = asyncio.create_task(restless(lambda position: tail_of(run, position), chance))
    texts = await written(run, chance)
    client = await asyncio.wait_for(reading, TIMEOUT_S)

    assert client.seqs == list(range(1, run.head + 1))
    assert client.texts == {name: text for name, text in texts.items() if text}


@pytest.mark.parametrize("seed", range(12))
async def test_neither_does_one_elsewhere_while_pieces_get_lost(
    run: Run, hub: Hub, seed: int
) -> None:
    chance = Random(seed)
    here = Hub()
    hub.link = here.link = Relay(here, chance)

    reading = asyncio.create_task(restless(Far(run, here).tail, chance))
    texts = await written(run, chance)
    client = await asyncio.wait_for(reading, TIMEOUT_S)

    assert client.seqs == list(range(1, run.head + 1))
    assert client.texts == {name: text for name, text in texts.items() if text}
