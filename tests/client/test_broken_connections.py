"""However often a real stream is cut, and wherever, its client sees everything exactly once."""

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from milepost.client import Event, Milepost
from tests.client.conftest import EAGER
from tests.client.cutting_proxy import cutting
from tests.journeys.processes import Installation, Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORDS = "na\u00efve \U0001f389\U0001f44d\U0001f3fd e\u0301t\u00e9 \u4f60\u597d \u2028 line\u0085end"
SAID = " ".join([WORDS] * 12)

BUDGETS = 40
BUDGET_MIN = 150
BUDGET_MAX = 900
PARTS = 4
LAST_CHUNK = b"0\r\n\r\n"


def budgets(seed: int) -> list[int]:
    """Return how much the first connections carry: from less than a head to a few events."""
    chance = random.Random(seed)
    return [chance.randint(BUDGET_MIN, BUDGET_MAX) for _ in range(BUDGETS)]


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
async def test_text_that_is_being_written_comes_whole_through_connections_that_break(
    base_url: str, milepost: Milepost, seed: int
) -> None:
    run = await milepost.runs.create("parrot", f"slowly 3\n{SAID}")

    async with (
        cutting(base_url, budgets(seed)) as proxy,
        Milepost(proxy.base_url, patience=EAGER) as client,
    ):
        events = [event async for event in client.runs.stream(run.id)]

    assert proxy.cuts > 3
    assert seqs(events) == list(range(1, len(seqs(events)) + 1))
    assert texts(events) == contents(events)
    assert (await milepost.runs.get(run.id)).text == "".join(texts(events).values())


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_log_is_the_same_wherever_the_connection_breaks(
    base_url: str, milepost: Milepost, part: int
) -> None:
    run = await milepost.runs.create("parrot", WORDS)
    run = await milepost.runs.wait(run.id)

    async with (
        cutting(base_url) as proxy,
        Milepost(proxy.base_url, patience=EAGER) as client,
    ):
        whole = [event async for event in client.runs.stream(run.id)]
        end = proxy.passed_bytes
        for budget in range(part, end, PARTS):
            proxy.budgets = iter([budget])
            assert [event async for event in client.runs.stream(run.id)] == whole, budget

    assert "".join(texts(whole).values()) == run.text
    # Whoever has the last event leaves, maybe before the last chunk could be cut.
    assert proxy.cuts >= end // PARTS - len(LAST_CHUNK)


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
