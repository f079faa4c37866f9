"""Telling observers: what stands in a run's log, in their words, and what they do about it."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Sequence
from difflib import get_close_matches

from milepost.agent.observations import Observation
from milepost.agent.observer import Observer
from milepost.telemetry.logs import logger

BLOCKING_S_MAX = 60.0
LEFT_S_MAX = 2.0
METHODS = frozenset(name for name in vars(Observer) if name.startswith("on_"))

_log = logger("agent")


class Telling:
    """The observers of one run or batch. `failures` counts what they raised, and went no further.

    Who blocks may hold a run up for `blocking_s`; who does not has `left_s` at its end.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        subject: str,
        *,
        blocking_s: float = BLOCKING_S_MAX,
        left_s: float = LEFT_S_MAX,
    ) -> None:
        self.failures = 0
        self._observers = observers
        self._subject = subject
        self._blocking_s = blocking_s
        self._left_s = left_s
        self._beside: set[asyncio.Task[None]] = set()
        self._complained: set[int] = set()
        self._waiting: list[tuple[Observer, Observation, Awaitable[None]]] = []

    @property
    def is_heard(self) -> bool:
        """Say whether there is anybody."""
        return bool(self._observers)

    def say(self, seen: Observation) -> None:
        """Tell who needs not be waited for; the others are told with the next `tell`."""
        for observer in self._observers:
            try:
                answer = observer.on_event(seen)
            except (Exception, asyncio.CancelledError) as error:
                self._fail(observer, seen, error)
                continue
            if inspect.isawaitable(answer):
                self._waiting.append((observer, seen, answer))

    async def tell(self, happened: Iterable[Observation] = ()) -> None:
        """Tell everybody, one thing after the other, and wait for those who block."""
        await self._wait()
        for seen in happened:
            self.say(seen)
            await self._wait()

    async def end(self) -> None:
        """Let what runs beside the run come to its end, within bounds."""
        await self._wait()
        if not self._beside:
            return
        _, left = await asyncio.wait(self._beside, timeout=self._left_s)
        for task in left:
            self.failures += 1
            task.cancel()

    async def _wait(self) -> None:
        """What was said to those who do not block is theirs to finish."""
        waiting, self._waiting = self._waiting, []
        for observer, seen, answer in waiting:
            work = self._guarded(observer, seen, answer)
            if observer.blocking:
                await work
                continue
            task = asyncio.create_task(work)
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

    async def _guarded(
        self, observer: Observer, seen: Observation, answer: Awaitable[None]
    ) -> None:
        try:
            async with asyncio.timeout(self._blocking_s):
                await answer
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._fail(observer, seen, error)  # What it waited for was cancelled: not the run.
        except Exception as error:
            self._fail(observer, seen, error)

    def _fail(self, observer: Observer, seen: Observation, error: BaseException) -> None:
        """Count it, and tell of the first of each observer: the others would say the same."""
        self.failures += 1
        # By their ids: one that is a dataclass equals others, and has no hash.
        if id(observer) in self._complained:
            return
        self._complained.add(id(observer))
        _log.warning(
            "an observer failed",
            observer=type(observer).__name__,
            seen=seen.name,
            subject=self._subject,
            error=repr(error),
        )


def require_known_methods(observer: Observer) -> Observer:
    """Return the observer; raise `TypeError` for none, or a method that nobody would ever call."""
    if not isinstance(observer, Observer):
        raise TypeError(f"{observer!r} is no observer; give an instance of a class from `Observer`")
    for name in dir(observer):
        if name.startswith("on_") and name not in METHODS:
            near = get_close_matches(name, METHODS, n=1)
            meant = f"; is {near[0]} meant?" if near else ""
            raise TypeError(f"{type(observer).__name__}.{name} is no method of observers{meant}")
    return observer
