"""However often a real stream is cut, and wherever, its client sees everything exactly once."""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

from milepost.client import Event, Milepost
from tests.client.conftest import EAGER
from tests.client.cutting_proxy import cutting
from tests.journeys.processes import Installation, Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = "na\u00efve \U0001f389\U0001f44d\U0001f3fd e\u0301t\u00e9 \u4f60\u597d \u2028 line\u0085end"
SAID = " ".join([WORDS] * 12)


def budgets(seed: int, most: int) -> Iterator[int]:
    """Yield how much of each answer comes through: always enough for one more event or two."""
    chance = random.Random(seed)
    yield from (chance.randint(400, most) for _ in itertools.count())


def seqs(events: Sequence[Event]) -> list[int]:
    return [event.seq for event in events if event.seq is not None]


def texts(events: Sequence[Event]) -> dict[str, str]:
    """Return what the deltas of each message add up to."""
    written: defaultdict[str, str] = defaultdict(str)
    for event in events:
        if event.type == "message.delta":
            written[event.data["message_id"]] += event.data["text"]
    return dict(written)


def contents(events: Sequence[Event]) -> dict[str, str]:
    """Return what each message was in the end."""
    return {
        event.data["message_id"]: event.data["content"]
        for event in events
        if event.type == "message.completed" and event.data["content"]
    }


@pytest.mark.parametrize("seed", range(6))
async def test_text_is_the_same_to_the_byte_while_it_is_being_written(
    base_url: str, milepost: Milepost, seed: int
) -> None:
    run = await milepost.runs.create("parrot", f"slowly 3\n{SAID}")

    async with (
        cutting(base_url, budgets(seed, 3_000)) as proxy,
        Milepost(proxy.base_url, patience=EAGER) as client,
    ):
        events = [event async for event in client.runs.stream(run.id)]

    assert proxy.cuts > 3
    assert seqs(events) == list(range(1, len(seqs(events)) + 1))
    assert texts(events) == contents(events)
    assert (await milepost.runs.get(run.id)).text == "".join(texts(events).values())


@pytest.mark.parametrize("seed", range(6))
async def test_the_log_of_a_run_that_is_over_is_the_same_in_any_number_of_pieces(
    base_url: str, milepost: Milepost, seed: int
) -> None:
    run = await milepost.runs.create("demo", "What is 17 + 25, and 6 times 7? Who are you?")
    await milepost.runs.wait(run.id)
    whole = [event async for event in milepost.runs.stream(run.id)]

    async with (
        cutting(base_url, budgets(seed, 1_500)) as proxy,
        Milepost(proxy.base_url, patience=EAGER) as client,
    ):
        pieced = [event async for event in client.runs.stream(run.id)]

    assert proxy.cuts > 1
    assert [event for event in pieced if event.seq] == [event for event in whole if event.seq]
    assert texts(pieced) == texts(whole) == contents(whole)


async def test_a_stream_goes_on_where_its_server_is_started_again(
    installation: Installation, server: Server, milepost: Milepost
) -> None:
    run = await milepost.runs.create("parrot", f"slowly 10\n{SAID}")
    events = []

    async for event in milepost.runs.stream(run.id):
        events.append(event)
        if event.type == "message.delta" and server.process.returncode is None:
            await server.kill()
            await installation.start("--port", str(server.http.base_url.port))

    assert seqs(events) == list(range(1, len(seqs(events)) + 1))
    assert "run.resumed" in {event.type for event in events}
    assert contents(events).items() <= texts(events).items()
