"""The threads for synchronous tools."""

import asyncio
import threading
import weakref

import pytest

from milepost.core.errors import ToolError, UnavailableError
from milepost.tools import ToolThreads
from milepost.tools.threads import ThreadCall


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


def _forbid_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


async def test_a_call_for_which_no_thread_can_be_started_is_refused_and_never_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, ran = ToolThreads(threads_max=1), []

    with monkeypatch.context() as meanwhile:
        _forbid_threads(meanwhile)
        refused = threads.call(lambda: ran.append("ran"))
        assert threads.withdraw(refused)
        _, error = await asyncio.wait_for(refused.future, 10)

    assert isinstance(error, ToolError)
    assert error.retryable
    assert "no thread" in str(error)
    done = threads.call(lambda: 42)
    assert await asyncio.wait_for(done.future, 10) == (42, None)
    assert ran == []
    threads.close()


async def test_a_call_waits_for_the_threads_that_there_are_if_no_more_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = ToolThreads(threads_max=2)
    release = threading.Event()
    running = threads.call(lambda: release.wait(10))

    with monkeypatch.context() as meanwhile:
        _forbid_threads(meanwhile)
        waiting = threads.call(lambda: 42)
    release.set()

    assert await asyncio.wait_for(waiting.future, 10) == (42, None)
    assert await running.future == (True, None)
    threads.close()


async def test_a_call_that_waits_for_a_place_that_no_thread_can_take_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, ran = ToolThreads(threads_max=1), []
    started, release = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(10)

    running = threads.call(hang)
    await asyncio.to_thread(started.wait, 10)
    waiting = threads.call(lambda: ran.append("ran"))

    with monkeypatch.context() as meanwhile:
        _forbid_threads(meanwhile)
        threads.withdraw(running)
        outcome, error = await asyncio.wait_for(waiting.future, 10)
    release.set()

    assert (outcome, ran) == (None, [])
    assert isinstance(error, ToolError)
    done = threads.call(lambda: 42)
    assert await asyncio.wait_for(done.future, 10) == (42, None)
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

    assert threads.withdraw(waiting)
    assert not threads.withdraw(running)
    release.set()
    await running.future
    await threads.call(lambda: None).future
    assert ran == []
    threads.close()


async def test_a_call_that_is_withdrawn_with_another_does_not_begin_in_its_place() -> None:
    threads = ToolThreads(threads_max=1)
    started, release, began = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(10)

    running, waiting = threads.call(hang), threads.call(began.set)
    await asyncio.to_thread(started.wait, 10)

    assert not threads.withdraw(running)
    assert not began.wait(0.05)
    assert threads.withdraw(waiting)
    await asyncio.wait_for(threads.call(lambda: None).future, 10)
    assert not began.is_set()
    release.set()
    threads.close()


class Hung:
    """Calls that hang until they are released."""

    def __init__(self, threads: ToolThreads) -> None:
        self._threads = threads
        self._release = threading.Event()
        self._calls: list[ThreadCall] = []

    async def add(self) -> None:
        """Have one more thread hang in a call that nobody waits for any more."""
        began = threading.Event()

        def hang() -> None:
            began.set()
            self._release.wait(10)

        call = self._threads.call(hang)
        assert await asyncio.to_thread(began.wait, 10)
        assert not self._threads.withdraw(call)
        self._calls.append(call)

    async def end(self) -> None:
        """Let all of them return."""
        self._release.set()
        await asyncio.gather(*(call.future for call in self._calls))


async def test_a_thread_that_hangs_leaves_its_place_to_another() -> None:
    threads = ToolThreads(threads_max=1)
    hung = Hung(threads)

    await hung.add()

    assert threads.hung == 1
    assert await threads.call(lambda: "served").future == ("served", None)
    await hung.end()
    threads.close()


async def test_a_call_that_waits_gets_the_place_of_a_thread_that_hangs() -> None:
    threads = ToolThreads(threads_max=1)
    began, release = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait(10)

    hanging = threads.call(hang)
    await asyncio.to_thread(began.wait, 10)
    waiting = threads.call(lambda: "served")
    threads.withdraw(hanging)

    assert await waiting.future == ("served", None)
    release.set()
    await hanging.future
    threads.close()


async def test_when_no_place_is_left_calls_are_refused_until_a_thread_comes_back() -> None:
    threads = ToolThreads(threads_max=2)
    hung = Hung(threads)
    for _ in range(4):
        await hung.add()

    with pytest.raises(ToolError, match="all 2 threads for synchronous tools hang") as refused:
        threads.call(lambda: None)

    assert refused.value.retryable
    await hung.end()
    await asyncio.gather(*(threads.call(lambda: None).future for _ in range(4)))
    assert threads.hung == 0
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


async def test_what_a_call_was_given_is_let_go_before_its_outcome_is_told() -> None:
    class Given:
        def work(self) -> int:
            return 42

    threads, given = ToolThreads(threads_max=1), Given()
    gone = weakref.ref(given)
    call = threads.call(given.work)

    del given

    assert await call.future == (42, None)
    assert gone() is None
    threads.close()
