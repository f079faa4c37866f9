"""The stream's six rules, on a real store and hub: nothing lost or doubled, and no silence."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import httpx2
import pytest
from starlette.types import Message

from milepost.api.log_pages import PAGE_BYTES, LogPages
from milepost.api.stream import (
    HEARTBEAT,
    Cursor,
    Selection,
    Streams,
    Tail,
    TailResponse,
    parse_cursor,
)
from milepost.core.errors import InvalidError
from milepost.core.events import (
    Failure,
    MessageAborted,
    MessageCompleted,
    ReasoningCompleted,
    RunWaiting,
    StepCompleted,
    StepStarted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
)
from milepost.core.usage import Usage
from milepost.live.hub import Hub, LiveText
from milepost.store import log, sessions
from milepost.store.address import SqliteAddress
from milepost.store.migrate import migrate
from milepost.store.records import Change
from milepost.store.store import Store
from tests.api.making import an_agent, an_ended_run, made, refusal
from tests.live.client import Client, Sent, parsed
from tests.runtime.writing import Run, claimed
from tests.store.conftest import opened, serving
from tests.store.making import TENANT

TIMEOUT_S = 10
SCOPE = {"type": "http", "path": "/v1/runs/run_1/events", "state": {"request_id": "req_1"}}
ALL = Selection()
# Every kind of character that a careless cut would tear apart.
TEXT = "Grüße, 👩‍🚀 e\u0301lan — 漢字 🇩🇪 done."


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stream") / "milepost.db"
    migrate(SqliteAddress(path))
    return path


@pytest.fixture
async def store(template: Path, tmp_path: Path) -> AsyncIterator[Store]:
    path = Path(shutil.copy(template, tmp_path / "milepost.db"))
    async with opened(SqliteAddress(path)) as engine, serving(Store(engine)) as store:
        yield store


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
async def run(store: Store, hub: Hub) -> Run:
    return await claimed(store, hub)


# --- A client that reads it ---


class Reading:
    """A client that reads in the background while the test goes on."""

    def __init__(self, tail: Tail, client: Client | None = None) -> None:
        self.tail = tail
        self.client = client or Client()
        self._task: asyncio.Task[Client] | None = None

    async def __aenter__(self) -> "Reading":
        self._task = asyncio.create_task(self.client.read(self.tail.pieces()))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def seen(self, seq: int) -> None:
        """Wait until the client has seen an event of the log."""
        await self.client.until(lambda client: bool(client.seqs) and client.seqs[-1] >= seq)

    async def told(self, text: str, message_id: str = "msg_1") -> None:
        """Wait until the client has a message's text."""
        await self.client.until(lambda client: client.texts.get(message_id) == text)

    async def ended(self) -> Client:
        """Return the client once its stream has ended."""
        assert self._task is not None
        async with asyncio.timeout(TIMEOUT_S):
            return await self._task


def tail_of(run: Run, position: str = "0", selection: Selection = ALL) -> Tail:
    """Return a tail of the run from a position on."""
    return Tail(run.store, run.hub, TENANT, run.id, parse_cursor(position), selection)


async def whole(run: Run, position: str = "0", selection: Selection = ALL) -> list[Sent]:
    """Return all that a stream sends from a position to its end."""
    sent: list[Sent] = []
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(tail_of(run, position, selection).pieces()) as pieces:
            async for piece in pieces:
                sent += parsed(piece)
    return sent


async def ready(run: Run, position: str = "0", selection: Selection = ALL) -> list[Sent]:
    """Return what a stream sends at once."""
    async with asyncio.timeout(TIMEOUT_S):
        async with aclosing(tail_of(run, position, selection).pieces()) as pieces:
            return parsed(await anext(pieces))


async def played(run: Run) -> None:
    """Play a run with a message, a call, an attempt that fails, and an answer."""
    await run.write(StepStarted(1))
    text = await run.start("msg_1")
    run.say(text, "On ", "it.")
    call = ToolCallRequested("call_1_0", "add", {}, "server", "key", "msg_1")
    await run.write(MessageCompleted("msg_1", "On it.", "stop", Usage()), call)
    await run.write(ToolCallStarted("call_1_0", 1, "read"))
    await run.write(ToolCallCompleted("call_1_0", 42, 1), StepCompleted(1), StepStarted(2))
    lost = await run.start("msg_2")
    run.say(lost, "Gone")
    await run.write(MessageAborted("msg_2", "busy", Failure("provider_overloaded", "busy")))
    text = await run.start("msg_3")
    run.say(text, *TEXT)
    await run.complete(TEXT, "msg_3")
    await run.write(StepCompleted(2))
    await run.end()


# --- Rule 1: one durable log, resumable at any event ---


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


async def long_results(run: Run, count: int, size: int = 50_000) -> None:
    """Write a log of `count` big events."""
    for index in range(count):
        await run.write(ToolCallCompleted(f"call_1_{index}", "x" * size, 1))


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


# --- Rule 2: deltas are positioned ---


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


# --- Other processes, between which pieces may be lost, late or stale ---


class Relay:
    """A way from one process to another that may lose what it carries, and remembers texts."""

    def __init__(self, other: Hub, chance: Random | None = None) -> None:
        self._other = other
        self._chance = chance
        self._texts: dict[str, LiveText] = {}

    def published(self, run_id: str, seq: int) -> None:
        self._other.hint(run_id, seq)

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:
        self._texts[text.id] = replace(text)
        if self._chance is None or self._chance.random() < 0.7:
            start = LiveText(text.kind, text.id, text.after_seq)
            self._other.overhear_piece(run_id, start, len(text.text) - len(piece), piece)

    def closed(self, run_id: str, text: LiveText) -> None:
        pass

    def rang(self, bell: str) -> None:
        self._other.chime(bell)

    async def follow(self, run_id: str) -> None:
        for text in self._texts.values():
            self._other.overhear(run_id, replace(text))

    def leave(self, run_id: str) -> None:
        pass


@dataclass
class Far:
    """A run that is written in one process and read in another."""

    run: Run
    here: Hub

    def tail(self, position: str = "0") -> Tail:
        """Return a tail in this process."""
        store = self.run.store
        return Tail(store, self.here, TENANT, self.run.id, parse_cursor(position))

    async def whole(self, position: str = "0") -> Client:
        """Read it to its end."""
        client = Client(position=position)
        return await asyncio.wait_for(client.read(self.tail(position).pieces()), TIMEOUT_S)


@pytest.fixture
def far(run: Run, hub: Hub) -> Far:
    here = Hub()
    hub.link = Relay(here)
    here.link = hub.link
    return Far(run, here)


async def test_a_client_elsewhere_joins_in_the_middle_of_a_text(far: Far) -> None:
    text = await far.run.start()
    far.run.say(text, "Hello, ")

    async with Reading(far.tail()) as reading:
        await reading.told("Hello, ")
        far.run.say(text, "world")
        await reading.told("Hello, world")


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


# --- A client that loses its connection all the time ---


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


# --- Rule 3: exactly one terminal event ---


async def test_the_stream_ends_with_the_run(run: Run) -> None:
    async with Reading(tail_of(run)) as reading:
        await reading.seen(2)
        await run.end()
        client = await reading.ended()

    assert client.types[-1] == "run.completed"


async def test_a_client_may_leave_where_the_run_waits(run: Run) -> None:
    await run.write(RunWaiting("approval", ("apr_1",)), change=Change("waiting"))

    sent = await whole(run, selection=Selection(until_waiting=True))

    assert sent[-1].event == "run.waiting"


async def test_a_run_that_waits_is_not_over(run: Run) -> None:
    await run.write(RunWaiting("approval", ("apr_1",)), change=Change("waiting"))
    tail = tail_of(run)
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        assert parsed(await anext(pieces))[-1].event == "run.waiting"
        assert await anext(pieces) == HEARTBEAT


# --- Rule 4: never silence ---


async def test_a_heartbeat_is_a_comment_with_one_line_end(run: Run) -> None:
    tail = tail_of(run)
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        await anext(pieces)
        beats = [await anext(pieces) for _ in range(3)]

    assert beats == [b": hb\n"] * 3


async def test_a_heartbeat_comes_while_only_unwanted_text_is_written(run: Run) -> None:
    tail = tail_of(run, selection=Selection(deltas=False))
    tail.heartbeat_s = 0.01
    text = await run.start()

    async def writing() -> None:
        while True:
            run.say(text, "word ")
            await asyncio.sleep(0)

    async with aclosing(tail.pieces()) as pieces:
        await anext(pieces)
        task = asyncio.create_task(writing())
        assert await asyncio.wait_for(anext(pieces), TIMEOUT_S) == HEARTBEAT
        task.cancel()


async def test_retry_stands_inside_the_first_frame_that_has_data_and_nowhere_else(
    run: Run,
) -> None:
    tail = tail_of(run, "2")
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        assert await anext(pieces) == HEARTBEAT
        frames: list[Sent] = []
        for event in (StepStarted(1), StepCompleted(1)):
            await run.write(event)
            while (piece := await anext(pieces)) == HEARTBEAT:
                pass
            frames += parsed(piece)

    assert [frame.retry for frame in frames] == ["1500", None]


async def test_every_frame_names_its_event(run: Run) -> None:
    await played(run)

    sent = await whole(run)

    assert all(each.event == each.body["type"] for each in sent)
    assert {each.body["run_id"] for each in sent} == {run.id}


# --- Rule 6: filters ---


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


# --- Cursors ---


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        (None, Cursor()),
        ("", Cursor()),
        ("0", Cursor()),
        ("41", Cursor(41)),
        ("41~msg_7:136", Cursor(41, "msg_7", 136)),
    ],
)
def test_a_position_is_read(text: str | None, cursor: Cursor) -> None:
    assert parse_cursor(text) == cursor


@pytest.mark.parametrize(
    "text",
    ["x", "-1", "01", "1~", "1~msg_7", "1~msg_7:", "1~msg_7:-1", "1~m g:1", "1" * 30, "\u0661"],
)
def test_anything_else_is_refused_with_words(text: str) -> None:
    with pytest.raises(InvalidError, match="send the id of the last event") as refused:
        parse_cursor(text)

    assert refused.value.code == "bad_cursor"


# --- The response ---


class Wire:
    """An ASGI server's side of a response; `stuck` makes it take no more bodies."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.body = b""
        self.done = False
        self.gone = asyncio.Event()
        self.stuck_behind: Callable[[bytes], bool] = lambda _: False
        self.news = asyncio.Event()

    async def send(self, message: Message) -> None:
        body = message.get("body", b"")
        if self.stuck_behind(self.body) and b"stream.lagged" not in body:
            await asyncio.Event().wait()
        self.messages.append(message)
        self.body += body
        self.done = not message.get("more_body", True)
        self.news.set()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def until(self, part: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while part not in self.body:
                self.news.clear()
                await self.news.wait()


def responding(response: TailResponse, wire: Wire) -> "asyncio.Task[None]":
    return asyncio.create_task(response(SCOPE, wire.receive, wire.send))


async def test_a_response_is_a_stream_that_nobody_on_the_way_may_keep(run: Run) -> None:
    await run.end()
    wire, streams = Wire(), Streams()

    response = TailResponse(tail_of(run), streams, {"Location": "/v1/runs/1"})
    await responding(response, wire)

    headers = dict(wire.messages[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"Location"] == b"/v1/runs/1"
    assert wire.done
    assert len(streams) == 0


async def test_a_draining_server_sends_its_clients_elsewhere(run: Run) -> None:
    wire, streams = Wire(), Streams()
    response = responding(TailResponse(tail_of(run), streams), wire)
    await wire.until(b"run.started")
    assert len(streams) == 1

    streams.drain()
    await asyncio.wait_for(response, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert (last.event, last.data) == ("stream.reconnect", {"after_ms": 500})
    assert last.id is None
    assert wire.done


async def test_whoever_comes_to_a_draining_server_gets_what_there_is_and_goes(run: Run) -> None:
    wire, streams = Wire(), Streams()
    streams.drain()

    await asyncio.wait_for(responding(TailResponse(tail_of(run), streams), wire), TIMEOUT_S)

    assert [sent.event for sent in parsed(wire.body)] == ["run.queued", "run.started",
                                                          "stream.reconnect"]  # fmt: skip


async def test_a_client_that_reads_too_slowly_is_told_where_to_come_back(run: Run) -> None:
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: b"run.started" in body
    task = responding(response, wire)
    await wire.until(b"run.started")

    await run.write(StepStarted(1))
    await asyncio.wait_for(task, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert (last.event, last.data) == ("stream.lagged", {"resume_after": 2})
    assert last.body["run_id"] == run.id
    assert wire.done


async def test_a_client_that_takes_a_part_of_a_long_log_is_told_exactly_which(run: Run) -> None:
    await long_results(run, 60)
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: len(body) > 2 * PAGE_BYTES

    await asyncio.wait_for(responding(response, wire), TIMEOUT_S)

    *sent, last = parsed(wire.body)
    assert last.event == "stream.lagged"
    assert last.data == {"resume_after": sent[-1].seq}
    assert len(sent) < run.head


async def test_a_client_that_never_takes_the_last_byte_is_given_up(run: Run) -> None:
    await run.end()
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: b"run.completed" in body

    await asyncio.wait_for(responding(response, wire), TIMEOUT_S)

    assert wire.done


async def test_a_client_that_is_given_up_is_no_longer_listened_for(run: Run, hub: Hub) -> None:
    wire = Wire()
    response = TailResponse(tail_of(run), Streams())
    response.send_timeout_s = 0.01
    wire.stuck_behind = lambda body: b"run.started" in body
    task = responding(response, wire)
    await wire.until(b"run.started")
    assert hub.listeners == 1

    await run.write(StepStarted(1))
    await asyncio.wait_for(task, TIMEOUT_S)

    assert hub.listeners == 0


async def test_a_client_that_leaves_is_noticed(run: Run) -> None:
    wire, streams = Wire(), Streams()
    gone, released = asyncio.Event(), asyncio.Event()
    response = TailResponse(tail_of(run), streams)

    async def on_gone() -> None:
        gone.set()

    response.on_gone = on_gone
    response.release = released.set
    task = responding(response, wire)
    await wire.until(b"run.started")

    wire.gone.set()
    await asyncio.wait_for(task, TIMEOUT_S)

    assert gone.is_set()
    assert released.is_set()
    assert len(streams) == 0


async def test_a_client_that_stayed_to_the_end_has_not_left(run: Run) -> None:
    await run.end()
    gone = asyncio.Event()
    response = TailResponse(tail_of(run), Streams())

    async def on_gone() -> None:
        gone.set()

    response.on_gone = on_gone
    await responding(response, Wire())

    assert not gone.is_set()


async def test_a_stream_that_fails_says_so_as_its_last_word(run: Run, tmp_path: Path) -> None:
    wire = Wire()
    response = responding(TailResponse(tail_of(run), Streams()), wire)
    await wire.until(b"run.started")

    with sqlite3.connect(tmp_path / "milepost.db") as broken:
        broken.execute("DROP TABLE events")
    broken.close()
    run.hub.hint(run.id, 9)
    await asyncio.wait_for(response, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert last.event == "error"
    assert (last.data["code"], last.data["request_id"]) == ("database_unavailable", "req_1")
    assert wire.done


# --- A run that is erased ---


async def erased(run: Run) -> None:
    """Erase the run, which is over, with its session."""
    await run.store.write(sessions.delete(TENANT, run.journal.claim.session_id))


async def test_a_stream_of_a_run_that_is_erased_says_so_and_ends(run: Run) -> None:
    await run.end()
    await erased(run)
    wire = Wire()

    await asyncio.wait_for(responding(TailResponse(tail_of(run), Streams()), wire), TIMEOUT_S)

    [last] = parsed(wire.body)
    assert (last.event, last.data["code"]) == ("error", "run_not_found")
    assert wire.done


async def test_so_does_one_that_was_behind_when_its_run_was_erased(run: Run) -> None:
    await long_results(run, 10)
    await run.end()
    wire, first = Wire(), asyncio.Event()

    async def send(message: Message) -> None:
        await wire.send(message)
        if message.get("body") and not first.is_set():
            first.set()
            await erased(run)

    response = TailResponse(tail_of(run), Streams())
    await asyncio.wait_for(response(SCOPE, wire.receive, send), TIMEOUT_S)

    *sent, last = parsed(wire.body)
    assert (last.event, last.data["code"]) == ("error", "run_not_found")
    assert 0 < len(sent) < run.head


async def test_so_does_one_that_heard_nothing_of_its_run_s_end_elsewhere(far: Far) -> None:
    far.run.hub.link = None
    wire = Wire()
    response = responding(TailResponse(far.tail(), Streams()), wire)
    await wire.until(b"run.started")
    await far.run.end()
    await erased(far.run)

    far.here.doubt(far.run.id)
    await asyncio.wait_for(response, TIMEOUT_S)

    last = parsed(wire.body)[-1]
    assert (last.event, last.data["code"]) == ("error", "run_not_found")


async def test_a_run_that_is_there_and_says_nothing_is_waited_for(run: Run) -> None:
    tail = tail_of(run, "2")
    tail.heartbeat_s = 0.001

    async with aclosing(tail.pieces()) as pieces:
        assert [await anext(pieces) for _ in range(2)] == [HEARTBEAT] * 2


# --- Over HTTP ---


@pytest.fixture
async def ended(client: httpx2.AsyncClient) -> str:
    """The path of an ended run's events."""
    await made(client, "/v1/agents", an_agent())
    run = await an_ended_run(client)
    return f"/v1/runs/{run['id']}/events"


async def seqs(client: httpx2.AsyncClient, path: str, **headers: str) -> list[int]:
    answer = await client.get(path, headers=headers)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return [sent.seq for sent in parsed(answer.content) if sent.seq]


async def test_the_header_wins_over_the_query(client: httpx2.AsyncClient, ended: str) -> None:
    everything = await seqs(client, ended)

    assert everything == list(range(1, len(everything) + 1))
    assert await seqs(client, f"{ended}?after=2") == everything[2:]
    assert await seqs(client, f"{ended}?after=2", **{"Last-Event-ID": "3"}) == everything[3:]


async def test_a_client_that_has_it_all_is_told_to_stop_asking(
    client: httpx2.AsyncClient, ended: str
) -> None:
    last = (await seqs(client, ended))[-1]

    answer = await client.get(ended, headers={"Last-Event-ID": str(last)})

    assert answer.status_code == 204
    assert answer.content == b""


async def test_a_position_beyond_the_log_is_refused(client: httpx2.AsyncClient, ended: str) -> None:
    assert refusal(await client.get(f"{ended}?after=999")) == (400, "cursor_ahead")
    assert refusal(await client.get(f"{ended}?after=abc")) == (400, "bad_cursor")
