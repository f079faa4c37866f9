"""Following a stream across broken connections, restarts of its server, and drains."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, Protocol, TypeVar

import httpx2
import orjson

from milepost.client.shapes import Event
from milepost.client.transport import Params, Transport, asked_s, tell_of_trouble
from milepost.core.errors import ApiError, MilepostError

# Named here: to load all of the service's events for them takes a fifth of a command's start.
TERMINAL = frozenset(
    {"run.completed", "run.incomplete", "run.failed", "run.cancelled", "run.expired"}
)

RETRY_MS_MAX = 86_400_000

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)


class Place(Protocol[E_co]):
    """Where a client is in a stream. `id` is what the server is told when it is asked again."""

    @property
    def id(self) -> str | None:
        """The last id seen."""

    def take(self, frame: httpx2.ServerSentEvent) -> E_co | None:
        """Return what is new in a frame, or None."""


class Choice(Protocol[E_contra]):
    """What of a stream a caller wants."""

    @property
    def params(self) -> Params:
        """What to ask the server for: always that, too, that says that it is over."""

    def has(self, event: E_contra) -> bool:
        """Say whether the caller wants this one."""

    def ends_at(self, event: E_contra) -> bool:
        """Say whether nothing follows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a caller wants (globs of types, or all), and whether it leaves at a wait.

    With `partials` come the values of structured answers while they are written.
    """

    types: Sequence[str] = ()
    deltas: bool = True
    until_waiting: bool = False
    partials: bool = False

    @property
    def params(self) -> Params:
        """What to ask the server for: always the events, too, that say that it is over."""
        last = sorted(self._last)
        return {
            "types": ",".join([*self.types, *last]) if self.types else None,
            "deltas": None if self.deltas else False,
            "partials": self.partials or None,
            "until": "waiting" if self.until_waiting else None,
        }

    def has(self, event: Event) -> bool:
        """Say whether the caller wants this one."""
        return not self.types or any(fnmatchcase(event.type, glob) for glob in self.types)

    def ends_at(self, event: Event) -> bool:
        """Say whether nothing follows."""
        return event.type in self._last

    @property
    def _last(self) -> frozenset[str]:
        return TERMINAL | {"run.waiting"} if self.until_waiting else TERMINAL


class Following(Generic[E]):
    """One way through a stream, from a place in it to its end."""

    def __init__(self, transport: Transport, path: str, wanted: Choice[E], place: Place[E]) -> None:
        self._transport = transport
        self._path = path
        self._wanted = wanted
        self._position = place
        self._over = False
        self._retry_s: float | None = None
        self._asked_s: float | None = None
        self._opened_s: float | None = None

    async def events(self) -> AsyncGenerator[E, None]:
        """Yield each event once and in order, however often the connection breaks.

        Raises `ApiError`, and `UnavailableError` when the server stays away.
        """
        failures = 0
        while True:
            lost: MilepostError = self._transport.unreachable(None)
            self._asked_s = self._opened_s = None
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        failures = 0
                        if self._wanted.has(event):
                            yield event
            except MilepostError as error:
                if not error.retryable:
                    raise
                if failures == 0 < self._transport.patience.tries_max - 1:
                    tell_of_trouble(error)
                lost = error
            if self._over:
                return
            failures = 1 if self._held() else failures + 1
            if failures >= self._transport.patience.tries_max:
                raise lost
            await self._transport.pause(failures, self._asked(lost))

    async def _connection(self) -> AsyncGenerator[E, None]:
        """Yield what is new on one connection, until it ends for whatever reason."""
        place = self._position.id
        try:
            async with self._transport.frames(self._path, self._wanted.params, place) as frames:
                if frames is None:
                    self._over = True
                    return
                self._opened_s = time.monotonic()
                async for frame in frames:
                    if frame.retry is not None:
                        self._retry_s = min(frame.retry, RETRY_MS_MAX) / 1000
                    if not frame.data:
                        continue  # No event, says the standard: it only sets an id, or a time.
                    try:
                        if self._is_farewell(frame):
                            return
                        event = self._position.take(frame)
                    except (ValueError, LookupError, TypeError, AttributeError) as error:
                        raise self._transport.foreign(frame.data) from error
                    if event is None:
                        continue
                    self._over = self._wanted.ends_at(event)
                    yield event
                    if self._over:
                        return
        except httpx2.RequestError as lost:
            raise self._transport.unreachable(lost) from lost

    def _held(self) -> bool:
        """Say whether the connection was a good one, be it that nothing happened."""
        if self._opened_s is None:
            return False
        return time.monotonic() - self._opened_s >= self._transport.patience.held_s

    def _asked(self, lost: MilepostError) -> float | None:
        """Return when the server wants to see us again: its last word counts most."""
        if self._asked_s is not None:
            return self._asked_s
        retry_after_s = asked_s(lost)
        return self._retry_s if retry_after_s is None else retry_after_s

    def _is_farewell(self, frame: httpx2.ServerSentEvent) -> bool:
        """Say whether the server ends this connection, though no run may end with it."""
        match frame.event:
            case "stream.reconnect":
                self._asked_s = orjson.loads(frame.data)["data"]["after_ms"] / 1000
                return True
            case "stream.lagged":
                self._asked_s = 0.0
                return True
            case "stream.idle":
                self._over = True
                return True
            case "error":
                said = orjson.loads(frame.data)
                raise ApiError(said.get("data", said), status=500)
            case _:
                return False
