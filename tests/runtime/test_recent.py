"""What was read a moment ago: who is told what was known, who looks, and who waits for it."""

import asyncio

import pytest

from milepost.runtime.recent import Recent

FRESH_MS = 100


class Source:
    """Something that changes, and takes until it is let go to be read."""

    def __init__(self) -> None:
        self.value = "old"
        self.reads = 0
        self.now_ms = 1_000
        self.fails = False
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.recent: Recent[str, str] = Recent(
            self.read, clock=lambda: self.now_ms, fresh_ms=FRESH_MS, known_max=2
        )

    async def read(self, key: str) -> str:
        """Return what there was when it was asked."""
        self.reads += 1
        found = f"{key} {self.value}"
        self.begun.set()
        await self.go.wait()
        if self.fails:
            raise OSError("out of reach")
        return found

    async def asked(self, key: str = "a") -> "asyncio.Task[str]":
        """Return somebody who asks, and has got as far as he can."""
        task = asyncio.create_task(self.recent.of(key))
        for _ in range(3):
            await asyncio.sleep(0)
        return task


@pytest.fixture
async def source() -> Source:
    return Source()


async def test_what_is_fresh_is_not_read_again(source: Source) -> None:
    source.go.set()
    assert await source.recent.of("a") == "a old"
    source.value = "new"

    source.now_ms += FRESH_MS - 1
    assert await source.recent.of("a") == "a old"
    source.now_ms += 1
    assert await source.recent.of("a") == "a new"
    assert source.reads == 2


async def test_what_was_read_by_a_clock_that_was_ahead_is_read_again(source: Source) -> None:
    source.go.set()
    await source.recent.of("a")
    source.value, source.now_ms = "new", 10

    assert await source.recent.of("a") == "a new"


async def test_all_who_ask_while_one_reads_wait_for_the_same(source: Source) -> None:
    asking = [await source.asked() for _ in range(5)]
    other = await source.asked("b")
    source.go.set()

    assert await asyncio.gather(*asking, other) == [*["a old"] * 5, "b old"]
    assert source.reads == 2


async def test_what_took_long_to_read_is_told_to_all_who_waited(source: Source) -> None:
    asking = [await source.asked() for _ in range(3)]
    source.now_ms += FRESH_MS * 10
    source.go.set()

    assert await asyncio.gather(*asking) == ["a old"] * 3
    assert source.reads == 1


async def test_what_is_forgotten_while_it_is_read_is_not_kept(source: Source) -> None:
    first = await source.asked()
    waiting = await source.asked()
    source.value = "new"
    source.recent.forget("a")
    after = await source.asked()
    source.go.set()

    assert await first == "a old"
    assert (await waiting, await after, await source.recent.of("a")) == ("a new",) * 3
    assert source.reads == 2


async def test_a_failure_is_told_to_all_who_waited_and_not_kept(source: Source) -> None:
    asking = [await source.asked() for _ in range(3)]
    source.fails = True
    source.go.set()

    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(each) for each in told] == ["out of reach"] * 3
    assert source.reads == 1
    source.fails = False
    assert await source.recent.of("a") == "a old"


async def test_who_gives_up_reading_leaves_it_to_one_who_waits(source: Source) -> None:
    asking = [await source.asked() for _ in range(3)]
    asking[0].cancel()
    await asyncio.wait(asking[:1])
    source.go.set()

    assert await asyncio.gather(*asking[1:]) == ["a old"] * 2
    assert source.reads == 2


async def test_who_gives_up_waiting_takes_nothing_from_the_others(source: Source) -> None:
    asking = [await source.asked() for _ in range(3)]
    asking[1].cancel()
    await asyncio.wait(asking[1:2])
    source.go.set()

    assert await asyncio.gather(*asking[::2]) == ["a old"] * 2
    assert source.reads == 1


async def test_whoever_wants_it_as_it_is_now_reads_for_all_who_come_after(source: Source) -> None:
    source.go.set()
    await source.recent.of("a")
    source.value = "new"

    assert await source.recent.anew("a") == "a new"
    assert (await source.recent.of("a"), source.recent.last("a")) == ("a new", "a new")
    assert source.reads == 2


async def test_those_are_kept_that_were_read_last(source: Source) -> None:
    source.go.set()
    for key in "abc":
        await source.recent.of(key)

    assert [source.recent.last(key) for key in "abc"] == [None, "b old", "c old"]


async def test_keys_are_forgotten_together(source: Source) -> None:
    source.go.set()
    for key in "ab":
        await source.recent.of(key)
    source.recent.forget_where(lambda key: key == "a")

    assert source.recent.last("a") is None
    assert source.recent.last("b") == "b old"
