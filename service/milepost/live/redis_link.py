"""The hub's way to other processes: Redis pub/sub, and short-lived buffers for live text.

Nothing here is needed for correctness. While Redis is away there is no typing animation from other
processes, and events are found by polling.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

import orjson
from redis.asyncio import Redis
from redis.exceptions import RedisError

from milepost.live.hub import Hub, LiveText

FLUSH_S = 0.005
OUT_MAX = 10_000
TEXT_TTL_S = 900
TEXT_BYTES_MAX = 4_194_304
SUBSCRIBE_TIMEOUT_S = 1.0
RETRY_S = 1.0
SOCKET_TIMEOUT_S = 2.0

_BELLS = "milepost:bells"


def _channel(run_id: str) -> str:
    return f"milepost:run:{run_id}"


def _names(run_id: str) -> str:
    return f"milepost:live:{run_id}"


def _buffer(run_id: str, kind: str, id_: str) -> str:
    return f"milepost:live:{run_id}:{kind}:{id_}"


class RedisLink:
    """Sends what the hub says, coalesced, and brings what other processes say."""

    def __init__(self, url: str, hub: Hub) -> None:
        self._redis: Redis = Redis.from_url(
            url, socket_timeout=SOCKET_TIMEOUT_S, socket_connect_timeout=SOCKET_TIMEOUT_S
        )
        # A reader waits as long as it takes: a socket time-out would be an error.
        self._listening: Redis = Redis.from_url(
            url, socket_timeout=None, socket_connect_timeout=SOCKET_TIMEOUT_S
        )
        self._pubsub = self._listening.pubsub(ignore_subscribe_messages=False)
        self._hub = hub
        self._seqs: dict[str, int] = {}
        self._bells: set[str] = set()
        self._texts: deque[tuple[str, LiveText, str, int]] = deque(maxlen=OUT_MAX)
        self._closed: deque[tuple[str, LiveText]] = deque(maxlen=OUT_MAX)
        self._byte_counts: dict[tuple[str, str, str], int] = {}
        self._some = asyncio.Event()
        self._wanted: set[str] = set()
        self._confirmed: dict[str, asyncio.Event] = {}
        self.alive = False

    def published(self, run_id: str, seq: int) -> None:
        """Tell that the run's log reaches to `seq`."""
        self._seqs[run_id] = seq
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
        self._bells.add(bell)
        self._some.set()

    async def follow(self, run_id: str) -> None:
        """Begin to hear of the run, and take in what is being written of it just now."""
        self._wanted.add(run_id)
        if not self.alive:
            return
        confirmed = self._confirmed.setdefault(run_id, asyncio.Event())
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                await self._pubsub.subscribe(_channel(run_id))
                await confirmed.wait()
                await self._fetch(run_id)

    def leave(self, run_id: str) -> None:
        """Hear of the run no more; the channel goes with the next turn of the listener."""
        self._wanted.discard(run_id)
        self._confirmed.pop(run_id, None)
        self._some.set()

    async def run(self) -> None:
        """Send and receive until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send())
                tasks.create_task(self._receive())
        finally:
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]  # untyped upstream
            await self._listening.aclose()
            await self._redis.aclose()

    async def _send(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            with suppress(RedisError, OSError):
                await self._flush()
                await self._drop_channels()
            await asyncio.sleep(FLUSH_S)

    async def _flush(self) -> None:
        """Send everything in one round trip; what cannot be sent is dropped, it was only a hint."""
        pipe: Any = self._redis.pipeline(transaction=False)
        while self._texts:
            self._add_text(pipe, *self._texts.popleft())
        while self._closed:
            run_id, text = self._closed.popleft()
            self._byte_counts.pop((run_id, text.kind, text.id), None)
            pipe.srem(_names(run_id), _name(text))
            pipe.delete(_buffer(run_id, text.kind, text.id))
        seqs, self._seqs = self._seqs, {}
        for run_id, seq in seqs.items():
            pipe.publish(_channel(run_id), orjson.dumps({"seq": seq}))
        bells, self._bells = self._bells, set()
        for bell in bells:
            pipe.publish(_BELLS, bell)
        await pipe.execute()

    def _add_text(self, pipe: Any, run_id: str, text: LiveText, piece: str, offset: int) -> None:
        """Write at a byte offset: a repeated SETRANGE changes nothing, an APPEND would double."""
        key = (run_id, text.kind, text.id)
        encoded = piece.encode()
        at = self._byte_counts.get(key, 0)
        self._byte_counts[key] = at + len(encoded)
        if at + len(encoded) <= TEXT_BYTES_MAX:
            pipe.setrange(_buffer(*key), at, encoded)
            pipe.expire(_buffer(*key), TEXT_TTL_S)
            pipe.sadd(_names(run_id), _name(text))
            pipe.expire(_names(run_id), TEXT_TTL_S)
        said = {"kind": text.kind, "id": text.id, "after_seq": text.after_seq}
        pipe.publish(
            _channel(run_id), orjson.dumps({"text": said, "offset": offset, "piece": piece})
        )

    async def _drop_channels(self) -> None:
        unwanted = [
            channel
            for channel in (_text_of(key) for key in self._pubsub.channels)
            if channel != _BELLS and channel.removeprefix("milepost:run:") not in self._wanted
        ]
        if unwanted:
            await self._pubsub.unsubscribe(*unwanted)

    async def _receive(self) -> None:
        while True:
            try:
                await self._pubsub.subscribe(_BELLS, *map(_channel, self._wanted))
                self.alive = True
                while True:
                    message = await self._pubsub.get_message(timeout=None)
                    if message:
                        await self._heard(message)
            except (RedisError, OSError):
                self.alive = False
                with suppress(RedisError, OSError):
                    await self._pubsub.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(RETRY_S)

    async def _heard(self, message: dict[str, Any]) -> None:
        channel = _text_of(message["channel"])
        run_id = channel.removeprefix("milepost:run:")
        if message["type"] == "subscribe":
            if confirmed := self._confirmed.get(run_id):
                confirmed.set()
            return
        if message["type"] != "message":
            return
        if channel == _BELLS:
            self._hub.chime(_text_of(message["data"]))
            return
        said = orjson.loads(message["data"])
        if "seq" in said:
            self._hub.hint(run_id, said["seq"])
        else:
            self._overhear(run_id, said)

    def _overhear(self, run_id: str, said: dict[str, Any]) -> None:
        named = said["text"]
        self._hub.overhear_piece(
            run_id,
            LiveText(named["kind"], named["id"], named["after_seq"]),
            said["offset"],
            said["piece"],
        )

    async def _fetch(self, run_id: str) -> None:
        """Take in the texts that are being written, as far as they have come."""
        names = await self._redis.smembers(_names(run_id))
        for name in names:
            kind, id_, after_seq = _text_of(name).split("|")
            raw = await self._redis.get(_buffer(run_id, kind, id_))
            if raw:
                # A piece in flight may end in the middle of a character; the next one completes it.
                written = _bytes_of(raw).decode("utf-8", "ignore")
                text = LiveText(kind, id_, int(after_seq), written)  # type: ignore[arg-type]
                self._hub.overhear(run_id, text)


def _name(text: LiveText) -> str:
    return f"{text.kind}|{text.id}|{text.after_seq}"


def _text_of(raw: bytes | str) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw


def _bytes_of(raw: bytes | str) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode()
