"""How much of a quota the last minute took, in the process's own memory."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

WINDOW_S = 60
NAMES_MAX = 10_000
QUEUE_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Quota:
    """What may be done a minute, None being without end; a call waits `queue_s` at most for it."""

    requests: int | None = None
    tokens: int | None = None
    queue_s: float = QUEUE_S_MAX


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken of a quota, in which second; or nothing, and the wait until it is there.

    `left` is how many more requests of it there are just now, where it bounds them.
    """

    wait_s: float = 0.0
    second: int = 0
    tokens: int = 0
    left: int | None = None


class Windows(Protocol):
    """Counts by name and second, so that no 60 seconds ever see more than the quota.

    `take` takes one request and so many tokens, both or nothing; more tokens than the quota has are
    all of it. `correct` counts what they turned out to be instead, as long as it matters.
    """

    async def take(self, name: str, quota: Quota, tokens: int) -> Taken: ...

    async def correct(self, name: str, taken: Taken, tokens: int) -> None: ...


class _Window:
    """The amounts of the last minute by their second, the oldest first."""

    def __init__(self) -> None:
        self._amounts: dict[int, int] = {}

    def wait_ms(self, now_ms: int, amount: int, limit: int) -> int:
        """Return in how many milliseconds `amount` fits: 0 if it does now."""
        self._forget(now_ms // 1000)
        excess = self.total + amount - limit
        wait_ms = 0
        for second, taken in self._amounts.items():
            if excess <= 0:
                break
            excess -= taken
            # What was taken in a second is a minute old for certain once the next one is.
            wait_ms = (second + 1 + WINDOW_S) * 1000 - now_ms
        return wait_ms

    def is_idle(self, now: int) -> bool:
        self._forget(now)
        return not self._amounts

    @property
    def total(self) -> int:
        return sum(self._amounts.values())

    def add(self, second: int, amount: int) -> None:
        self._amounts[second] = self._amounts.get(second, 0) + amount

    def correct(self, second: int, amount: int) -> None:
        if second in self._amounts:
            self._amounts[second] += amount

    def _forget(self, now: int) -> None:
        for second in [second for second in self._amounts if now > second + WINDOW_S]:
            del self._amounts[second]


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class InProcessWindows:
    """Counts what this process does, in whichever of its threads; `now_ms` never goes back."""

    def __init__(self, now_ms: Callable[[], int] = _monotonic_ms) -> None:
        self._now_ms = now_ms
        self._requests: dict[str, _Window] = {}
        self._tokens: dict[str, _Window] = {}
        self._held = threading.Lock()
        self._looks_again = 0

    async def take(self, name: str, quota: Quota, tokens: int) -> Taken:
        """Take one request and so many tokens, or say when to come back."""
        with self._held:
            now_ms = self._now_ms()
            self._forget_idle(now_ms // 1000)
            tokens = bounded(tokens, quota)
            wanted = list(self._wanted(name, quota, tokens))
            waits_ms = [window.wait_ms(now_ms, amount, limit) for window, amount, limit in wanted]
            if wait_ms := max(waits_ms, default=0):
                return Taken(wait_ms / 1000)
            for window, amount, _ in wanted:
                window.add(now_ms // 1000, amount)
            left = None
            if quota.requests is not None:
                left = quota.requests - self._requests[name].total
            return Taken(second=now_ms // 1000, tokens=tokens, left=left)

    async def correct(self, name: str, taken: Taken, tokens: int) -> None:
        """Count `tokens` instead of those that were taken."""
        with self._held:
            if (window := self._tokens.get(name)) is not None:
                window.correct(taken.second, tokens - taken.tokens)

    def _forget_idle(self, now: int) -> None:
        """Let go of names of which the last minute knows nothing: keys come and go.

        Where there are many, and once a minute, since it takes a look at each.
        """
        if len(self._requests) + len(self._tokens) <= NAMES_MAX or now < self._looks_again:
            return
        self._looks_again = now + WINDOW_S
        for windows in (self._requests, self._tokens):
            for name in [name for name, window in windows.items() if window.is_idle(now)]:
                del windows[name]

    def _wanted(self, name: str, quota: Quota, tokens: int) -> Iterator[tuple[_Window, int, int]]:
        if quota.requests is not None:
            yield self._requests.setdefault(name, _Window()), 1, quota.requests
        if quota.tokens is not None:
            yield self._tokens.setdefault(name, _Window()), tokens, quota.tokens


def bounded(tokens: int, quota: Quota) -> int:
    """Return as many of `tokens` as the quota ever has."""
    return tokens if quota.tokens is None else min(tokens, quota.tokens)
