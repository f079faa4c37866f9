"""What is being written just now, kept in Redis for whoever joins: each text under its own name.

A text has one writer, which writes at byte offsets: a repeated SETRANGE changes nothing, where a
repeated APPEND would double. Another attempt at the same text has a name of its own: a worker that
lost its run may not know yet, and would write into it. Redis may be emptied or replaced meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from milepost.live.hub import LiveText, TextKind

TEXT_TTL_S = 900
TEXT_BYTES_MAX = 4_194_304
REST_S = 1.0

KINDS: Mapping[str, TextKind] = {kind: kind for kind in get_args(TextKind)}


class TextBuffers:
    """Writes texts into a pipeline, piece by piece, and reads back what others wrote."""

    def __init__(self, redis: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self._clock = clock
        self._rests_until = 0.0
        # How far each text stands in its buffer, in characters and in bytes.
        self._written: dict[str, tuple[int, int]] = {}
        # Which answers of the pipeline tell whether what was written before is there, how much
        # that is, and of which text.
        self._telling: dict[int, tuple[int, str]] = {}

    def add(self, pipe: Any, run_id: str, text: LiveText, piece: str, offset: int) -> None:
        """Write a piece; where it is not known that those before it are there, the text so far."""
        if self._clock() < self._rests_until:
            return
        key = _buffer(run_id, text)
        end = offset + len(piece)
        chars, at = self._written.get(key, (0, 0))
        encoded = (piece if chars == offset else text.text[:end]).encode()
        at = at if chars == offset else 0
        self._written[key] = (end, at + len(encoded))
        if at + len(encoded) > TEXT_BYTES_MAX:
            return
        if at:
            self._telling[len(pipe)] = (at, key)
            pipe.strlen(key)
        pipe.setrange(key, at, encoded)
        pipe.expire(key, TEXT_TTL_S)
        pipe.sadd(_names(run_id), _name(text))
        pipe.expire(_names(run_id), TEXT_TTL_S)

    def remove(self, pipe: Any, run_id: str, text: LiveText) -> None:
        """Remove a text that is complete or given up."""
        key = _buffer(run_id, text)
        self._written.pop(key, None)
        pipe.srem(_names(run_id), _name(text))
        pipe.delete(key)

    def answered(self, answers: Sequence[Any]) -> None:
        """Take note of the pipeline's answers: a buffer that has less than was written was lost."""
        for index, (at, key) in self._telling.items():
            if answers[index] < at:
                self._written.pop(key, None)
        self._telling.clear()

    def unanswered(self) -> None:
        """Take note that nobody knows what was written."""
        self._telling.clear()
        self._written.clear()

    def refused(self) -> None:
        """Write nothing for a while: each piece would send the whole text so far, and in vain."""
        self.unanswered()
        self._rests_until = self._clock() + REST_S

    async def erase(self, run_ids: Iterable[str]) -> None:
        """Remove all texts of runs that are gone, whoever wrote them."""
        runs = list(run_ids)
        pipe = self._redis.pipeline(transaction=False)
        for run_id in runs:
            pipe.smembers(_names(run_id))
        for run_id, names in zip(runs, await pipe.execute(), strict=True):
            texts = [text for text in map(_named, names) if text]
            pipe.unlink(_names(run_id), *(_buffer(run_id, each) for each in texts))
        await pipe.execute()

    async def read(self, run_ids: Iterable[str]) -> list[tuple[str, LiveText]]:
        """Return the texts of these runs that are being written, as far as they have come."""
        runs = list(run_ids)
        pipe = self._redis.pipeline(transaction=False)
        for run_id in runs:
            pipe.smembers(_names(run_id))
        found = [
            (run_id, text)
            for run_id, names in zip(runs, await pipe.execute(), strict=True)
            for text in map(_named, names)
            if text
        ]
        for run_id, text in found:
            pipe.get(_buffer(run_id, text))
        for (_, text), raw in zip(found, await pipe.execute() if found else [], strict=True):
            text.text = _readable(raw)
        return [(run_id, text) for run_id, text in found if text.text]


def _names(run_id: str) -> str:
    return f"milepost:live:{run_id}"


def _buffer(run_id: str, text: LiveText) -> str:
    return f"{_names(run_id)}:{_name(text)}"


def _readable(raw: bytes | None) -> str:
    """Return a text as far as it is kept; nothing, if that is not all of it up to there."""
    if raw is None or b"\x00" in raw:  # Redis fills up with NUL what it lost.
        return ""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _name(text: LiveText) -> str:
    return f"{text.kind}|{text.id}|{text.after_seq}"


def _named(name: bytes) -> LiveText | None:
    """Return the text of this name, still empty; one of another version may mean nothing here."""
    kind, _, rest = name.decode("utf-8", "replace").partition("|")
    id_, _, after_seq = rest.rpartition("|")
    if kind not in KINDS or not after_seq.isdecimal():
        return None
    return LiveText(KINDS[kind], id_, int(after_seq))
