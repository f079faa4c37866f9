"""The same client for code without an event loop: every call runs the asynchronous one."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from milepost.client.agents import Agents
from milepost.client.approvals import Approvals
from milepost.client.milepost import BASE_URL, PATIENCE, Milepost
from milepost.client.patience import Patience
from milepost.client.runs import Runs
from milepost.client.sessions import Sessions

R = TypeVar("R")
T = TypeVar("T")
P = ParamSpec("P")


class _Loop:
    """An event loop in a thread of its own, so that it also serves callers who run one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="milepost-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns; who is interrupted while waiting interrupts it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Stop the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


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
) -> Callable[Concatenate[_Blocking[R], P], Iterator[T]]:
    def call(self: _Blocking[R], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self.resource, *args, **kwargs)
        try:
            while True:
                try:
                    item = self.loop.run(_next(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self.loop.run(items.aclose())

    call.__doc__ = method.__doc__
    return call


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


class BlockingRuns(_Blocking[Runs]):
    """`Runs`, blocking."""

    create = _blocking(Runs.create)
    get = _blocking(Runs.get)
    list = _blocking(Runs.list)
    cancel = _blocking(Runs.cancel)
    stream = _iterating(Runs.stream)
    wait = _blocking(Runs.wait)
    trace = _blocking(Runs.trace)
    usage = _blocking(Runs.usage)


class BlockingApprovals(_Blocking[Approvals]):
    """`Approvals`, blocking."""

    list = _blocking(Approvals.list)
    get = _blocking(Approvals.get)
    decide = _blocking(Approvals.decide)


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
    runs = _blocking(Sessions.runs)


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
        self.approvals = BlockingApprovals(self._client.approvals, self._loop)
        self.agents = BlockingAgents(self._client.agents, self._loop)
        self.sessions = BlockingSessions(self._client.sessions, self._loop)

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
        self._loop.run(self._client.aclose())
        self._loop.close()
