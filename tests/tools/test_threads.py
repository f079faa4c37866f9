"""The threads for synchronous tools."""

import asyncio
import threading

import pytest

from milepost.core.errors import UnavailableError
from milepost.tools import ToolThreads


async def test_a_call_hands_over_its_result_or_its_error(threads: ToolThreads) -> None:
    error = ValueError("bad")

    def fail() -> None:
        raise error

    assert await threads.call(lambda: 42).future == (42, None)
    assert await threads.call(fail).future == (None, error)


async def test_there_are_never_more_threads_than_allowed(threads: ToolThreads) -> None:
    names = set()
    running, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            names.add(threading.get_ident())
        with lock:
            running -= 1

    await asyncio.gather(*(threads.call(work).future for _ in range(50)))

    assert len(names) <= 2
    assert most <= 2


async def test_a_thread_is_used_again() -> None:
    threads = ToolThreads(threads_max=1)

    first, _ = await threads.call(threading.get_ident).future
    second, _ = await threads.call(threading.get_ident).future

    assert first == second
    threads.close()


async def test_a_call_that_waits_can_be_withdrawn_and_one_that_runs_cannot() -> None:
    threads = ToolThreads(threads_max=1)
    started, release, ran = threading.Event(), threading.Event(), []

    def hang() -> None:
        started.set()
        release.wait(10)

    running = threads.call(hang)
    waiting = threads.call(lambda: ran.append("ran"))
    await asyncio.to_thread(started.wait, 10)

    assert not threads.withdraw(running)
    assert threads.withdraw(waiting)
    release.set()
    await running.future
    await threads.call(lambda: None).future
    assert ran == []
    threads.close()


async def test_closed_threads_take_no_calls_and_finish_those_they_have(
    threads: ToolThreads,
) -> None:
    release = threading.Event()
    calls = [threads.call(lambda: release.wait(10)) for _ in range(3)]

    threads.close()
    release.set()

    assert await asyncio.gather(*(call.future for call in calls)) == [(True, None)] * 3
    with pytest.raises(UnavailableError, match="the process is stopping"):
        threads.call(lambda: None)


def test_a_thread_that_outlives_its_loop_disturbs_nobody() -> None:
    threads = ToolThreads(threads_max=1)
    release, ended = threading.Event(), threading.Event()

    def hang() -> None:
        release.wait(10)

    async def leave() -> None:
        threads.call(hang)

    asyncio.run(leave())
    release.set()

    async def come_back() -> None:
        await threads.call(ended.set).future

    asyncio.run(come_back())
    assert ended.is_set()
    threads.close()
