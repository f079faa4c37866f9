"""Two processes and a Redis between them, which may be slow, full of holes, or gone."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from milepost.live.frames import Frame
from milepost.live.hub import LINK_BELL, Hub, LiveText, RunTail
from milepost.live.redis_link import OUT_MAX, RedisLink
from milepost.live.text_buffers import REST_S, TEXT_TTL_S
from tests.clock import Clock
from tests.journeys.proxy import Proxy, proxied

TIMEOUT_S = 10
RETRY_S = 0.02
TEXT = "Grüße, 👩‍🚀 e\u0301lan — 漢字."


class Process:
    """A hub with its link, and what it is told about one run."""

    def __init__(
        self, url: str, run_id: str, on_change: Callable[[Exception | None], None] | None = None
    ) -> None:
        self.hub = Hub()
        told = {} if on_change is None else {"on_change": on_change}
        self.link = self.hub.link = RedisLink(url, self.hub, retry_s=RETRY_S, **told)
        self.run_id = run_id

    def publish(self, *seqs: int) -> None:
        """Show events of the run."""
        self.hub.publish(self.run_id, [Frame(self.run_id, seq, "step.started", 0, b"{}")
                                       for seq in seqs])  # fmt: skip

    def write(self, text: LiveText, *pieces: str) -> None:
        """Write pieces of a text, live."""
        for piece in pieces:
            self.hub.write(self.run_id, text, piece)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator["Ear"]:
        """Listen to the run as a stream does."""
        with self.hub.listen(self.run_id) as (tail, woken):
            try:
                await self.hub.follow(self.run_id)
                yield Ear(tail, woken)
            finally:
                self.hub.leave(self.run_id)


class Ear:
    """What a listener has heard."""

    def __init__(self, tail: RunTail, woken: asyncio.Event) -> None:
        self.tail = tail
        self._woken = woken

    async def until(self, heard: Callable[[RunTail], bool]) -> None:
        """Wait until this was heard."""
        async with asyncio.timeout(TIMEOUT_S):
            while not heard(self.tail):
                self._woken.clear()
                await self._woken.wait()

    async def knows(self, seq: int) -> None:
        """Wait until the log is known to reach so far."""
        await self.until(lambda tail: (tail.known or 0) >= seq)

    async def reads(self, written: str, message_id: str = "msg_1") -> None:
        """Wait until a text has come so far."""
        await self.until(lambda _: self.read(message_id) == written)

    def read(self, message_id: str = "msg_1") -> str:
        """Return what was heard of a text."""
        found = self.tail.texts.get(("message.delta", message_id))
        return found.text if found else ""


@pytest.fixture
def run_id() -> str:
    return f"run_{uuid.uuid4().hex}"


@contextlib.asynccontextmanager
async def started(url: str, run_id: str, *, alive: bool = True) -> AsyncIterator[Process]:
    """Have a process whose link runs."""
    process = Process(url, run_id)
    task = asyncio.create_task(process.link.run())
    try:
        if alive:
            await up(process)
        yield process
        assert not task.done(), "the link has died"
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def up(process: Process) -> None:
    await asyncio.wait_for(process.link.up.wait(), TIMEOUT_S)


@pytest.fixture
async def here(redis_url: str, run_id: str) -> AsyncIterator[Process]:
    async with started(redis_url, run_id) as process:
        yield process


@pytest.fixture
async def there(redis_url: str, run_id: str) -> AsyncIterator[Process]:
    async with started(redis_url, run_id) as process:
        yield process


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as redis:
        yield redis


def a_text(message_id: str = "msg_1") -> LiveText:
    return LiveText("message.delta", message_id, 4)


async def flushed(process: Process, ear: Ear, seq: int) -> None:
    """Wait until all that was said before has arrived, since what follows has."""
    process.publish(seq)
    await ear.knows(seq)


# --- What is heard ---


async def test_an_event_here_is_a_hint_there(here: Process, there: Process) -> None:
    async with there.following() as ear:
        here.publish(1, 2)
        here.publish(3)

        await ear.knows(3)
        assert ear.tail.behind(0) is None  # The data is in the log, and only there.


async def test_what_was_known_of_a_log_before_it_was_followed_is_looked_up_again(
    there: Process,
) -> None:
    """Who starts a run knows its first event; what comes then, until others are heard, is lost."""
    with there.hub.hold(there.run_id) as tail:
        tail.add([Frame(there.run_id, 1, "run.queued", 0, b"{}")])

        async with there.following() as ear:
            assert ear.tail.behind(1) is None


async def test_who_looked_at_a_log_before_others_are_heard_looks_again_then(
    there: Process,
) -> None:
    """The first of two has begun to follow the run, which the second need not do again."""
    with there.hub.listen(there.run_id) as (tail, woken):
        first = asyncio.create_task(there.hub.follow(there.run_id))
        await asyncio.sleep(0)
        assert not first.done()
        await there.hub.follow(there.run_id)
        tail.know(3)

        await first

        assert woken.is_set()
        assert tail.behind(3) is None
        there.hub.leave(there.run_id)
        there.hub.leave(there.run_id)


async def test_who_comes_later_relies_on_what_is_known_of_a_log_that_is_followed(
    there: Process,
) -> None:
    async with there.following() as ear:
        ear.tail.know(3)
        async with there.following():
            assert ear.tail.behind(3) == []


async def test_a_bell_rings_in_every_process(here: Process, there: Process) -> None:
    bell = uuid.uuid4().hex

    with there.hub.bell(bell) as far, here.hub.bell(bell) as near:
        here.hub.ring(bell)
        assert near.is_set()

        await asyncio.wait_for(far.wait(), TIMEOUT_S)


async def test_text_is_read_there_while_it_is_written_here(here: Process, there: Process) -> None:
    text = a_text()

    async with there.following() as ear:
        for end in range(len(TEXT)):
            here.write(text, TEXT[end])
            await ear.reads(TEXT[: end + 1])

    [heard] = ear.tail.texts.values()
    assert (heard.kind, heard.id, heard.after_seq) == ("message.delta", "msg_1", 4)


@pytest.mark.parametrize("cut", range(1, len(TEXT)))
async def test_whoever_joins_in_the_middle_has_the_text_so_far(
    here: Process, there: Process, cut: int
) -> None:
    text = a_text()
    async with there.following() as ear:
        here.write(text, *TEXT[:cut])
        await flushed(here, ear, 5)

    async with there.following() as ear:
        assert ear.read() == TEXT[:cut]
        here.write(text, TEXT[cut:])
        await ear.reads(TEXT)


async def test_a_process_that_hears_itself_doubles_nothing(here: Process) -> None:
    text = a_text()

    async with here.following() as ear:
        here.write(text, "Hel", "lo")
        await flushed(here, ear, 5)
        here.write(text, "!")

        assert ear.read() == "Hello!"


async def test_several_texts_are_kept_apart(here: Process, there: Process) -> None:
    first, second = a_text("msg_1"), a_text("msg_2")
    async with there.following() as ear:
        here.write(first, "one")
        here.write(second, "two")
        await flushed(here, ear, 5)

    async with there.following() as ear:
        assert (ear.read("msg_1"), ear.read("msg_2")) == ("one", "two")


async def test_two_attempts_at_one_call_are_kept_apart(here: Process, there: Process) -> None:
    """A worker that stood still does not know yet that another makes its call again."""
    zombie = LiveText("tool_call.progress", "call_1_0", 4)
    attempt = LiveText("tool_call.progress", "call_1_0", 9)
    async with here.following() as near, there.following() as far:
        there.write(attempt, "漢字")
        await flushed(there, near, 10)
        here.write(zombie, "Grüße, 👩‍🚀")
        await flushed(here, far, 11)
        there.write(attempt, "!")
        await flushed(there, near, 12)

        assert attempt.text == "漢字!"
        assert near.tail.texts == far.tail.texts == {attempt.key: attempt}

    async with here.following() as joined:
        assert joined.tail.texts == {attempt.key: attempt}


# --- What is kept, and for how long ---


async def keys(redis: Redis, run_id: str) -> list[bytes]:
    return [key async for key in redis.scan_iter(f"milepost:live:{run_id}*")]


async def test_what_is_being_written_is_forgotten_by_itself(
    here: Process, there: Process, redis: Redis
) -> None:
    async with there.following() as ear:
        here.write(a_text(), "Hello")
        await flushed(here, ear, 5)

    found = await keys(redis, here.run_id)
    assert len(found) == 2
    for key in found:
        assert 0 < await redis.ttl(key) <= TEXT_TTL_S


async def test_a_text_that_is_complete_is_removed(
    here: Process, there: Process, redis: Redis
) -> None:
    text = a_text()
    async with there.following() as ear:
        here.write(text, "Hello")
        here.hub.close_text(here.run_id, text)
        await flushed(here, ear, 5)

    assert await keys(redis, here.run_id) == []


async def test_what_is_kept_of_an_erased_run_is_removed_at_once(
    here: Process, there: Process, redis: Redis
) -> None:
    async with there.following() as ear:
        here.write(a_text(), "Hello")
        await flushed(here, ear, 5)
    assert await keys(redis, here.run_id)

    await there.hub.erase([here.run_id])

    assert await keys(redis, here.run_id) == []


async def test_nobody_who_erases_a_run_waits_for_a_redis_that_is_away(
    redis_url: str, run_id: str
) -> None:
    async with behind_proxy(redis_url, run_id) as (process, proxy):
        await proxy.cut()
        await down(process)

        await asyncio.wait_for(process.hub.erase([run_id]), TIMEOUT_S)


async def test_a_run_that_nobody_listens_to_is_not_subscribed_to(
    there: Process, redis: Redis
) -> None:
    channel = f"milepost:run:{there.run_id}"

    async with there.following():
        assert (await redis.pubsub_numsub(channel))[0][1] == 1

    async with asyncio.timeout(TIMEOUT_S):
        while (await redis.pubsub_numsub(channel))[0][1]:
            pass


async def test_bells_are_heard_when_no_run_is_listened_to_any_more(
    here: Process, there: Process, redis: Redis
) -> None:
    channel, bell = f"milepost:run:{there.run_id}", uuid.uuid4().hex
    async with there.following():
        pass
    async with asyncio.timeout(TIMEOUT_S):
        while (await redis.pubsub_numsub(channel))[0][1]:
            pass

    with there.hub.bell(bell) as far:
        here.hub.ring(bell)

        await asyncio.wait_for(far.wait(), TIMEOUT_S)


async def test_a_subscription_whose_connection_is_taken_away_as_it_is_made_ends_nothing(
    here: Process, there: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redis-py says so in no words of its own where another task closes it in that moment."""
    failed = asyncio.Event()

    async def taken_away(*_: object) -> None:
        failed.set()
        raise AttributeError("'NoneType' object has no attribute 'credential_provider'")

    async with here.following():
        monkeypatch.setattr(here.link._pubsub, "unsubscribe", taken_away)
    await asyncio.wait_for(failed.wait(), TIMEOUT_S)

    async with there.following() as ear:
        here.publish(1)
        await ear.knows(1)


async def test_a_run_may_be_followed_again(here: Process, there: Process) -> None:
    for seq in range(5, 15):
        async with there.following() as ear:
            here.publish(seq)
            await ear.knows(seq)


# --- What goes wrong ---


async def test_what_it_does_not_understand_is_no_reason_to_die(
    here: Process, there: Process, redis: Redis
) -> None:
    async with there.following() as ear:
        for said in (b"\xff", b"[]", b'{"later":1}', b'{"text":{},"offset":0,"piece":"x"}'):
            await redis.publish(f"milepost:run:{there.run_id}", said)
        await redis.publish("milepost:bells", b"\xff")

        await flushed(here, ear, 5)


async def test_a_buffer_that_cannot_be_read_is_no_reason_to_die(
    here: Process, there: Process, redis: Redis
) -> None:
    async with there.following() as ear:
        here.write(a_text(), "Hello")
        await flushed(here, ear, 5)
    for key in await keys(redis, here.run_id):
        if await redis.type(key) == b"string":
            await redis.setrange(key, 1, b"\xff")
        else:
            await redis.sadd(key, b"\xff")

    async with there.following() as ear:
        assert ear.read() == ""


async def test_a_buffer_that_lost_its_beginning_is_not_read(
    here: Process, there: Process, redis: Redis
) -> None:
    """Redis was emptied meanwhile, and fills up with NUL what it has not been told."""
    text = a_text()
    async with there.following() as ear:
        here.write(text, "Hello, ")
        await flushed(here, ear, 5)
        await redis.delete(*await keys(redis, here.run_id))
        here.write(text, "world")
        await flushed(here, ear, 6)

    async with there.following() as ear:
        assert ear.read() == ""


async def test_pieces_that_were_dropped_leave_no_hole(here: Process, there: Process) -> None:
    """More was said than can wait to be sent: the oldest goes, and the text is written anew."""
    text = a_text()
    pieces = [chr(0x4E00 + number % 500) for number in range(OUT_MAX + 50)]
    here.write(text, *pieces)

    async with there.following() as ear:
        await flushed(here, ear, 5)
    async with there.following() as ear:
        assert ear.read() == "".join(pieces)


async def test_a_text_is_whole_again_soon_after_redis_was_emptied(
    here: Process, there: Process, redis: Redis
) -> None:
    text = a_text()
    async with there.following() as ear:
        here.write(text, "Grüße, ")
        await ear.reads("Grüße, ")
        await redis.delete(*await keys(redis, here.run_id))
        here.write(text, "👩‍🚀 ")
        await ear.reads("Grüße, 👩‍🚀 ")
        here.write(text, "and all")
        await ear.reads("Grüße, 👩‍🚀 and all")

    async with there.following() as ear:
        assert ear.read() == "Grüße, 👩‍🚀 and all"


async def test_a_text_is_whole_again_soon_after_redis_let_go_of_it_alone(
    here: Process, there: Process, redis: Redis
) -> None:
    """A Redis that has no room left may keep the text's name, which is used as often."""
    text = a_text()
    async with there.following() as ear:
        here.write(text, "Grüße, ")
        await flushed(here, ear, 5)
        assert await redis.delete(f"milepost:live:{here.run_id}:message.delta|msg_1|4")
        here.write(text, "👩‍🚀 ")
        await flushed(here, ear, 6)
        here.write(text, "and all")
        await flushed(here, ear, 7)

    async with there.following() as ear:
        assert ear.read() == "Grüße, 👩‍🚀 and all"


async def test_whoever_lacks_a_piece_gets_it_from_what_is_kept(
    here: Process, there: Process, redis: Redis
) -> None:
    text = a_text()
    async with there.following() as ear:
        here.write(text, "Grüße, ")
        await flushed(here, ear, 5)
        there.hub._tails[there.run_id].texts.clear()  # As if the pieces so far had been lost.

        here.write(text, "👩‍🚀")

        await ear.reads("Grüße, 👩‍🚀")


@contextlib.asynccontextmanager
async def behind_proxy(redis_url: str, run_id: str) -> AsyncIterator[tuple[Process, Proxy]]:
    async with proxied(redis_url) as (url, proxy), started(url, run_id) as process:
        yield process, proxy


async def restarted(proxy: Proxy) -> None:
    """Have the proxy take connections again, on its old port."""
    proxy._server = await asyncio.start_server(proxy._accept, "127.0.0.1", proxy.port)


async def down(process: Process) -> None:
    """Wait until the link has noticed."""
    await asyncio.wait_for(process.link.down.wait(), TIMEOUT_S)


async def test_a_redis_that_dies_is_noticed_and_disturbs_nobody(
    redis_url: str, run_id: str
) -> None:
    async with behind_proxy(redis_url, run_id) as (process, proxy), process.following() as ear:
        await proxy.cut()
        await down(process)
        assert not process.link.alive
        process.publish(1)
        process.write(a_text(), "Hello")
        process.hub.close_text(run_id, a_text())
        process.hub.ring("queue")

        await ear.reads("Hello")  # In this process all goes on.


async def test_a_redis_that_falls_silent_is_noticed_and_found_again(
    redis_url: str, run_id: str, there: Process
) -> None:
    """Its machine may be gone, or it stands still: no connection breaks."""
    async with behind_proxy(redis_url, run_id) as (process, proxy), process.following() as ear:
        proxy.still()
        await down(process)
        assert not process.link.alive
        proxy.flow()
        await up(process)

        await asyncio.wait_for(heard_again(there, ear), TIMEOUT_S)


async def test_whoever_comes_while_redis_is_away_does_not_wait(redis_url: str, run_id: str) -> None:
    async with behind_proxy(redis_url, run_id) as (process, proxy):
        await proxy.cut()
        await down(process)

        for _ in range(50):
            async with asyncio.timeout(TIMEOUT_S / 10), process.following():
                pass


async def test_who_is_cancelled_while_beginning_to_follow_is(here: Process, run_id: str) -> None:
    async with here.following():
        for turns in range(1, 8):
            joining = asyncio.create_task(here.link.follow(run_id))
            for _ in range(turns):
                await asyncio.sleep(0)
            assert not joining.done()
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining


async def test_a_redis_that_comes_back_is_found_again(
    redis_url: str, run_id: str, there: Process
) -> None:
    async with behind_proxy(redis_url, run_id) as (process, proxy), process.following() as ear:
        await proxy.cut()
        await down(process)
        await restarted(proxy)
        await up(process)

        await asyncio.wait_for(heard_again(there, ear), TIMEOUT_S)


async def heard_again(there: Process, ear: Ear) -> None:
    """Publish until it is heard: the channels are subscribed to a moment after the connection."""
    seq = 0
    while ear.tail.known is None:
        seq += 1
        there.publish(seq)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ear.knows(seq), 0.05)


@pytest.mark.parametrize("turns", range(1, 9))
async def test_who_begins_to_follow_while_the_link_is_being_made_hears_of_it(
    there: Process, redis_url: str, run_id: str, turns: int
) -> None:
    here = Process(redis_url, run_id)
    linking = asyncio.create_task(here.link.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    assert not here.link.alive

    async with here.following() as ear:
        await up(here)
        there.publish(1)
        await ear.knows(1)

    linking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await linking


async def test_who_begins_to_follow_before_redis_has_answered_hears_of_it(
    there: Process, redis_url: str, run_id: str
) -> None:
    here = Process(redis_url, run_id)
    asked, joined, subscribe = asyncio.Event(), asyncio.Event(), here.link._subscribe

    async def ask() -> None:
        await subscribe()
        asked.set()
        await joined.wait()

    here.link._subscribe = ask  # type: ignore[method-assign]  # does the same, and stops there
    linking = asyncio.create_task(here.link.run())
    await asyncio.wait_for(asked.wait(), TIMEOUT_S)
    assert not here.link.alive

    async with here.following() as ear:
        ear.tail.know(3)
        joined.set()
        await ear.until(lambda tail: tail.known is None)  # What happened until then may be more.
        there.publish(4)
        await ear.knows(4)

    linking.cancel()
    await asyncio.wait({linking})


async def test_a_text_that_was_written_through_an_outage_is_whole_for_whoever_joins(
    redis_url: str, run_id: str, there: Process
) -> None:
    text = a_text()
    async with behind_proxy(redis_url, run_id) as (process, proxy):
        process.write(text, "Grüße, ")
        await proxy.cut()
        await down(process)
        process.write(text, "👩‍🚀 ")
        await restarted(proxy)
        await up(process)
        process.write(text, "and all")
        async with there.following() as ear:
            process.publish(9)
            await ear.knows(9)

    async with there.following() as ear:
        assert ear.read() == "Grüße, 👩‍🚀 and all"


async def test_a_piece_that_could_not_be_sent_leaves_no_hole_in_what_is_kept(
    redis_url: str, run_id: str, there: Process
) -> None:
    text = a_text()
    async with behind_proxy(redis_url, run_id) as (process, proxy):
        failed, flush = asyncio.Event(), process.link._flush

        async def send() -> None:
            try:
                await flush()
            except BaseException:
                failed.set()
                raise

        process.link._flush = send  # type: ignore[method-assign]  # says so, and does the same
        async with there.following() as ear:
            process.write(text, "Grüße, ")
            await flushed(process, ear, 5)
            await proxy.cut()
            await down(process)
            process.write(text, "👩‍🚀 ")
            await asyncio.wait_for(failed.wait(), TIMEOUT_S)
            await restarted(proxy)
            await up(process)
            process.write(text, "and all")
            await flushed(process, ear, 6)

    async with there.following() as ear:
        assert ear.read() == "Grüße, 👩‍🚀 and all"


async def test_what_was_said_on_a_connection_that_broke_is_said_again(
    redis_url: str, run_id: str, there: Process
) -> None:
    bell = uuid.uuid4().hex
    async with behind_proxy(redis_url, run_id) as (here, proxy), there.following() as ear:
        await flushed(here, ear, 1)

        proxy.break_at(b"PUBLISH")
        with there.hub.bell(bell) as far:
            here.hub.ring(bell)
            await asyncio.wait_for(far.wait(), TIMEOUT_S)
        proxy.break_at(b"PUBLISH")
        await flushed(here, ear, 2)

        assert here.link.alive


async def test_a_connection_that_redis_has_closed_loses_nothing_that_is_said_on_it(
    redis: Redis, here: Process, there: Process
) -> None:
    """Redis may hang up on who has said nothing for long, and never does on who listens."""
    pool = here.link._redis.connection_pool
    async with there.following() as ear:
        await flushed(here, ear, 1)
        async with asyncio.timeout(TIMEOUT_S):
            while pool._in_use_connections:  # noqa: ASYNC110 - an answer rings no bell
                await asyncio.sleep(0)
            [kept] = pool._available_connections
            await redis.client_kill_filter(_id=str(await here.link._redis.client_id()))
            while not await kept.can_read():  # noqa: ASYNC110 - nor does a hang-up
                await asyncio.sleep(0)

        await flushed(here, ear, 2)


async def test_a_text_goes_on_for_who_listened_through_an_outage(
    redis_url: str, run_id: str, here: Process
) -> None:
    text = a_text()
    async with behind_proxy(redis_url, run_id) as (process, proxy), process.following() as ear:
        here.write(text, "Grüße, ")
        await ear.reads("Grüße, ")
        await proxy.cut()
        await down(process)
        here.write(text, "👩‍🚀 ")
        await restarted(proxy)
        await up(process)
        await asyncio.wait_for(heard_again(here, ear), TIMEOUT_S)
        here.write(text, "and all")

        await ear.reads("Grüße, 👩‍🚀 and all")


async def test_the_loss_and_the_return_are_rung_in_the_process(redis_url: str, run_id: str) -> None:
    async with behind_proxy(redis_url, run_id) as (process, proxy):
        with process.hub.bell(LINK_BELL) as rung:
            await proxy.cut()
            await asyncio.wait_for(rung.wait(), TIMEOUT_S)
            await down(process)
            rung.clear()
            await restarted(proxy)
            await asyncio.wait_for(rung.wait(), TIMEOUT_S)

        assert process.link.alive


async def test_coming_and_going_through_outages_breaks_nothing(
    redis_url: str, run_id: str, there: Process
) -> None:
    async with behind_proxy(redis_url, run_id) as (process, proxy):
        stop = asyncio.Event()

        async def restless(number: int) -> None:
            while not stop.is_set():
                process.run_id = f"{run_id}_{number}"
                async with process.following():
                    process.publish(1)
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(restless(number))
            for _ in range(3):
                await proxy.cut()
                await down(process)
                await restarted(proxy)
                await up(process)
            stop.set()

        process.run_id = run_id
        async with process.following() as ear:
            await asyncio.wait_for(heard_again(there, ear), TIMEOUT_S)


@pytest.mark.parametrize("said", [b"-MOVED\r\n", b">0\r\n", b"@\xff\r\n", b":1\r\n", b"_\r\n"])
async def test_answers_that_no_redis_gives_do_not_end_the_link(run_id: str, said: bytes) -> None:
    """The library that reads them raises what comes to it, and so does whoever takes them apart."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while asked := await reader.read(65_536):
                writer.write(said * asked.count(b"\r\n*") + said)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    async with started(url, run_id, alive=False) as process:
        process.publish(1)
        process.write(a_text(), "Hello")
        await attempted(process, 3)
        async with process.following() as ear:
            assert ear.read() == ""
        await process.hub.erase([run_id])
        assert not process.link.alive
    server.close()
    await server.wait_closed()


async def test_a_redis_that_is_not_there_is_asked_for_with_pauses(run_id: str) -> None:
    knocks: list[float] = []
    third = asyncio.Event()

    async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        knocks.append(asyncio.get_running_loop().time())
        if len(knocks) >= 3:
            third.set()
        writer.close()

    server = await asyncio.start_server(slam, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    async with started(url, run_id, alive=False) as process:
        await asyncio.wait_for(third.wait(), TIMEOUT_S)
        assert not process.link.alive
    server.close()
    await server.wait_closed()

    assert knocks[2] - knocks[0] >= RETRY_S


async def test_a_loss_is_told_once_and_so_is_the_return(redis_url: str, run_id: str) -> None:
    told: list[bool] = []
    async with proxied(redis_url) as (url, proxy):
        process = Process(url, run_id, on_change=lambda error: told.append(error is None))
        task = asyncio.create_task(process.link.run())
        await up(process)
        await proxy.cut()
        await down(process)
        await attempted(process, 3)
        await restarted(proxy)
        await up(process)
        task.cancel()
        await asyncio.wait({task})

    assert told == [True, False, True]


async def test_a_redis_that_was_never_there_is_told_once(run_id: str, unused_tcp_port: int) -> None:
    told: list[Exception | None] = []
    url = f"redis://127.0.0.1:{unused_tcp_port}/0"
    process = Process(url, run_id, on_change=told.append)
    task = asyncio.create_task(process.link.run())
    await attempted(process, 3)
    task.cancel()
    await asyncio.wait({task})

    assert [type(error).__name__ for error in told] == ["ConnectionError"]


@contextlib.asynccontextmanager
async def as_somebody_who_may_not(redis: Redis, command: str) -> AsyncIterator[str]:
    """Give what stands before the host in the URL of a user whom Redis refuses this."""
    name = f"user_{uuid.uuid4().hex}"
    await redis.acl_setuser(
        name,
        enabled=True,
        passwords=["+secret"],
        keys=["*"],
        channels=["*"],
        commands=["+@all", f"-{command}"],
    )
    try:
        yield f"redis://{name}:secret@"
    finally:
        await redis.acl_deluser(name)


@pytest.mark.parametrize("command", ["subscribe", "ping"])
async def test_a_redis_that_connects_and_refuses_what_is_asked_for_is_told_once(
    redis: Redis, redis_url: str, run_id: str, command: str
) -> None:
    """It is loading, or its user lacks a right: nothing is answered, and nobody waits for it."""
    told: list[Exception | None] = []
    async with as_somebody_who_may_not(redis, command) as user:
        process = Process(redis_url.replace("redis://", user), run_id, on_change=told.append)
        task = asyncio.create_task(process.link.run())
        await attempted(process, 3)
        task.cancel()
        await asyncio.wait({task})

    assert [type(error).__name__ for error in told] == ["NoPermissionError"]


async def test_a_redis_that_refuses_to_keep_texts_is_asked_to_once_a_second(
    redis: Redis, redis_url: str, run_id: str, there: Process
) -> None:
    """It has no room, or only reads: each piece would send the whole text so far, in vain."""
    text, clock = a_text(), Clock()
    async with as_somebody_who_may_not(redis, "setrange") as user:
        async with (
            started(redis_url.replace("redis://", user), run_id) as process,
            there.following() as ear,
        ):
            process.link._buffers._clock = clock
            for seq, piece in enumerate(["Grüße, ", "👩‍🚀 ", "and "], 5):
                process.write(text, piece)
                await flushed(process, ear, seq)
            refused = await refusals(redis, user)
            clock.now += REST_S
            process.write(text, "all")
            await flushed(process, ear, 8)

        assert ear.read() == "Grüße, 👩‍🚀 and all"
        assert (refused, await refusals(redis, user)) == (1, 2)


async def refusals(redis: Redis, user: str) -> int:
    """Return how often Redis has refused something to this user."""
    entries: list[Any] = await redis.acl_log()
    return sum(entry["count"] for entry in entries if f"//{entry['username']}:" in user)


async def attempted(process: Process, times: int) -> None:
    """Wait until the link has tried to reach Redis so often in vain."""
    tried = asyncio.Event()
    left = times
    tell = process.link._tell

    def count(*, alive: bool) -> None:
        nonlocal left
        left -= 1
        tell(alive=alive)
        if left <= 0:
            tried.set()

    process.link._tell = count  # type: ignore[method-assign]  # counts, and does the same
    await asyncio.wait_for(tried.wait(), TIMEOUT_S)
    process.link._tell = tell  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://127.0.0.1/cache", "'cache' is no number of a database"),
        ("redis://127.0.0.1/1/2", "'1/2' is no number of a database"),
        ("redis://127.0.0.1/-1", "'-1' is no number of a database"),
        ("redis://127.0.0.1/0?colour=red", "unexpected keyword argument 'colour'"),
        ("redis://127.0.0.1/0?db=one", "Invalid value for 'db'"),
        ("redis://127.0.0.1/0?protocol=9", "protocol must be either 2 or 3"),
        ("rediss://127.0.0.1/0?ssl_cert_reqs=perhaps", "Certificate Requirements Flag: perhaps"),
    ],
)
async def test_an_address_of_which_something_would_count_for_nothing_is_refused(
    url: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        RedisLink(url, Hub())


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1",
        "redis://127.0.0.1/",
        "rediss://ann:sesame@127.0.0.1:6380/2",
        "redis://127.0.0.1?db=3&client_name=milepost",
        "unix:///run/redis.sock?db=1",
    ],
)
async def test_an_address_of_which_all_counts_is_taken(url: str) -> None:
    RedisLink(url, Hub())
