"""One durable log: resumable at any event, in bounded pieces, of the types that are wanted."""

import asyncio
from contextlib import aclosing

from milepost.api.log_pages import PAGE_BYTES, LogPages
from milepost.api.stream import (
    Selection,
)
from milepost.core.events import (
    StepCompleted,
    StepStarted,
)
from milepost.live.hub import Hub
from milepost.store import log
from tests.api.stream.elsewhere import Relay
from tests.api.stream.reading import (
    TEXT,
    TIMEOUT_S,
    long_results,
    played,
    tail_of,
    whole,
)
from tests.live.client import Client
from tests.runtime.writing import Run
from tests.store.making import TENANT


async def test_a_finished_run_is_streamed_from_its_first_event_to_its_last(run: Run) -> None:
    await played(run)

    client = await Client().read(tail_of(run).pieces())

    assert client.seqs == list(range(1, run.head + 1))
    assert client.types[-1] == "run.completed"
    assert client.texts == {"msg_1": "On it.", "msg_3": TEXT}


async def test_a_stream_cut_behind_any_frame_goes_on_with_the_next(run: Run) -> None:
    await played(run)
    frames = await whole(run)

    for cut in range(1, len(frames)):
        client = Client()
        for sent in frames[:cut]:
            client.take(sent)
        await client.read(tail_of(run, client.position).pieces())
        assert client.seqs == list(range(1, run.head + 1))
        assert client.texts == {"msg_1": "On it.", "msg_3": TEXT}


async def test_a_stream_cut_inside_a_character_sequence_goes_on_exactly_there(run: Run) -> None:
    text = await run.start()
    run.say(text, TEXT)
    await run.complete(TEXT)
    await run.end()

    for offset in range(len(TEXT)):
        first, *_ = await whole(run, f"3~msg_1:{offset}")
        assert first.data == {"message_id": "msg_1", "offset": offset, "text": TEXT[offset:]}


async def test_a_log_longer_than_a_page_is_streamed_whole(run: Run) -> None:
    await run.write(*[StepCompleted(index) for index in range(log.READ_MAX * 2)])
    await run.end()

    client = Client()
    async with asyncio.timeout(TIMEOUT_S):
        await client.read(tail_of(run).pieces())

    assert client.seqs == list(range(1, run.head + 1))


async def test_what_is_written_while_a_client_joins_is_not_missed(run: Run) -> None:
    class SlowLink(Relay):
        """Takes its time to listen."""

        async def follow(self, _: str) -> None:
            await run.write(StepStarted(1))
            await run.end()

    run.hub.link = SlowLink(Hub())

    client = await Client().read(tail_of(run).pieces())

    assert client.seqs == [1, 2, 3, 4]


async def test_a_log_of_big_events_is_streamed_in_pieces_of_bounded_size(run: Run) -> None:
    await long_results(run, 60)
    await run.end()

    client = await asyncio.wait_for(Client().read(tail_of(run).pieces()), TIMEOUT_S)

    assert client.seqs == list(range(1, run.head + 1))
    assert max(map(len, client.pieces)) < PAGE_BYTES + 20_000  # what frames a stream's events


async def test_so_are_big_events_that_are_written_meanwhile(run: Run) -> None:
    with run.hub.hold(run.id):
        async with aclosing(tail_of(run).pieces()) as pieces:
            await anext(pieces)
            await long_results(run, 20)
            sizes = [len(await anext(pieces)) for _ in range(4)]

    assert max(sizes) < PAGE_BYTES + 20_000


async def test_an_event_that_is_bigger_than_a_piece_is_sent_whole(run: Run) -> None:
    await long_results(run, 2, PAGE_BYTES + 1)
    await run.end()

    client = await asyncio.wait_for(Client().read(tail_of(run).pieces()), TIMEOUT_S)

    assert client.seqs == list(range(1, run.head + 1))


async def test_a_log_is_read_in_pages_that_fit_its_events(run: Run) -> None:
    await long_results(run, 70)
    await run.write(*[StepCompleted(index) for index in range(50)])
    pages = LogPages(run.store, TENANT, run.id)

    ends, page = [], await pages.behind(0)
    while page.head is None:
        ends.append(page.frames[-1].seq)
        page = await pages.behind(ends[-1])

    assert ends[:3] == [7, 12, 17]  # five of 50,000 bytes each
    assert (page.frames[-1].seq, page.head) == (run.head, run.head)


async def test_only_the_wanted_types_are_sent_and_their_ids_jump(run: Run) -> None:
    await played(run)

    sent = await whole(run, selection=Selection(types=("run.*", "tool_call.completed")))

    assert [each.event for each in sent] == ["run.queued", "run.started", "tool_call.completed",
                                             "run.completed"]  # fmt: skip
    assert [each.id for each in sent] == [str(each.seq) for each in sent]


async def test_deltas_can_be_left_out(run: Run) -> None:
    await played(run)

    sent = await whole(run, selection=Selection(deltas=False))

    assert [each.seq for each in sent] == list(range(1, run.head + 1))


async def test_deltas_alone_carry_the_place_of_what_was_filtered_out(run: Run) -> None:
    await played(run)

    sent = await whole(run, selection=Selection(types=("message.delta",)))

    assert [each.data["text"] for each in sent] == ["On it.", TEXT]
    assert sent[0].id == "4~msg_1:6"
