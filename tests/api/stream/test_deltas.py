"""Text while it is written: each piece has its place, and none is lost or doubled."""

from contextlib import aclosing

from milepost.core.events import (
    MessageAborted,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.live.hub import LiveText
from tests.api.stream.reading import (
    TEXT,
    Reading,
    ready,
    tail_of,
    whole,
)
from tests.live.client import parsed
from tests.runtime.writing import Run


async def test_text_is_shown_while_it_is_written(run: Run) -> None:
    async with Reading(tail_of(run)) as reading:
        text = await run.start()
        run.say(text, "Hel")
        await reading.told("Hel")
        run.say(text, "lo")
        await reading.told("Hello")
        await run.complete("Hello")
        await run.end()
        client = await reading.ended()

    assert client.types[-5:] == ["message.started", "message.delta", "message.delta",
                                 "message.completed", "run.completed"]  # fmt: skip


async def test_a_delta_is_held_back_until_its_message_was_started(run: Run) -> None:
    early = LiveText("message.delta", "msg_1", run.head + 1)

    async with Reading(tail_of(run)) as reading:
        await reading.seen(2)
        run.say(early, "Hel")
        await run.start()
        await reading.told("Hel")

    assert reading.client.types[-2:] == ["message.started", "message.delta"]


async def test_a_client_that_comes_back_while_the_message_is_written_gets_the_rest(
    run: Run,
) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, TEXT)
        for offset in range(len(TEXT)):
            [delta] = await ready(run, f"3~msg_1:{offset}")
            assert delta.data["text"] == TEXT[offset:]


async def test_a_client_that_does_not_say_how_far_it_read_gets_the_text_so_far(run: Run) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, "Hello")
        [delta] = await ready(run, "3")

    assert delta.data == {"message_id": "msg_1", "offset": 0, "text": "Hello"}
    assert delta.id == "3~msg_1:5"


async def test_a_message_is_topped_up_before_it_is_completed(run: Run) -> None:
    async with Reading(tail_of(run)) as reading:
        text = await run.start()
        run.say(text, "Hel")
        await reading.told("Hel")
        await run.complete("Hello, world")
        await run.end()
        client = await reading.ended()

    top_up = client.seen[-3]
    assert top_up.data == {"message_id": "msg_1", "offset": 3, "text": "lo, world"}
    assert top_up.id == "3~msg_1:12"


async def test_a_client_that_read_all_is_not_topped_up(run: Run) -> None:
    await run.start()
    await run.complete("Hello")
    await run.end()

    sent = await whole(run, "3~msg_1:5")

    assert [each.event for each in sent] == ["message.completed", "run.completed"]


async def test_a_position_beyond_a_message_s_end_does_no_harm(run: Run) -> None:
    await run.start()
    await run.complete("Hello")
    await run.end()

    sent = await whole(run, "3~msg_1:99")

    assert [each.event for each in sent] == ["message.completed", "run.completed"]


async def test_a_message_that_was_aborted_is_followed_by_one_with_a_new_id(run: Run) -> None:
    async with Reading(tail_of(run)) as reading:
        lost = await run.start("msg_1")
        run.say(lost, "Half a")
        await reading.told("Half a")
        await run.write(MessageAborted("msg_1", "its worker died"))
        text = await run.start("msg_2")
        run.say(text, "A whole one.")
        await run.complete("A whole one.", "msg_2")
        await run.end()
        client = await reading.ended()

    assert client.texts == {"msg_2": "A whole one."}


async def test_reasoning_begins_again_on_every_connection(run: Run) -> None:
    await run.start()
    thought = run.begin("reasoning.delta", "msg_1")

    with run.hub.hold(run.id):
        run.say(thought, "Let me ", "think.")
        [first] = await ready(run, "3")
        [again] = await ready(run, "3")

    assert first.id is None
    assert first.data == {"message_id": "msg_1", "offset": 0, "text": "Let me think."}
    assert again.data == first.data


async def test_a_tools_progress_begins_again_on_every_connection(run: Run) -> None:
    await run.write(ToolCallRequested("call_1_0", "add", {}, "server", "key", "msg_1"))
    await run.write(ToolCallStarted("call_1_0", 1, "read"))
    progress = run.begin("tool_call.progress", "call_1_0")

    with run.hub.hold(run.id):
        run.say(progress, "10 %, ", "20 %")
        [first] = await ready(run, "4")

    assert first.id is None
    assert first.data == {"call_id": "call_1_0", "offset": 0, "text": "10 %, 20 %"}


async def test_a_slow_reader_gets_bigger_pieces_and_not_more_of_them(run: Run) -> None:
    async with aclosing(tail_of(run).pieces()) as pieces:
        await anext(pieces)
        text = await run.start()
        run.say(text, *["word "] * 1_000)
        sent = parsed(await anext(pieces))

    assert [each.event for each in sent] == ["message.started", "message.delta"]
    assert sent[1].data["text"] == "word " * 1_000
