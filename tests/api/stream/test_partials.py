"""Values of structured answers in a stream: beside the text that is being written, and not kept."""

import asyncio
from typing import Any

from milepost.api.partials import INTERVAL_S, Partials
from milepost.api.stream import Selection
from milepost.core.events import MessageAborted
from milepost.live.hub import LiveText
from tests.api.stream.reading import Reading, ready, tail_of
from tests.live.client import Client, Sent
from tests.runtime.writing import Run

PARTIALS = Selection(partials=True)


def values(client: Client) -> list[Any]:
    return [sent.data["value"] for sent in client.seen if sent.event == "output.partial"]


async def shown(reading: Reading, value: object) -> None:
    """Wait until the client was sent a value."""
    await reading.client.until(lambda client: value in values(client))


def events(sent: list[Sent]) -> list[str]:
    return [each.event for each in sent]


async def test_a_value_follows_the_text_that_it_was_read_from(run: Run) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, '{"city": "Ly')
        delta, partial = await ready(run, "3", PARTIALS)

    assert delta.event == "message.delta"
    assert (partial.event, partial.id, partial.seq) == ("output.partial", None, None)
    assert partial.data == {"message_id": "msg_1", "value": {"city": "Ly"}}


async def test_who_does_not_ask_for_values_gets_none(run: Run) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, '{"city": "Ly')

        assert events(await ready(run, "3")) == ["message.delta"]


async def test_values_come_without_the_text_where_only_they_are_wanted(run: Run) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, '{"city": "Ly')
        without_text = Selection(deltas=False, partials=True)
        only_values = Selection(types=("output.*",), partials=True)

        assert events(await ready(run, "3", without_text)) == ["output.partial"]
        assert events(await ready(run, "3", only_values)) == ["output.partial"]


async def test_values_that_no_type_names_are_not_sent(run: Run) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, '{"city": "Ly')
        selection = Selection(types=("message.*",), partials=True)

        assert events(await ready(run, "3", selection)) == ["message.delta"]


async def test_text_that_is_no_json_has_no_values(run: Run) -> None:
    text = await run.start()
    thought = run.begin("reasoning.delta", "msg_1")

    with run.hub.hold(run.id):
        run.say(text, "Well, {")
        run.say(thought, '{"a": 1}')

        assert sorted(events(await ready(run, "3", PARTIALS))) == [
            "message.delta",
            "reasoning.delta",
        ]


async def test_the_last_value_is_shown_though_the_model_pauses(run: Run) -> None:
    async with Reading(tail_of(run, selection=PARTIALS)) as reading:
        text = await run.start()
        run.say(text, '{"city": "L')
        await shown(reading, {"city": "L"})
        run.say(text, "yon")
        await shown(reading, {"city": "Lyon"})

    assert values(reading.client) == [{"city": "L"}, {"city": "Lyon"}]


async def test_values_come_no_faster_than_somebody_could_look_at_them(run: Run) -> None:
    loop = asyncio.get_running_loop()

    async with Reading(tail_of(run, selection=PARTIALS)) as reading:
        text = await run.start()
        began = loop.time()
        said = '{"words": ["'
        run.say(text, said)
        for number in range(100):
            run.say(text, f"{number} ")
            said += f"{number} "
            await reading.told(said)
        run.say(text, 'end"]}')
        whole = {"words": [said.removeprefix('{"words": ["') + "end"]}
        await shown(reading, whole)
        took_s = loop.time() - began

    assert len(values(reading.client)) <= took_s / INTERVAL_S + 1


async def test_a_value_that_has_not_changed_is_not_sent_again() -> None:
    text = LiveText("message.delta", "msg_1", 3)
    partials = Partials("run_1", lambda: None, interval_s=0)
    sent = []

    for piece in ('{"a": 1', "", "  ,", '"b": 2'):
        text.text += piece
        sent.append(len(partials.frames(text)))

    assert sent == [1, 0, 0, 1]


async def test_the_next_attempt_has_values_of_its_own(run: Run) -> None:
    async with Reading(tail_of(run, selection=PARTIALS)) as reading:
        text = await run.start("msg_1")
        run.say(text, '{"a": 1')
        await shown(reading, {"a": 1})
        await run.write(MessageAborted("msg_1", "busy"))
        text = await run.start("msg_2")
        run.say(text, '{"a": 1')
        named = {"message_id": "msg_2", "value": {"a": 1}}
        await reading.client.until(lambda client: any(each.data == named for each in client.seen))


async def test_a_client_that_comes_back_is_sent_the_value_so_far(run: Run) -> None:
    text = await run.start()

    with run.hub.hold(run.id):
        run.say(text, '{"city": "Ly')
        [partial] = await ready(run, "3~msg_1:12", PARTIALS)

    assert partial.data["value"] == {"city": "Ly"}


async def test_a_stream_that_ends_leaves_no_timer_behind(run: Run) -> None:
    tail = tail_of(run, selection=PARTIALS)
    async with Reading(tail) as reading:
        text = await run.start()
        run.say(text, '{"a": 1')
        await shown(reading, {"a": 1})
        run.say(text, ', "b": 2')
        await reading.told('{"a": 1, "b": 2')
        await run.complete('{"a": 1, "b": 2}')
        await run.end()
        await reading.ended()

    assert tail._partials is not None
    timer = tail._partials._timer
    assert timer is None or timer.cancelled()
