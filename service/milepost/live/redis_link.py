"""The hub's way to other processes: Redis pub/sub, and short-lived buffers for live text.

Nothing here is needed for correctness. While Redis is away there is no typing animation from other
processes, and events are found by polling.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from milepost.live.hub import LINK_BELL, Hub, LiveText
from milepost.live.text_buffers import KINDS, TextBuffers

FLUSH_S = 0.005
OUT_MAX = 10_000
SUBSCRIBE_TIMEOUT_S = 1.0
RETRY_S = 1.0
MEND_S = 0.25
MEND_MAX = 100
CONNECT_S_MAX = 2.0
ANSWER_S_MAX = 2.0

# The third is uvloop's, for a write to a connection that has just been lost; the fourth redis-py's,
# for one that another task closes while it is being made. The others are what comes of answers that
# no Redis gives, as whoever stands in for one may: redis-py takes them apart, and lets it through.
_LOST = (RedisError, OSError, RuntimeError, AttributeError, LookupError, TypeError, ValueError)

_BELLS = "milepost:bells"
_DATABASE = re.compile(r"/?[0-9]*")


def _channel(run_id: str) -> str:
    return f"milepost:run:{run_id}"


def _unheard(_: Exception | None) -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class _Hints:
    """How far logs reach by now, and bells that were rung."""

    seqs: dict[str, int] = field(default_factory=dict)
    bells: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.seqs or self.bells)


class RedisLink:
    """Sends what the hub says, coalesced, and brings what other processes say.

    `on_change` is told when Redis begins to answer (None), and why it no longer does; once each.
    """

    def __init__(
        self,
        url: str,
        hub: Hub,
        *,
        retry_s: float = RETRY_S,
        on_change: Callable[[Exception | None], None] = _unheard,
    ) -> None:
        self._redis = _connect(url)
        self._buffers = TextBuffers(self._redis)
        self._listening = _connect(url)
        self._pubsub = self._listening.pubsub(ignore_subscribe_messages=False)
        self._hub = hub
        self._retry_s = retry_s
        self._on_change = on_change
        self._answered: bool | None = None
        self._hears = False
        self._hints = _Hints()
        self._lost = _Hints()
        self._texts: deque[tuple[str, LiveText, str, int]] = deque(maxlen=OUT_MAX)
        self._closed: deque[tuple[str, LiveText]] = deque(maxlen=OUT_MAX)
        self._some = asyncio.Event()
        # Runs whose texts lack a piece that nobody will send again.
        self._torn: set[str] = set()
        self._some_torn = asyncio.Event()
        self._wanted: set[str] = set()
        # Those of them that came while Redis did not answer.
        self._late: set[str] = set()
        self._confirmed: dict[str, asyncio.Event] = {}
        self.up = asyncio.Event()
        self.down = asyncio.Event()
        self._tell(alive=False)

    @property
    def alive(self) -> bool:
        """Say whether Redis answers."""
        return self.up.is_set()

    def published(self, run_id: str, seq: int) -> None:
        """Tell that the run's log reaches to `seq`."""
        self._hints.seqs[run_id] = seq
        self._some.set()

    def wrote(self, run_id: str, text: LiveText, piece: str) -> None:
        """Tell that `piece` was added to the text."""
        self._texts.append((run_id, text, piece, len(text.text) - len(piece)))
        self._some.set()

    def closed(self, run_id: str, text: LiveText) -> None:
        """Tell that nothing more will be added to the text."""
        self._closed.append((run_id, text))
        self._some.set()

    def rang(self, bell: str) -> None:
        """Tell that a bell was rung."""
        self._hints.bells.add(bell)
        self._some.set()

    async def follow(self, run_id: str) -> None:
        """Begin to hear of the run, and take in what is being written of it just now."""
        self._wanted.add(run_id)
        if not self.alive:
            self._late.add(run_id)
            return
        confirmed = self._confirmed.setdefault(run_id, asyncio.Event())
        with suppress(*_LOST):
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                await self._pubsub.subscribe(_channel(run_id))
                await confirmed.wait()
                await self._fetch([run_id])

    def leave(self, run_id: str) -> None:
        """Hear of the run no more; the channel goes with the next turn of the listener."""
        self._wanted.discard(run_id)
        self._late.discard(run_id)
        self._confirmed.pop(run_id, None)
        self._some.set()

    async def erase(self, run_ids: Sequence[str]) -> None:
        """Remove what is kept of the texts of these runs; without Redis, time does so."""
        with suppress(*_LOST):
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._buffers.erase(run_ids)

    async def run(self) -> None:
        """Send and receive until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send())
                tasks.create_task(self._receive())
                tasks.create_task(self._mend())
        finally:
            await self._pubsub.aclose()
            await self._listening.aclose()
            await self._redis.aclose()

    async def _send(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._flush()
                    await self._drop_channels()
            except ResponseError:  # Of one command: the hints have gone out beside it.
                self._lost = _Hints()
                self._buffers.refused()
            except _LOST:
                self._buffers.unanswered()
                self._hint_again()
            await asyncio.sleep(FLUSH_S)

    async def _flush(self) -> None:
        """Send everything in one round trip, with the hints of the last one if that failed."""
        pipe: Any = self._redis.pipeline(transaction=False)
        while self._texts:
            self._add_piece(pipe, *self._texts.popleft())
        while self._closed:
            self._buffers.remove(pipe, *self._closed.popleft())
        hints, self._hints = self._hints, _Hints()
        again, self._lost = self._lost, hints
        for run_id, seq in (again.seqs | hints.seqs).items():
            pipe.publish(_channel(run_id), orjson.dumps({"seq": seq}))
        for bell in again.bells | hints.bells:
            pipe.publish(_BELLS, bell)
        self._buffers.answered(await pipe.execute())
        self._lost = _Hints()

    def _hint_again(self) -> None:
        """Have sent once more what may not have arrived: others would look for it seconds later.

        Not a second time: where Redis is away they look each second by themselves.
        """
        if self._lost:
            self._some.set()

    def _add_piece(self, pipe: Any, run_id: str, text: LiveText, piece: str, offset: int) -> None:
        self._buffers.add(pipe, run_id, text, piece, offset)
        said = {"kind": text.kind, "id": text.id, "after_seq": text.after_seq}
        pipe.publish(
            _channel(run_id), orjson.dumps({"text": said, "offset": offset, "piece": piece})
        )

    async def _drop_channels(self) -> None:
        unwanted = [
            channel
            for channel in (key.decode() for key in self._pubsub.channels)
            if channel != _BELLS and channel.removeprefix("milepost:run:") not in self._wanted
        ]
        if unwanted:
            await self._pubsub.unsubscribe(*unwanted)

    async def _receive(self) -> None:
        while True:
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._subscribe()
                await self._listen()
            except _LOST as error:
                self._tell(alive=False)
                self._note(error)
                with suppress(*_LOST):
                    await self._pubsub.aclose()
            await asyncio.sleep(self._retry_s)

    async def _listen(self) -> None:
        """Hear what comes, until Redis leaves a ping unanswered: it may be gone without a word."""
        hearing = asyncio.create_task(self._hear())
        try:
            while not hearing.done():
                self._hears = False
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._pubsub.ping()
                await asyncio.wait({hearing}, timeout=ANSWER_S_MAX)
                if not (self._hears or hearing.done()):
                    raise TimeoutError(f"Redis has said nothing for {ANSWER_S_MAX:g} s")
            await hearing
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self) -> None:
        while True:
            message = await self._pubsub.get_message(timeout=None)
            if message is None:
                raise InvalidResponse("Redis has answered, and said nothing")
            self._hears = True
            if message["type"] != "pong":
                await self._heard(message)
            elif not self.alive:
                await self._begin()

    async def _subscribe(self) -> None:
        """Ask to hear of all that is wanted; what comes of it is heard before a ping's answer."""
        self._late.clear()
        await self._pubsub.subscribe(_BELLS, *map(_channel, self._wanted))

    async def _begin(self) -> None:
        """Say that Redis answers: it may take connections, and refuse whatever they ask for.

        Whoever came since it was asked has left it to this to hear of the run, and may have looked
        at its log before.
        """
        while self._late:
            late, self._late = self._late, set()
            for run_id in late:
                self._confirmed.setdefault(run_id, asyncio.Event())
            await self._pubsub.subscribe(*map(_channel, late))
        self._tell(alive=True)
        self._note(None)

    async def _mend(self) -> None:
        """Fill the gaps that lost pieces have left, many at a time and a few times a second."""
        while True:
            await self._some_torn.wait()
            await self.up.wait()
            torn = [self._torn.pop() for _ in range(min(len(self._torn), MEND_MAX))]
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._fetch(torn)
            except _LOST:
                self._torn |= self._wanted.intersection(torn)
            if not self._torn:
                self._some_torn.clear()
            await asyncio.sleep(MEND_S)

    def _tear(self, run_id: str) -> None:
        self._torn.add(run_id)
        self._some_torn.set()

    def _tell(self, *, alive: bool) -> None:
        now, no_more = (self.up, self.down) if alive else (self.down, self.up)
        no_more.clear()
        now.set()
        self._hub.chime(LINK_BELL)

    def _note(self, error: Exception | None) -> None:
        answers = error is None
        if answers is not self._answered:
            self._answered = answers
            self._on_change(error)

    async def _heard(self, message: dict[str, Any]) -> None:
        channel = message["channel"].decode()
        run_id = channel.removeprefix("milepost:run:")
        match message["type"]:
            case "subscribe" if confirmed := self._confirmed.get(run_id):
                self._hear_from_now(run_id, confirmed)
            case "message" if channel == _BELLS:
                self._hub.chime(message["data"].decode("utf-8", "replace"))
            case "message":
                self._take(run_id, message["data"])
            case _:
                pass

    def _hear_from_now(self, run_id: str, confirmed: asyncio.Event) -> None:
        """Miss nothing of this run any more; what was known of its log before may be out of date.

        Whoever starts a run knows its first event, and a second listener does not wait for the
        first one's channel.
        """
        if not confirmed.is_set():
            self._hub.doubt(run_id)
        confirmed.set()

    def _take(self, run_id: str, data: bytes) -> None:
        """Take in a message about a run; one that another version sent may mean nothing here."""
        try:
            said = orjson.loads(data)
        except orjson.JSONDecodeError:
            return
        match said:
            case {"seq": int(seq)}:
                self._hub.hint(run_id, seq)
            case {
                "text": {"kind": str(kind), "id": str(id_), "after_seq": int(after_seq)},
                "offset": int(offset),
                "piece": str(piece),
            } if kind in KINDS:
                text = LiveText(KINDS[kind], id_, after_seq)
                if not self._hub.overhear_piece(run_id, text, offset, piece):
                    self._tear(run_id)
            case _:
                return

    async def _fetch(self, run_ids: Iterable[str]) -> None:
        """Take in the texts that are being written, as far as they have come."""
        for run_id, text in await self._buffers.read(run_ids):
            self._hub.overhear(run_id, text)


def _connect(url: str) -> Any:
    """Return a client that tries nothing twice: its user knows when Redis is away, and waits.

    How long an answer may take is for its user to say, too: the client's own bound would lose a
    cancellation that comes in its midst, as `asyncio.wait_for` does before Python 3.12. Of
    maintenance it hears nothing: who listens for that is also given connections that have been
    closed, and what is said on one of those is lost.

    Raises `ValueError` for an address of which something would count for nothing: the client takes
    a database that is no number for the first, and an option that cannot be fails as if Redis were
    away.
    """
    address = urlsplit(url)
    if address.scheme != "unix" and not _DATABASE.fullmatch(address.path):
        raise ValueError(f"{address.path[1:]!r} is no number of a database")
    redis: Any = Redis.from_url(
        url,
        socket_timeout=None,
        socket_connect_timeout=CONNECT_S_MAX,
        retry=Retry(NoBackoff(), 0),
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    try:
        redis.connection_pool.make_connection()
    except (TypeError, RedisError) as error:
        raise ValueError(f"one of its options cannot be: {error}") from error
    return redis
