"""Streams of runs that other processes write: pieces may be lost, late or stale on the way."""

import asyncio
from dataclasses import replace

import pytest

from milepost.api.log_pages import LogPage, LogPages
from milepost.core.events import (
    MessageAborted,
    StepCompleted,
    StepStarted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.live.hub import LiveText
from tests.api.stream.elsewhere import Far
from tests.api.stream.reading import (
    Reading,
)
from tests.live.client import Client


async def test_a_client_elsewhere_joins_in_the_middle_of_a_text(far: Far) -> None:
    text = await far.run.start()
    far.run.say(text, "Hello, ")

    async with Reading(far.tail()) as reading:
        await reading.told("Hello, ")
        far.run.say(text, "world")
        await reading.told("Hello, world")

    assert reading.client.texts == {"msg_1": "Hello, world"}


async def test_a_log_that_is_doubted_while_it_is_read_is_read_again(
    far: Far, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read may be older than the doubt: nobody else will tell of the event since then."""
    far.run.hub.link = None
    read, doubted = LogPages.behind, asyncio.Event()

    async def doubted_meanwhile(pages: LogPages, seq: int) -> LogPage:
        page = await read(pages, seq)
        if not doubted.is_set():
            doubted.set()
            await far.run.write(StepStarted(1))
            far.here.doubt(far.run.id)
        return page

    monkeypatch.setattr(LogPages, "behind", doubted_meanwhile)

    async with Reading(far.tail()) as reading:
        await reading.seen(3)


async def test_text_that_was_completed_is_not_shown_again_from_what_was_overheard(
    far: Far,
) -> None:
    async with Reading(far.tail()) as reading:
        text = await far.run.start()
        far.run.say(text, "Hello")
        await reading.told("Hello")
        await far.run.complete("Hello")
        await far.run.write(StepCompleted(1))
        await reading.seen(5)
        far.here.overhear(far.run.id, replace(text))
        await far.run.end()
        client = await reading.ended()

    assert client.types.count("message.delta") == 1


@pytest.mark.parametrize("closing", ["completed", "aborted"])
async def test_a_client_that_comes_back_behind_a_message_is_not_shown_its_stale_text(
    far: Far, closing: str
) -> None:
    text = await far.run.start()
    far.run.say(text, "Hello")
    if closing == "completed":
        await far.run.complete("Hello")
    else:
        await far.run.write(MessageAborted("msg_1", "its worker died"))
    await far.run.write(StepCompleted(1))

    async with Reading(far.tail("4"), Client("4", [1, 2, 3, 4], started={"msg_1"})) as reading:
        await reading.seen(5)
        await far.run.write(StepStarted(2))
        await far.run.end()
        client = await reading.ended()

    assert "message.delta" not in client.types


async def test_a_zombie_s_text_is_not_shown_behind_its_aborted_message(far: Far) -> None:
    async with Reading(far.tail()) as reading:
        zombie = await far.run.start("msg_1")
        far.run.say(zombie, "Half")
        await reading.told("Half")
        await far.run.write(MessageAborted("msg_1", "its worker died"))
        await reading.seen(4)
        far.here.overhear(far.run.id, LiveText("message.delta", "msg_1", 3, "Half a word"))
        text = await far.run.start("msg_2")
        far.run.say(text, "Whole")
        await reading.told("Whole", "msg_2")

    assert "msg_1" not in reading.client.texts


async def test_a_call_that_is_run_again_shows_its_progress_again(far: Far) -> None:
    run = far.run
    await run.write(ToolCallRequested("call_1_0", "add", {}, "server", "key", "msg_1"))
    await run.write(ToolCallStarted("call_1_0", 1, "read"))
    run.say(run.begin("tool_call.progress", "call_1_0"), "10 %")
    await run.write(ToolCallCompleted("call_1_0", 1, 1), ToolCallStarted("call_1_0", 2, "read"))
    again = run.begin("tool_call.progress", "call_1_0")

    async with Reading(far.tail()) as reading:
        await reading.seen(6)
        run.say(again, "20 %")
        await reading.client.until(lambda client: client.types[-1] == "tool_call.progress")

    assert reading.client.seen[-1].data["text"] == "20 %"
