"""The same client for code without an event loop: every call runs the asynchronous one."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from milepost.client.agents import Agents
from milepost.client.approvals import Approvals
from milepost.client.batches import Batches
from milepost.client.budgets import Budgets
from milepost.client.channels import Channels
from milepost.client.grants import Grants
from milepost.client.memories import Memories
from milepost.client.milepost import BASE_URL, PATIENCE, Milepost
from milepost.client.patience import Patience
from milepost.client.policies import Policies
from milepost.client.runs import Runs
from milepost.client.schedules import Schedules
from milepost.client.sessions import Sessions
from milepost.client.users import Users

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")


class _Loop:
    """An event loop in a thread of its own, so that it also serves callers who run one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        # Nothing is handed to the loop behind its end, which nobody would ever answer. It may be
        # taken twice: garbage, and a stream in it, is found wherever memory is asked for.
        self._gate = threading.RLock()
        self._end: Future[None] | None = None
        self._calls: set[Future[Any]] = set()
        self.streams: set[_Stream[Any]] = set()
        self._begun: set[asyncio.Task[None]] = set()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._live, name="milepost-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns; who is interrupted while waiting interrupts it."""
        if self._is_forked():
            work.close()
            raise RuntimeError(
                "this client was made before its process forked; make a new one in the fork"
            )
        with self._gate:
            if self._end is not None:
                work.close()
                raise _was_closed()
            call = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._calls.add(call)
        try:
            return call.result()
        except CancelledError:
            raise _was_closed() from None  # Nobody else cancels what is waited for.
        finally:
            call.cancel()
            self._calls.discard(call)

    def leave(self, stream: "_Stream[Any]") -> None:
        """Close a stream, unless its client was closed, which closes it."""
        if self._is_forked():
            return
        if threading.current_thread() is self._thread:
            # Garbage is found wherever memory is asked for, and here nobody else could close it.
            if stream in self.streams:
                self.streams.discard(stream)
                self._loop.call_soon_threadsafe(self._begin, stream.close())
            return
        with self._gate:
            if self._end is not None:
                return
            self.streams.discard(stream)
            closing = asyncio.run_coroutine_threadsafe(stream.close(), self._loop)
        closing.result()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cut off who waits, close the streams, do the last work, and stop the thread; once."""
        if self._is_forked():
            last.close()
            return
        with self._gate:
            if self._end is None:
                self._end = asyncio.run_coroutine_threadsafe(self._ended(last), self._loop)
            else:
                last.close()
        self._end.result()
        self._thread.join()

    def _is_forked(self) -> bool:
        """Say whether this is a fork, which has the loop but no thread that runs it."""
        return os.getpid() != self._process

    async def _ended(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            for call in tuple(self._calls):
                call.cancel()
            while self.streams:
                await self.streams.pop().close()
            await last
        finally:
            self._closing.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closing())

    async def _until_closing(self) -> None:
        await self._closing.wait()


class _Blocking(Generic[R]):
    """A resource, and the loop on which it is used."""

    def __init__(self, resource: R, loop: _Loop) -> None:
        self.resource = resource
        self.loop = loop


def _blocking(
    method: Callable[Concatenate[R, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[R], P], T]:
    def call(self: _Blocking[R], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.loop.run(method(self.resource, *args, **kwargs))

    call.__doc__ = method.__doc__
    return call


def _iterating(
    method: Callable[Concatenate[R, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[_Blocking[R], P], Generator[T, None, None]]:
    def call(self: _Blocking[R], /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        stream = _Stream(method(self.resource, *args, **kwargs))
        self.loop.streams.add(stream)
        try:
            while True:
                try:
                    item = self.loop.run(stream.next())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.loop.leave(stream)

    call.__doc__ = method.__doc__
    return call


class _Stream(Generic[T]):
    """An asynchronous generator, used by one task at a time.

    Whoever is interrupted, or cut off, goes on at once: the close waits for the task it had here.
    """

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        self._items = items
        self._used = asyncio.Lock()

    async def next(self) -> T:
        """Return the next item. Raises `StopAsyncIteration`."""
        async with self._used:
            return await anext(self._items)

    async def close(self) -> None:
        """Close it."""
        async with self._used:
            await self._items.aclose()


def _was_closed() -> RuntimeError:
    return RuntimeError("this client was closed; make a new one")


class BlockingRuns(_Blocking[Runs]):
    """`Runs`, blocking."""

    create = _blocking(Runs.create)
    get = _blocking(Runs.get)
    list = _blocking(Runs.list)
    cancel = _blocking(Runs.cancel)
    retry = _blocking(Runs.retry)
    steer = _blocking(Runs.steer)
    fork = _blocking(Runs.fork)
    replay = _blocking(Runs.replay)
    tool_calls = _blocking(Runs.tool_calls)
    tool_call = _blocking(Runs.tool_call)
    tool_results = _blocking(Runs.tool_results)
    stream = _iterating(Runs.stream)
    wait = _blocking(Runs.wait)
    trace = _blocking(Runs.trace)
    usage = _blocking(Runs.usage)


class BlockingBatches(_Blocking[Batches]):
    """`Batches`, blocking."""

    create = _blocking(Batches.create)
    upload = _blocking(Batches.upload)
    get = _blocking(Batches.get)
    list = _blocking(Batches.list)
    cancel = _blocking(Batches.cancel)
    delete = _blocking(Batches.delete)
    stream = _iterating(Batches.stream)
    wait = _blocking(Batches.wait)
    results = _iterating(Batches.results)


class BlockingSchedules(_Blocking[Schedules]):
    """`Schedules`, blocking."""

    create = _blocking(Schedules.create)
    get = _blocking(Schedules.get)
    list = _blocking(Schedules.list)
    update = _blocking(Schedules.update)
    delete = _blocking(Schedules.delete)


class BlockingApprovals(_Blocking[Approvals]):
    """`Approvals`, blocking."""

    list = _blocking(Approvals.list)
    get = _blocking(Approvals.get)
    follow = _iterating(Approvals.follow)
    decide = _blocking(Approvals.decide)
    decide_all = _blocking(Approvals.decide_all)
    withdraw = _blocking(Approvals.withdraw)


class BlockingChannels(_Blocking[Channels]):
    """`Channels`, blocking."""

    send = _blocking(Channels.send)
    pending = _blocking(Channels.pending)


class BlockingAgents(_Blocking[Agents]):
    """`Agents`, blocking."""

    create = _blocking(Agents.create)
    get = _blocking(Agents.get)
    list = _blocking(Agents.list)
    versions = _blocking(Agents.versions)
    update = _blocking(Agents.update)
    delete = _blocking(Agents.delete)


class BlockingSessions(_Blocking[Sessions]):
    """`Sessions`, blocking."""

    create = _blocking(Sessions.create)
    get = _blocking(Sessions.get)
    list = _blocking(Sessions.list)
    update = _blocking(Sessions.update)
    delete = _blocking(Sessions.delete)
    messages = _blocking(Sessions.messages)
    fork = _blocking(Sessions.fork)
    state = _blocking(Sessions.state)
    export = _blocking(Sessions.export)
    import_ = _blocking(Sessions.import_)
    stream = _iterating(Sessions.stream)
    runs = _blocking(Sessions.runs)
    summaries = _blocking(Sessions.summaries)
    revert = _blocking(Sessions.revert)
    pins = _blocking(Sessions.pins)
    pin = _blocking(Sessions.pin)
    unpin = _blocking(Sessions.unpin)


class BlockingBudgets(_Blocking[Budgets]):
    """`Budgets`, blocking."""

    create = _blocking(Budgets.create)
    get = _blocking(Budgets.get)
    list = _blocking(Budgets.list)
    counters = _blocking(Budgets.counters)
    update = _blocking(Budgets.update)
    delete = _blocking(Budgets.delete)


class BlockingMemories(_Blocking[Memories]):
    """`Memories`, blocking."""

    create = _blocking(Memories.create)
    get = _blocking(Memories.get)
    list = _blocking(Memories.list)
    of_user = _iterating(Memories.of_user)
    put = _blocking(Memories.put)
    delete = _blocking(Memories.delete)
    erase = _blocking(Memories.erase)


class BlockingPolicies(_Blocking[Policies]):
    """`Policies`, blocking."""

    get = _blocking(Policies.get)
    put = _blocking(Policies.put)
    delete = _blocking(Policies.delete)
    check = _blocking(Policies.check)


class BlockingUsers(_Blocking[Users]):
    """`Users`, blocking."""

    erase = _blocking(Users.erase)
    export = _iterating(Users.export)
    erasure = _blocking(Users.erasure)
    erasures = _blocking(Users.erasures)
    retention = _blocking(Users.retention)
    keep = _blocking(Users.keep)
    storage = _blocking(Users.storage)


class BlockingGrants(_Blocking[Grants]):
    """`Grants`, blocking."""

    list = _blocking(Grants.list)
    get = _blocking(Grants.get)
    revoke = _blocking(Grants.revoke)


class BlockingMilepost:
    """A server, by its resources, for code without an event loop. Close it, or use `with`."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        api_key: str | None = None,
        *,
        patience: Patience = PATIENCE,
    ) -> None:
        self._client = Milepost(base_url, api_key, patience=patience)
        self._loop = _Loop()
        self.runs = BlockingRuns(self._client.runs, self._loop)
        self.batches = BlockingBatches(self._client.batches, self._loop)
        self.schedules = BlockingSchedules(self._client.schedules, self._loop)
        self.approvals = BlockingApprovals(self._client.approvals, self._loop)
        self.channels = BlockingChannels(self._client.channels, self._loop)
        self.agents = BlockingAgents(self._client.agents, self._loop)
        self.sessions = BlockingSessions(self._client.sessions, self._loop)
        self.budgets = BlockingBudgets(self._client.budgets, self._loop)
        self.memories = BlockingMemories(self._client.memories, self._loop)
        self.policies = BlockingPolicies(self._client.policies, self._loop)
        self.grants = BlockingGrants(self._client.grants, self._loop)
        self.users = BlockingUsers(self._client.users, self._loop)

    def __enter__(self) -> Self:
        """Give the client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close the connections and stop the thread."""
        self._loop.close(self._client.aclose())
